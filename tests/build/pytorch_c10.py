"""PyTorch 1.13.1's own tree in a clean Debian 12: configured, its target c10 compiled, killed and gone on with.

    python -m tests.build.pytorch_c10 FOLDER RESULT

The root is made by debootstrap, with the build dependencies of Debian's package `pytorch`; the tree is that package's
archive, which has no submodules. What they would bring is turned off or taken from Debian; two patches stand in for
fmt and foxi, which have no switch. Needs root and a Debian mirror, 3 GB of disk and some ten minutes of two processors.
Everything is mounted in a namespace that goes with the processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from firstlight.build.ninja_output import read_ninja_log
from firstlight.build.ninja_units import units_of_ninja_file
from tests.build.kills import kill_all

ROOT = Path(__file__).parents[2]
MIRROR = "http://deb.debian.org/debian"
OFF = ("CUDA", "QNNPACK", "PYTORCH_QNNPACK", "NNPACK", "XNNPACK", "FBGEMM", "TENSORPIPE", "KINETO", "MKLDNN", "ITT")
PATCHES = ("torch-1.13.1-system-fmt.patch", "torch-1.13.1-no-foxi.patch")
KILLED_AT = 20  # of 67 objects
_PACKAGES = """
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends dpkg-dev ca-certificates python3-venv python3-pip git
apt-get build-dep -qy --no-install-recommends pytorch
cd /root
apt-get source -q --download-only --tar-only pytorch
"""
_ENVIRONMENT = """
python3 -m venv --system-site-packages /opt/env
/opt/env/bin/python -m pip install -q click rich packaging nvidia-ml-py jinja2 tomlkit pyyaml build setuptools wheel \
    astunparse future six requests dataclasses
"""
_INSIDE = """
mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
mount -t tmpfs lock "$0/run/lock" && mount --bind "$1" "$0/mnt" && cd / && root=$0 && shift && exec chroot "$root" "$@"
"""
_KEPT = ("PATH", "LANG", "PIP_INDEX_URL", "PIP_CERT", "http_proxy", "https_proxy", "no_proxy")


class DebianRoot:
    """A Debian 12 with what its package pytorch is built with, in a folder; firstlight's tree at /mnt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self) -> None:
        """As apt makes it; what is whole already is left."""
        done = self.folder / "root/ready"
        if done.exists():
            return
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(self.folder), MIRROR], check=True)
        sources = "".join(f"{kind} {MIRROR} bookworm main\n" for kind in ("deb", "deb-src"))
        (self.folder / "etc/apt/sources.list").write_text(sources)
        self._copy("/etc/resolv.conf", "/etc/hosts")
        self.run("sh", "-e", "-c", _PACKAGES)
        self._copy(
            "/etc/ssl/certs/ca-certificates.crt"
        )  # the package has its own, and pip asks the index of this machine
        self.run("sh", "-e", "-c", _ENVIRONMENT)
        done.touch()

    def _copy(self, *names: str) -> None:
        for name in names:
            (self.folder / name[1:]).write_bytes(Path(name).read_bytes())

    def start(self, *argv: str, out: int | None = None) -> subprocess.Popen[bytes]:
        """A command inside, in a mount namespace of its own."""
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        env |= {"HOME": "/root", "PYTHONPATH": "/mnt/src", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _INSIDE, str(self.folder), str(ROOT)]
        return subprocess.Popen([*words, *argv], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def run(self, *argv: str) -> None:
        status = self.start(*argv).wait()
        assert status == 0, f"{argv} ended with {status}"


def command(root: DebianRoot) -> list[str]:
    """The build as it is given on a command line in the root."""
    archive = next((root.folder / "root").glob("pytorch_1.13.1*.orig.tar.xz"))
    words = ["/opt/env/bin/python", "-m", "firstlight", "build", f"/root/{archive.name}", "--target", "c10"]
    flags = ["USE_SYSTEM_LIBS=ON", *(f"USE_{name}=OFF" for name in OFF), "BUILD_TEST=OFF"]
    words += [word for flag in flags for word in ("--flag", flag)]
    words += [word for name in PATCHES for word in ("--patch", f"/mnt/tests/build/pytorch_patches/{name}")]
    return [*words, "--python", "/opt/env/bin/python", "--yes"]


def build_folder(root: DebianRoot) -> Path:
    found = [*(root.folder / "root/.local/state/firstlight/builds").glob("pytorch*/tree/build")]
    return found[0] if found else Path("/nowhere")


def compiled(root: DebianRoot) -> dict[str, int]:
    """Objects that ninja has ended, each with its time."""
    folder = build_folder(root)
    names = [each.output for each in read_ninja_log(str(folder)) if each.output.endswith(".o")]
    return {name: (folder / name).stat().st_mtime_ns for name in names if (folder / name).exists()}


def killed_and_resumed(root: DebianRoot) -> dict[str, Any]:
    """Build c10, kill -9 everything when some objects are there, give the same command again."""
    begun = time.monotonic()
    with (root.folder / "root/first.log").open("wb") as log:
        process = root.start(*command(root), out=log.fileno())
        while process.poll() is None and len(compiled(root)) < KILLED_AT:
            time.sleep(0.2)
        assert process.poll() is None, (root.folder / "root/first.log").read_text()[-3000:]
        kill_all(process)
    before, cut = compiled(root), time.monotonic()
    with (root.folder / "root/second.log").open("wb") as log:
        status = root.start(*command(root), out=log.fileno()).wait()
    after, ended = compiled(root), time.monotonic()
    said = (root.folder / "root/second.log").read_text(errors="replace")
    made = build_folder(root)
    state = made.parents[1]
    return {
        "command": " ".join(["firstlight", *command(root)[3:]]), "exit_code": status,
        "objects_configured": len(units_of_ninja_file(str(made))), "library": (made / "lib/libc10.so").exists(),
        "killed_after_s": round(cut - begun, 1), "objects_at_the_kill": len(before), "goes_on_s": round(ended - cut, 1),
        "objects_of_c10": len(after), "compiled_again": [name for name, at in before.items() if after.get(name) != at],
        "record": json.loads((state / "done/compile.json").read_text()) if status == 0 else {}, "said": said[-600:],
    }  # fmt: skip


def main() -> None:
    folder, result = Path(sys.argv[1]), Path(sys.argv[2])
    root = DebianRoot(folder)
    root.make()
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    found = killed_and_resumed(root)
    found["record"].pop("key", None)
    said = found.pop("said")
    document = {
        "what": "PyTorch 1.13.1's tree configured and its target c10 compiled in a clean Debian 12, killed and resumed",
        "how": "python -m tests.build.pytorch_c10 FOLDER RESULT", "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit.stdout.strip(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
        "machine": "Debian 12 root: g++ 12.2, cmake 3.25.1, ninja 1.11.1, Python 3.11.2; shared with much other work",
        **found,
    }  # fmt: skip
    result.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1), said)


if __name__ == "__main__":
    main()
