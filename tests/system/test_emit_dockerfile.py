"""The images of dockerfile, compose and devcontainer built by buildah on a Debian by debootstrap, and started.

torch and NVIDIA's package are stand-ins; Python and the compiler come from Debian's mirror.
"""

from __future__ import annotations

import copy
import functools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from firstlight.emit.containers import gate_command
from firstlight.emit.kinds import emit
from firstlight.emit.subject import Choices, Subject
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.emit.subjects import OLD_H100, subject, with_own_wheel, write
from tests.system.builder import BASE, Builder, image_on, wheels_for

_NEEDED = ("buildah", "debootstrap", "apt-get", "gpg", "gcc")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(not all(map(shutil.which, _NEEDED)), reason=f"needs {', '.join(_NEEDED)}"),
]


@functools.cache
def _release() -> tuple[str, str]:
    """The name of Debian's release here and the mirror that apt takes it from; "" where this is no Debian."""
    words = dict(line.partition("=")[::2] for line in Path("/etc/os-release").read_text().splitlines())
    name = words.get("VERSION_CODENAME", "") if words.get("ID") == "debian" else ""
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {name}"]
    mirrors = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split() if name else []
    return (name, mirrors[0]) if mirrors else ("", "")


def debian_base(root: Path) -> None:
    """A root of this Debian by debootstrap, from the mirror that apt has here."""
    name, mirror = _release()
    if not name:
        pytest.skip("debootstrap is tried where this machine is a Debian with a mirror")
    argv = ["debootstrap", "--variant=minbase", name, str(root), mirror]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("image")
    base = folder / "base"
    debian_base(base)
    with image_on(base, _subject(), folder) as built:
        yield built


def _subject() -> Subject:
    return with_own_wheel(subject(OLD_H100, choices=Choices(base=BASE)))


@pytest.mark.parametrize(("kind", "folder"), [("devcontainer", ".devcontainer/"), ("compose", "")])
def test_other_kinds_build_their_image_from_the_same_files(kind: str, folder: str) -> None:
    """So that one build stands for all: what differs is the line that says by which kind they were written."""
    image, other = ({file.name: file.text for file in emit(each, _subject()).files} for each in ("dockerfile", kind))
    for name, text in image.items():
        assert other[f"{folder}{name}"].replace(f"emit {kind})", "emit dockerfile)") == text


_CLEARED = "userdel gpu; rm -rf /home/gpu /opt/firstlight /usr/local/bin/firstlight /etc/profile.d/firstlight.sh"


@pytest.fixture(scope="module")
def with_tools(image: Builder) -> str:
    """The base once more with what the first build fetched by apt, so that two more builds fetch nothing."""
    container = image("from", "localhost/emitted").stdout.strip()
    image("config", "--user", "root", "--entrypoint", "[]", container)
    image("run", "--isolation", "chroot", container, "--", "sh", "-c", _CLEARED)
    image("commit", "--rm", container, "localhost/debian-with-tools")
    return "localhost/debian-with-tools"


