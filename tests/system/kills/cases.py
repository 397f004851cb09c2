"""One small real plan for every kind of step, in a folder that is laid out anew for each kill."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from firstlight.frozen import dataclass
from firstlight.ways.back import Back, BackKind, moved_back
from firstlight.ways.building import COPY
from firstlight.ways.start_script import Wiring, asks_cuda, run_script, wire_script
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind
from tests.apply.acting import home_with_files, plan_for, step
from tests.apply.stand_ins import build_libcuda
from tests.apply.wheels import make_wheel
from tests.system.apt_room import HOME, states

TRIAL = HOME / "trial"  # the same path for every trial: environments and journals hold it
UPSTREAM, WHEELS = HOME / "upstream", HOME / "wheels"
UV = str(Path(sys.executable).with_name("uv"))
PYTHON = str(TRIAL / "venv/bin/python")
_FROM_WHEELS = ("--no-index", "--find-links", str(WHEELS))


def nothing_else() -> str:
    """What a case looks at besides its folder: nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of step: how its folder is laid out, its plan, and what is looked at besides the folder."""

    name: str
    lay_out: Callable[[Path], None]
    steps: Callable[[], tuple[Step, ...]]
    besides: Callable[[], str] = nothing_else


def furnish_sources() -> None:
    """What the plans bring things from: wheels, a repository of git, an archive, a driver that needs compat."""
    for version in ("1.0", "2.0"):
        needs = (f"part=={version}", *(("extra",) if version == "2.0" else ()))
        make_wheel(WHEELS, "demo", version, requires=needs, size=2_000_000)
        make_wheel(WHEELS, "part", version)
    make_wheel(WHEELS, "extra", "0.1")
    UPSTREAM.mkdir()
    for number in range(400):
        (UPSTREAM / f"file-{number:03d}").write_text(f"{number}\n" * 100)
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "first")):
        _git(*words)
    library = HOME / "archive/compat-1/lib"
    library.mkdir(parents=True)
    (library / "libcuda.so.99").write_bytes(hashlib.shake_256(b"cuda").digest(3_000_000))
    (library / "libnvidia-other.so.99").write_bytes(hashlib.shake_256(b"other").digest(1_000_000))
    (library / "libcuda.so.1").symlink_to("libcuda.so.99")
    argv = ["tar", "--create", "--xz", "--file", str(HOME / "compat.tar.xz"), "compat-1"]
    subprocess.run(argv, cwd=HOME / "archive", check=True)
    subprocess.run(["mount", "-t", "tmpfs", "driver", "/sys/module"], check=True)
    Path("/sys/module/nvidia").mkdir()
    Path("/sys/module/nvidia/version").write_text("535.183.01\n")


def _git(*words: str) -> str:
    argv = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *words]
    return subprocess.run(argv, cwd=UPSTREAM, check=True, capture_output=True, text=True).stdout.strip()


def _empty(folder: Path) -> None:
    (folder / "home").mkdir()


def _environment(folder: Path) -> None:
    """An environment with demo 1.0, made once."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    argv = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", *_FROM_WHEELS, "demo==1.0"]
    subprocess.run(argv, check=True)


def _environment_of_uv(folder: Path) -> None:
    argv = [UV, "venv", "--quiet", "--offline", "--python", sys.executable, str(folder / "venv")]
    subprocess.run(argv, check=True)
    _uv("pip", "install", "--quiet", "--python", str(folder / "venv/bin/python"), *_FROM_WHEELS, "demo==1.0")


def _uv(*words: str) -> None:
    subprocess.run([UV, *words], check=True, env=environ())


def environ() -> dict[str, str]:
    """What the commands of every plan get."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(TRIAL / "home"),
        "APT_CONFIG": os.environ["APT_CONFIG"], "DEBIAN_FRONTEND": "noninteractive", "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1", "UV_CACHE_DIR": str(HOME / "uv-cache"),
        "UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON": sys.executable, "UV_OFFLINE": "1", "UV_LINK_MODE": "copy",
    }  # fmt: skip


def _holds(*wanted: str) -> tuple[Condition, ...]:
    return (Condition(CheckKind.DISTRIBUTIONS, PYTHON, "\n".join(wanted)),)


def _pip() -> tuple[Step, ...]:
    argv = (PYTHON, "-m", "pip", "install", *_FROM_WHEELS, "demo==2.0")
    return (step("01-pip", kind=StepKind.PIP, commands=(argv,), done_when=_holds("demo==2.0")),)


def _by_uv() -> Step:
    argv = (UV, "pip", "install", "--python", PYTHON, *_FROM_WHEELS, "demo==2.0")
    return step("01-uv", kind=StepKind.UV, commands=(argv,), done_when=_holds("demo==2.0"))


def _libs() -> tuple[Step, ...]:
    """As libs --fix makes it: a wheel, then links in folders that are not there yet."""
    site = f"{TRIAL}/venv/lib/python3.{sys.version_info[1]}/site-packages"
    changes = tuple(
        FileChange(f"{site}/new/lib/lib{name}.so", "", "", links_to=f"{site}/demo/weights.bin") for name in "abc"
    )
    done = tuple(Condition(CheckKind.LINK, change.path, change.links_to) for change in changes)
    return (_by_uv(), step("02-links", files=changes, done_when=done))


def _venv() -> tuple[Step, ...]:
    folder = str(TRIAL / "home/venv")
    done = (
        Condition(CheckKind.FILE_EXISTS, f"{folder}/bin/python"),
        Condition(CheckKind.COMMAND, folder, argv=(f"{folder}/bin/python", "-m", "pip", "--version")),
    )
    commands, back = ((sys.executable, "-m", "venv", folder),), (("rm", "-rf", folder),)
    return (step("01-venv", kind=StepKind.VENV, commands=commands, undo=back, done_when=done),)


def _apt() -> tuple[Step, ...]:
    commands = (("apt-get", "update"), ("apt-get", "install", "--yes", "main"))
    done = (Condition(CheckKind.APT_PACKAGE, "main"),)
    return (step("01-apt", kind=StepKind.APT, commands=commands, done_when=done),)


def _archive() -> tuple[Step, ...]:
    """As the compat library of NVIDIA's archive comes."""
    folder, target = str(TRIAL / "home/compat-1"), str(TRIAL / "home/compat.tar.xz")
    digest = hashlib.sha256((HOME / "compat.tar.xz").read_bytes()).hexdigest()
    sums = FileChange(f"{target}.sha256", "", f"{digest}  {target}\n")
    unpack = ("tar", "--extract", "--file", target, "--directory", folder, "--transform", "s|.*/||", "--wildcards")
    commands = (
        ("mkdir", "-p", folder),
        ("curl", "-fsSL", "-o", target, f"file://{HOME}/compat.tar.xz"),
        ("sha256sum", "--check", f"{target}.sha256"),
        (*unpack, "*/lib*.so*"),
        ("ln", "-sf", "libcuda.so.99", f"{folder}/libcuda.so.1"),
    )
    done = tuple(Condition(CheckKind.FILE_EXISTS, f"{folder}/{name}") for name in ("libcuda.so.99", "libcuda.so.1"))
    back = (("rm", "-rf", folder), ("rm", "-f", target))
    made = step("01-archive", kind=StepKind.ARCHIVE, commands=commands, files=(sums,), undo=back, done_when=done)
    return (made,)


