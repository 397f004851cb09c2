"""Real buildah with a store of its own, and what it built started under drivers that are loaded by name alone."""

from __future__ import annotations

import functools
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from firstlight.emit.kinds import emit
from firstlight.emit.subject import Subject
from tests.apply.debs import Repository
from tests.apply.stand_ins import build_libcuda
from tests.apply.wheels import make_wheel
from tests.emit.subjects import write
from tests.system.wheels_again import pack_again, with_needs

BASE = "localhost/debootstrapped"
# buildah passes on what is printed by threads of its own, and may end before they are through
LINGER = ("sh", "-c", '"$@"; code=$?; sleep 0.3; exit $code', "sh")


class Builder:
    """buildah with a store of its own; overlay where the kernel lets it, else whole copies."""

    def __init__(self, store: Path) -> None:
        self.store, self.driver, self.container = store, "overlay", ""
        if self("from", "--name", "tried", "scratch", check=False).returncode != 0:
            self.driver = "vfs"

    @property
    def command(self) -> tuple[str, ...]:
        return (
            "buildah", "--storage-driver", self.driver, "--root", f"{self.store}/{self.driver}",
            "--runroot", f"{self.store}/run",
        )  # fmt: skip

    def __call__(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = _tried([*self.command, *argv], timeout=900)
        if check:
            done.check_returncode()
        return done

    def run(self, *argv: str, driver: str = "", environ: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """The image's entrypoint with a command, as its user; under a kernel driver where one is named."""
        words = [word for each in environ for word in ("--env", each)]
        entry = (*LINGER, "/opt/firstlight/entrypoint.sh", *argv)
        inside = ["run", "--isolation", "chroot", *words, self.container, "--", *entry]
        script = 'mount -t tmpfs t /sys/module && mkdir /sys/module/nvidia && echo "$1" > /sys/module/nvidia/version; '
        seen = (script if driver else "") + 'shift; exec "$@"'
        alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", seen, "sh", driver)
        return _tried([*alone, *self.command, *inside], timeout=300)


def _tried(argv: list[str], *, timeout: int) -> subprocess.CompletedProcess[str]:
    """What buildah ended with, once it could start: a busy kernel refuses now and then to seal its copy of itself."""
    for _ in range(5):
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout)
        if done.returncode == 0 or "sealing memfd copy: Device or resource busy" not in done.stderr:
            break
    return done


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


def nvidias_packages(folder: Path) -> ThreadingHTTPServer:
    """A repository with a stand-in for NVIDIA's package: a library that answers cuInit."""
    repository = Repository(folder / "apt")
    tree = folder / "apt/cuda-compat-13-0_580.95.05"
    build_libcuda(tree / "usr/local/cuda-13.0/compat", version="580.95.05", cuda=13000)
    repository.add("cuda-compat-13-0", "580.95.05", files={"/usr/local/cuda-13.0/compat/README": "stand-in\n"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(repository.packages)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def wheels_for(folder: Path) -> None:
    """What an image installs besides firstlight itself: a stand-in for torch, and all that firstlight needs."""
    for name in with_needs("firstlight"):
        if name != "firstlight":
            pack_again(name, folder)
    torch_for(folder)


def torch_for(folder: Path) -> None:
    """The stand-in for torch, and the word that it comes from no index."""
    make_wheel(folder, "torch", "2.9.0+cu130")
    (folder / "bundle.json").write_text("{}\n")


@contextmanager
def image_on(
    base: Path, made: Subject, folder: Path, *, wheels: Callable[[Path], None] = wheels_for
) -> Iterator[Builder]:
    """The image of `emit dockerfile` on a root, which becomes BASE and has NVIDIA's package, a stand-in, in reach."""
    builder, server = Builder(folder / "store"), nvidias_packages(folder)
    shutil.copy(folder / "apt/key.gpg", base / "etc/apt/key.gpg")
    line = f"deb [signed-by=/etc/apt/key.gpg] http://127.0.0.1:{server.server_address[1]} ./\n"
    (base / "etc/apt/sources.list.d/nvidia.list").write_text(line)
    (base / "etc/apt/apt.conf.d/99tests").write_text('APT::Sandbox::User "root";\n')
    scratch = builder("from", "scratch").stdout.strip()
    builder("add", scratch, str(base), "/")
    builder("commit", "--rm", scratch, BASE)
    shutil.rmtree(base)
    context = write(emit("dockerfile", made), folder / "context")
    wheels(context / "wheels")
    built = builder("bud", "--isolation", "chroot", "--layers=false", "--tag", "emitted", str(context), check=False)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    builder.container = builder("from", "localhost/emitted").stdout.strip()
    yield builder
    server.shutdown()
    shutil.rmtree(folder)