def _built(image: Builder, kind: str, base: str, folder: Path) -> tuple[Path, Builder]:
    """The files of a kind, and the image that is built as they say: by which Dockerfile, in which folder."""
    here = write(emit(kind, with_own_wheel(subject(OLD_H100, choices=Choices(base=base)))), folder)
    if kind == "compose":
        context, dockerfile = (
            here / yaml.safe_load((here / "compose.yaml").read_text())["services"]["torch"]["build"],
            "",
        )
    else:
        build = json.loads((here / ".devcontainer/devcontainer.json").read_text())["build"]
        context, dockerfile = here / ".devcontainer" / build["context"], build["dockerfile"]
    wheels_for(context / "wheels")
    named = ("--file", str(context / dockerfile)) if dockerfile else ()
    argv = ("bud", "--isolation", "chroot", "--layers=false", "--tag", kind, *named, str(context))
    done = image(*argv, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    built = copy.copy(image)
    built.container = image("from", f"localhost/{kind}").stdout.strip()
    return here, built


@pytest.mark.slow
def test_the_image_of_compose_is_built_from_its_files_and_its_health_is_the_gate(
    image: Builder, with_tools: str, tmp_path: Path
) -> None:
    here, built = _built(image, "compose", with_tools, tmp_path / "compose")
    service = yaml.safe_load((here / "compose.yaml").read_text())["services"]["torch"]
    entry, *asks = service["healthcheck"]["test"][1:]
    assert entry == "/opt/firstlight/entrypoint.sh"
    sick = built.run(*asks, driver="560.35.03")
    assert (sick.returncode, "driver 560.35.03 is loaded" in sick.stderr) == (1, True), sick.stderr
    without = built.run(*asks, driver="580.95.05")
    assert "nvidia-smi" in without.stderr  # the gate let it in, and the stand-in of a host has no such program
    program, verb, *_ = service["command"]
    done = built.run(program, verb, "--list", driver="580.95.05")
    assert (done.returncode, "compile" in done.stdout) == (0, True), done.stderr


@pytest.mark.slow
def test_the_image_of_a_devcontainer_is_built_from_its_files_and_its_commands_run(
    image: Builder, with_tools: str, tmp_path: Path
) -> None:
    here, built = _built(image, "devcontainer", with_tools, tmp_path / "devcontainer")
    says = json.loads((here / ".devcontainer/devcontainer.json").read_text())
    for driver, code in (("580.95.05", 0), ("570.133.20", 0), ("560.35.03", 1)):
        started = built.run(*says["postStartCommand"][1:], driver=driver)
        assert started.returncode == code, started.stderr
        mount = 'mount -t tmpfs t /sys/module && mkdir /sys/module/nvidia && echo "$1" > /sys/module/nvidia/version'
        script = f'{mount}; shift; exec "$@"'
        alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", driver)
        host = subprocess.run(
            [*alone, *says["initializeCommand"]], capture_output=True, text=True, check=False, cwd=here, timeout=60
        )
        assert host.returncode == code, host.stderr
    user = built.run("sh", "-c", "id -un; python -c 'import torch; print(torch.VERSION)'")
    assert user.stdout.split() == [says["remoteUser"], "2.9.0+cu130"], user.stderr


def test_the_user_of_the_image_is_not_root_and_has_torch_and_firstlight(image: Builder) -> None:
    script = "id -u; command -v python; python -c 'import torch; print(torch.VERSION)'; firstlight --version"
    done = image.run("sh", "-c", script)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["10001", "/opt/firstlight/env/bin/python", "2.9.0+cu130"], done.stderr
    assert lines[3].startswith("firstlight")
    assert "no NVIDIA driver is loaded here" in done.stderr


def test_the_image_has_a_compiler_and_any_user_may_note_what_cuinit_said(image: Builder) -> None:
    done = image.run("stat", "-c", "%a %n", "/opt/firstlight/compat")
    assert done.stdout.splitlines()[0] == "1777 /opt/firstlight/compat", done.stderr
    script = 'echo "#include <Python.h>" | g++ -x c++ -fsyntax-only $(python3-config --includes) - && echo compiled'
    compiled = image.run("sh", "-c", script)
    assert compiled.stdout == "compiled\n", compiled.stderr


def test_firstlight_inside_sees_the_driver_of_the_host(image: Builder) -> None:
    done = image.run("firstlight", "facts", "--json", driver="580.95.05")
    assert json.loads(done.stdout)["driver"]["kernel_version"]["value"] == "580.95.05", done.stderr


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


@pytest.mark.parametrize(("driver", "says"), [("560.35.03", "driver 560.35.03 is loaded"), ("580.95.05", "nvidia-smi")])
def test_the_gate_of_compose_and_k8s_fails_without_a_driver_that_fits_and_answers(
    image: Builder, driver: str, says: str
) -> None:
    gate = gate_command(subject(OLD_H100))
    assert gate[0] == "/opt/firstlight/entrypoint.sh"
    done = image.run(*gate[1:], driver=driver)
    assert done.returncode != 0
    assert says in done.stderr