def _checkout() -> tuple[Step, ...]:
    folder, commit = str(TRIAL / "home/tree"), _git("rev-parse", "HEAD")
    commands = (
        ("git", "init", "--quiet", folder),
        ("git", "-C", folder, "fetch", "--depth", "1", str(UPSTREAM), commit),
        ("git", "-C", folder, "checkout", "--quiet", "--detach", commit),
    )
    done = (Condition(CheckKind.GIT_COMMIT, folder, commit),)
    return (step("01-git", kind=StepKind.GIT, commands=commands, undo=(("rm", "-rf", folder),), done_when=done),)


_MANIFEST = f"""\
[project]
name = "app"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["demo==1.0"]

[tool.uv]
package = false
no-index = true
find-links = ["{WHEELS}"]
"""


def _project_folder(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(_MANIFEST)
    _uv("sync", "--quiet", "--project", str(folder))


def _project() -> tuple[Step, ...]:
    manifest, lock = str(TRIAL / "pyproject.toml"), str(TRIAL / "uv.lock")
    after = _MANIFEST.replace("demo==1.0", "demo==2.0")
    python = str(TRIAL / ".venv/bin/python")
    done = (
        Condition(CheckKind.FILE_HOLDS, manifest, after),
        Condition(CheckKind.DISTRIBUTIONS, python, "demo==2.0"),
    )
    saved = f"{lock}.before-firstlight"
    commands = (
        (*COPY, lock, saved),
        (UV, "lock", "--project", str(TRIAL)),
        (UV, "sync", "--project", str(TRIAL)),
    )
    back = (moved_back(saved, lock), Back(BackKind.SYNC_UV, (str(TRIAL),)))
    changes = (FileChange(manifest, _MANIFEST, after),)
    made = step("01-project", kind=StepKind.PROJECT, files=changes, commands=commands, done_when=done)
    return (replace(made, back=back),)


def _with_library(folder: Path) -> None:
    (folder / "home").mkdir()
    build_libcuda(folder / "library", version="580.65.06", cuda=13000)


def _compat() -> tuple[Step, ...]:
    wiring = Wiring(
        folder=str(TRIAL / "library"), cuda="13.0", branches=(535,), python=sys.executable,
        here=str(TRIAL / "home/state/compat"),
    )  # fmt: skip
    changes = (
        FileChange(wiring.wire, "", wire_script(wiring)),
        FileChange(wiring.run, "", run_script(wiring), mode=0o755),
    )
    asked = Condition(CheckKind.COMMAND, wiring.run, argv=(wiring.run, sys.executable, "-c", asks_cuda(13000)))
    done = (*(Condition(CheckKind.FILE_HOLDS, each.path, each.after) for each in changes), asked)
    made = step("01-compat", kind=StepKind.COMPAT, files=changes, commands=((wiring.run, "true"),), done_when=done)
    return (replace(made, back=(Back(BackKind.FORGET_PROOFS, (wiring.here,)),)),)


def _home(folder: Path) -> None:
    home_with_files(folder)


def _file() -> tuple[Step, ...]:
    return plan_for(TRIAL / "home")


def cases() -> tuple[Case, ...]:
    """Every kind of step."""
    return (
        Case("pip", _environment, _pip),
        Case("uv", _environment_of_uv, lambda: (_by_uv(),)),
        Case("venv", _empty, _venv),
        Case("apt", _empty, _apt, states),
        Case("archive", _empty, _archive),
        Case("git", _empty, _checkout),
        Case("file", _home, _file),
        Case("project", _project_folder, _project),
        Case("compat", _with_library, _compat),
        Case("libs", _environment_of_uv, _libs),
    )
