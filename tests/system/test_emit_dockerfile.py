"""The emitted Dockerfile built by buildah on a base of this machine's packages, and the image started under drivers."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from firstlight.emit.kinds import emit
from firstlight.emit.subject import Choices
from tests.apply.debs import Repository
from tests.apply.stand_ins import build_libcuda, can_have_its_own_mounts
from tests.apply.wheels import make_wheel
from tests.emit.subjects import OLD_H100, subject, write
from tests.system.clean_root import closure, essential, make_root
from tests.system.wheels_again import pack_again, pack_firstlight, with_needs

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(shutil.which("buildah") is None, reason="needs buildah"),
    pytest.mark.skipif(shutil.which("apt-get") is None or shutil.which("gpg") is None, reason="needs apt and gpg"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc for the stand-in library"),
    pytest.mark.skipif(not Path("/usr/share/doc/python3-venv").exists(), reason="needs python3-venv to copy it"),
]
BASE = "localhost/clean-base"


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


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
        inside = ["run", "--isolation", "chroot", *words, self.container, "--", "/opt/firstlight/entrypoint.sh", *argv]
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


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("image")
    builder = Builder(folder / "store")
    server = _apt(folder)
    base = folder / "base"
    make_root(base, tuple(sorted({*essential(), *closure(("python3", "python3-venv", "ca-certificates", "passwd"))})))
    shutil.copy(folder / "apt/key.gpg", base / "etc/apt/key.gpg")
    line = f"deb [signed-by=/etc/apt/key.gpg] http://127.0.0.1:{server.server_address[1]} ./\n"
    (base / "etc/apt/sources.list").write_text(line)
    # Debian's own is written when base-files is set up, and is in no package's list
    (base / "etc/profile").write_text('for each in /etc/profile.d/*.sh; do [ ! -r "$each" ] || . "$each"; done\n')
    (base / "etc/apt/apt.conf.d/99tests").write_text('APT::Sandbox::User "root";\n')
    scratch = builder("from", "scratch").stdout.strip()
    builder("add", scratch, str(base), "/")
    builder("commit", "--rm", scratch, BASE)
    context = write(emit("dockerfile", subject(OLD_H100, choices=Choices(base=BASE))), folder / "context")
    _wheels(context / "wheels")
    built = builder("bud", "--isolation", "chroot", "--layers=false", "--tag", "emitted", str(context), check=False)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    builder.container = builder("from", "localhost/emitted").stdout.strip()
    yield builder
    server.shutdown()
    shutil.rmtree(folder)


def _apt(folder: Path) -> ThreadingHTTPServer:
    """A repository with a stand-in for NVIDIA's package: a library that answers cuInit."""
    repository = Repository(folder / "apt")
    tree = folder / "apt/cuda-compat-13-0_580.95.05"
    build_libcuda(tree / "usr/local/cuda-13.0/compat", version="580.95.05", cuda=13000)
    repository.add("cuda-compat-13-0", "580.95.05", files={"/usr/local/cuda-13.0/compat/README": "stand-in\n"})
    repository.add("g++", "12.2", files={"/usr/bin/g++": "#!/bin/sh\n"})
    repository.add("python3-dev", "3", files={"/usr/share/headers": "stand-in\n"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(repository.packages)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _wheels(folder: Path) -> None:
    make_wheel(folder, "torch", "2.9.0+cu130")
    pack_firstlight(folder)
    for name in with_needs("firstlight"):
        if name != "firstlight":
            pack_again(name, folder)
    (folder / "bundle.json").write_text("{}\n")


def test_the_user_of_the_image_is_not_root_and_has_torch_and_firstlight(image: Builder) -> None:
    script = "id -u; command -v python; python -c 'import torch; print(torch.VERSION)'; firstlight --version"
    done = image.run("sh", "-c", script)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["10001", "/opt/firstlight/env/bin/python", "2.9.0+cu130"], done.stderr
    assert lines[3].startswith("firstlight")
    assert "no NVIDIA driver is loaded here" in done.stderr


def test_the_image_has_a_compiler_and_any_user_may_note_what_cuinit_said(image: Builder) -> None:
    done = image.run("stat", "-c", "%a %n", "/opt/firstlight/compat", "/usr/bin/g++", "/usr/share/headers")
    assert done.stdout.splitlines()[0] == "1777 /opt/firstlight/compat", done.stderr
    assert done.returncode == 0, done.stderr


def test_login_shells_have_the_environment(image: Builder) -> None:
    done = image.run("env", "-i", "HOME=/home/gpu", "PATH=/usr/bin:/bin", "sh", "-lc", "command -v python")
    assert done.stdout == "/opt/firstlight/env/bin/python\n", done.stderr


def test_the_image_says_what_it_needs_and_never_bakes_a_library_path(image: Builder) -> None:
    config = json.loads(image("inspect", "--type", "image", "localhost/emitted").stdout)["OCIv1"]["config"]
    env = dict(each.split("=", 1) for each in config["Env"])
    assert config["User"] == "10001"
    assert env["NVIDIA_REQUIRE_CUDA"] == subject(OLD_H100).gates.require_cuda
    assert "LD_LIBRARY_PATH" not in env
    assert config["Entrypoint"] == ["/opt/firstlight/entrypoint.sh"]


@pytest.mark.parametrize(
    ("driver", "path"),
    [("570.133.20", "/opt/firstlight/compat/cuda-13.0"), ("580.95.05", "none"), ("595.45.04", "none")],
)
def test_compat_is_decided_by_the_driver_that_is_loaded_at_the_start(image: Builder, driver: str, path: str) -> None:
    done = image.run("sh", "-c", 'echo "${LD_LIBRARY_PATH:-none}"', driver=driver)
    assert (done.returncode, done.stdout) == (0, f"{path}\n"), done.stderr


def test_a_driver_that_no_library_takes_starts_nothing(image: Builder) -> None:
    done = image.run("echo", "started", driver="560.35.03")
    assert (done.returncode, done.stdout) == (1, "")
    assert "driver 560.35.03 is loaded; torch 2.9.0+cu130 needs 580.65.06 or newer" in done.stderr
    let_in = image.run("echo", "started", driver="560.35.03", environ=("NVIDIA_DISABLE_REQUIRE=1",))
    assert (let_in.returncode, let_in.stdout) == (0, "started\n")
