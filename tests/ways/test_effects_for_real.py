"""Ways carried out for real by pip, uv, venv, shells and the file system: what was predicted is what is seen.

The wheels are small stand-ins with the real names, versions and requirements; the installers, shells, files and the
loader are the real ones. What needs root or other programs is in tests/system/test_effects_as_root.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from firstlight.facts.known import Known
from firstlight.facts.toolkits import Part
from firstlight.ways.effects import after
from firstlight.ways.kinds import (
    InstallWheels,
    KeepInProject,
    LinkFile,
    MakeEnvironment,
    Manner,
    Package,
    ReadEnvironment,
    RemoveDistributions,
    RemoveFiles,
    Scope,
    SetVariables,
    UnsetVariables,
    Unwire,
    Variable,
    WiredBy,
)
from firstlight.ways.way import Way
from tests.apply.index import serving
from tests.apply.stand_ins import build_libcuda, fake_torch
from tests.apply.wheels import make_wheel
from tests.ways.for_real import TABLES, Looked, carried_out, differences, look

UV = Path(sys.executable).with_name("uv")
# Of torch itself a stand-in has no compiled code and no tag of a platform.
_NO_REAL_TORCH = ("torch.compiled_for", "torch.wheel_tags")


class Place:
    """A home, an environment and a folder of wheels that pip and uv take everything from."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.venv, self.wheels = folder, folder / "home", folder / "venv", folder / "wheels"
        for each in (self.home, self.wheels):
            each.mkdir()
        (folder / "uv.toml").write_text(f'no-index = true\nfind-links = ["{self.wheels}"]\n')
        self.environ: dict[str, str] = {
            "PATH": f"{UV.parent}:/usr/bin:/bin",
            "HOME": str(self.home),
            "FIRSTLIGHT_STATE_DIR": str(folder / "state"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_CONFIG_FILE": str(folder / "uv.toml"),
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_LINK_MODE": "copy",
        }

    def with_pip(self) -> Place:
        """An environment without pip of its own, which finds one beside: made in no time."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.venv)], check=True)
        beside = self.folder / "beside"
        beside.mkdir()
        (beside / "pip").symlink_to(Path(sysconfig.get_path("purelib")) / "pip")
        (self.site / "beside.pth").write_text(f"{beside}\n")
        return self

    def with_uv(self) -> Place:
        subprocess.run(
            [str(UV), "venv", "--quiet", "--python", sys.executable, str(self.venv)], check=True, env=self.environ
        )
        return self

    @property
    def python(self) -> str:
        return str(self.venv / "bin/python")

    @property
    def site(self) -> Path:
        [found] = (self.venv / "lib").glob("python3*/site-packages")
        return found

    def has(self, *wanted: str) -> None:
        """Wheels installed before anything is looked at."""
        argv = [str(UV), "pip", "install", "--quiet", "--python", self.python, *wanted]
        subprocess.run(argv, check=True, env=self.environ)

    def look(self, environ: Mapping[str, str] | None = None, *, python: str = "") -> Looked:
        return look(environ or self.environ, python=python or (self.python if self.venv.exists() else ""))

    def login(self) -> dict[str, str]:
        """The environment of a fresh login shell of this home."""
        done = subprocess.run(
            ["bash", "--login", "-c", "env -0"], env=self.environ, capture_output=True, text=True, check=True
        )
        pairs = (each.partition("=") for each in done.stdout.split("\0") if "=" in each)
        return {name: value for name, _, value in pairs}

    def predicted(self, way: Way, *, again: Callable[[], Looked] | None = None, **more: tuple[str, ...]) -> list[str]:
        """Carry a way out and hold the paper against what is seen; the facts that were as predicted."""
        before = self.look() if again is None else again()
        carried_out(way, before, self.folder, self.environ)
        seen = self.look() if again is None else again()
        held, wrong = differences(way, before.facts, seen.facts, **more)
        assert wrong == []
        return held


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _torch_wheels(wheels: Path, version: str, *, said: str, cuda: str) -> None:
    """torch of a version with everything that it pins on x86_64, each as a small wheel."""
    arch = os.uname().machine
    release = TABLES.torch_release(version, arch)
    assert release is not None, version
    exact = tuple(pin for pin in release.pins if pin.version)
    made = make_wheel(wheels, "torch", version, requires=tuple(f"{pin.project}{pin.spec}" for pin in exact))
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr("torch/version.py", f"__version__ = '{said}'\ncuda = '{cuda}'\nhip = None\n")
    for pin in exact:
        make_wheel(wheels, pin.project, pin.version)


def test_pip_installs_a_torch_with_all_that_it_pins(place: Place) -> None:
    _torch_wheels(place.wheels, "2.9.0", said="2.9.0+cu128", cuda="12.8")
    make_wheel(place.wheels, "triton", "3.4.0")
    place.with_pip().has("triton==3.4.0")
    held = place.predicted(InstallWheels((Package("torch", "2.9.0"),)), unlike=_NO_REAL_TORCH)
    assert {"torch.version", "torch.recorded_version", "torch.wheel_cuda", "companions.0.version"} <= set(held)
    assert {"torch.requires.0.name", "torch.requires.0.specifier", "nvidia_wheels.0.version"} <= set(held)


@pytest.mark.parametrize("made", [Place.with_pip, Place.with_uv], ids=["pip", "uv"])
def test_a_companion_is_exchanged_and_taken_out(place: Place, made: Callable[[Place], Place]) -> None:
    make_wheel(place.wheels, "torchvision", "0.23.0")
    make_wheel(place.wheels, "torchvision", "0.24.0+cu128", requires=("numpy",))
    make_wheel(place.wheels, "numpy", "2.3.4")
    made(place).has("torchvision==0.23.0")
    installs = InstallWheels((Package("torchvision", "0.24.0+cu128"), Package("numpy", "2.3.4")))
    # What the real wheel requires is known; the stand-in asks for numpy alone.
    not_asked = ("companions.0.torch_required", "companions.0.built_for_torch", "companions.0.requires")
    held = place.predicted(installs, unlike=not_asked)
    assert {"companions.0.version", "companions.0.built_for_cuda", "companions.0.local_tag"} <= set(held)
    held = place.predicted(RemoveDistributions(("torchvision",)))
    assert "companions" in held


@pytest.mark.parametrize("made", [Place.with_pip, Place.with_uv], ids=["pip", "uv"])
def test_a_package_that_lies_there_twice_is_taken_out_with_both_records(
    place: Place, made: Callable[[Place], Place]
) -> None:
    make_wheel(place.wheels, "xformers", "0.0.32")
    made(place).has("xformers==0.0.32")
    shutil.copytree(place.site / "xformers-0.0.32.dist-info", place.site / "xformers-0.0.31.dist-info")
    for name in ("METADATA", "RECORD"):
        file = place.site / f"xformers-0.0.31.dist-info/{name}"
        file.write_text(file.read_text().replace("0.0.32", "0.0.31"))
    twice = place.look().facts.environment
    assert twice is not None
    assert [each.versions for each in twice.duplicates] == [("0.0.31", "0.0.32")]
    held = place.predicted(RemoveDistributions(("xformers",), copies=2))
    assert {"companions", "python.environments.0.duplicates"} <= set(held)


def test_a_wheel_of_nvidias_is_installed_again_in_the_version_that_is_pinned(place: Place) -> None:
    for version in ("9.1.0.70", "9.19.0.56"):
        make_wheel(place.wheels, "nvidia-cudnn-cu12", version)
    place.with_uv().has("nvidia-cudnn-cu12==9.19.0.56")
    held = place.predicted(InstallWheels((Package("nvidia-cudnn-cu12", "9.1.0.70"),)))
    assert "nvidia_wheels.0.version" in held
    (place.site / "nvidia_cudnn_cu12/__init__.py").unlink()
    way = InstallWheels((Package("nvidia-cudnn-cu12", "9.1.0.70"),), manner=Manner.AGAIN)
    before = place.look()
    carried_out(way, before, place.folder, place.environ)
    assert (place.site / "nvidia_cudnn_cu12/__init__.py").exists()
    assert differences(way, before.facts, place.look().facts) == ([], [])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
@pytest.mark.parametrize("installs", [False, True], ids=["keep", "install"])
def test_a_uv_project_keeps_what_is_chosen(place: Place, installs: bool) -> None:  # noqa: FBT001 a table of cases
    for version in ("2.9.0+cpu", "2.10.0"):
        make_wheel(place.wheels, "torch", version)
    app = place.folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "0.1.0"\nrequires-python = ">=3.10"\ndependencies = ["torch>=2.8"]\n'
        "[tool.uv]\npackage = false\n"
    )
    place.venv = app / ".venv"
    with serving(place.wheels, place.folder) as index:
        (place.folder / "uv.toml").write_text("")
        place.environ |= index.environ() | {"UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
        subprocess.run([str(UV), "sync", "--quiet"], cwd=app, env=place.environ, check=True)
        package, build = (Package("torch", "2.9.0+cpu"),), "https://download.pytorch.org/whl/cpu"
        way: Way = InstallWheels(package, build) if installs else KeepInProject(package, build)
        held = place.predicted(way, again=lambda: look(place.environ, python=place.python, cwd=str(app)),
                               unlike=("torch.",))  # fmt: skip
    assert {"python.project_files.0.torch.0", "python.project_files.1.torch.0"} <= set(held)


def test_an_environment_of_our_own_is_made_and_chosen(place: Place) -> None:
    made = place.home / "firstlight-venv"
    way = MakeEnvironment(str(made))
    before = place.look(python=sys.executable)
    carried_out(way, before, place.folder, place.environ)
    seen = place.look(python=str(made)).facts
    paper = differences(way, before.facts, before.facts)[1]
    assert paper, "nothing was predicted"
    chosen, real = _chosen(way, before), seen.environment
    assert real is not None
    for name in ("prefix", "kind", "site_packages", "externally_managed", "duplicates"):
        assert getattr(chosen, name) == getattr(real, name), name
    assert {each.name for each in real.distributions} <= {"setuptools"}  # which venv puts in before Python 3.12
    assert isinstance(real.writable, Known)
    assert real.writable.value


def _chosen(way: Way, before: Looked) -> object:
    return after(way, before.facts, TABLES).environment


def test_a_variable_is_set_for_login_shells_and_taken_out_again(place: Place) -> None:
    (place.home / ".profile").write_text("export EDITOR=vi\nexport CUDA_VISIBLE_DEVICES=7\n")

    def in_a_login_shell() -> Looked:
        return place.look(place.login())

    sets = SetVariables((Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), Variable("MAX_JOBS", "4")))
    held = place.predicted(sets, again=in_a_login_shell)
    assert held == ["gpus.cuda_device_order", "build_variables.0.name", "build_variables.0.value"]
    held = place.predicted(UnsetVariables(("CUDA_VISIBLE_DEVICES",)), again=in_a_login_shell)
    assert held == ["gpus.cuda_visible_devices"]
    held = place.predicted(UnsetVariables(("CUDA_DEVICE_ORDER", "MAX_JOBS")), again=in_a_login_shell)
    assert held == ["gpus.cuda_device_order", "build_variables"]


def _toolkit(folder: Path, *, version: str) -> Path:
    """A toolkit with an nvcc that says its version, and libraries beside it."""
    for each in ("bin", "include/crt", "lib", "nvvm/bin"):
        (folder / each).mkdir(parents=True)
    (folder / "bin/nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.88'\n")
    (folder / "bin/nvcc").chmod(0o755)
    for each in ("lib/libcudart.so.13", "include/cuda_runtime.h", "include/crt/host_config.h", "nvvm/bin/cicc"):
        (folder / each).touch()
    return folder


def test_a_toolkit_is_chosen_for_the_shell_that_builds(place: Place) -> None:
    home = _toolkit(place.folder / "cuda-13.0", version="13.0")
    place.environ["CUDA_PATH"] = str(home)

    def in_the_building_shell() -> Looked:
        script = '[ ! -r "$1" ] || . "$1"; env -0'
        file = f"{place.folder}/state/cuda-build.sh"
        done = subprocess.run(
            ["sh", "-c", script, "sh", file], env=place.environ, capture_output=True, text=True, check=True
        )
        pairs = (each.partition("=") for each in done.stdout.split("\0") if "=" in each)
        return place.look({name: value for name, _, value in pairs})

    way = SetVariables((Variable("CUDA_HOME", str(home)), Variable("TORCH_CUDA_ARCH_LIST", "9.0")), Scope.BUILD)
    held = place.predicted(way, again=in_the_building_shell, unlike=("toolkits.toolkits.0.found_by",))
    assert {"toolkits.cuda_home", "build_variables.0.value"} <= set(held)


def test_links_complete_a_toolkit(place: Place) -> None:
    home = _toolkit(place.folder / "cuda-13.0", version="13.0")
    place.environ["CUDA_HOME"] = str(home)
    held = place.predicted(LinkFile(f"{home}/lib64", "lib"))
    assert Part.LIB64 in place.look().facts.toolkits.toolkits[0].has
    assert "toolkits.toolkits.0.missing" in held
    held = place.predicted(LinkFile(f"{home}/lib/libcudart.so", "libcudart.so.13"))
    assert Part.CUDART_LINK in place.look().facts.toolkits.toolkits[0].has
    assert "toolkits.toolkits.0.missing" in held


class Loader:
    """A driver's libcuda behind a compat library or a stub, all in LD_LIBRARY_PATH of login shells."""

    def __init__(self, place: Place) -> None:
        self.place, self.own = place, place.folder / "driver"
        self.compat, self.stubs = place.folder / "cuda-13.0/compat", place.folder / "cuda-13.0/lib64/stubs"
        build_libcuda(self.own, version="580.159.04", cuda=13000)

    def look(self) -> Looked:
        return self.place.look(self.place.login())

    def profile(self, *lines: str) -> None:
        (self.place.home / ".profile").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc for a library of its own")
def test_a_compat_folder_is_taken_out_of_the_library_path(place: Place) -> None:
    loader = Loader(place)
    build_libcuda(loader.compat, version="570.86.10", cuda=12080, answer="803")
    loader.profile(f"export LD_LIBRARY_PATH={loader.compat}:{loader.own}")
    held = place.predicted(Unwire((str(loader.compat),), WiredBy.LIBRARY_PATH), again=loader.look)
    assert {"libcuda.would_load.path", "libcuda.candidates", "libcuda.ld_library_path"} <= set(held)
    assert "libcuda.driver_cuda" in held


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc for a library of its own")
def test_a_stub_is_moved_aside(place: Place) -> None:
    loader = Loader(place)
    build_libcuda(loader.stubs, version="0", cuda=13000, answer="34")
    loader.profile(f"export LD_LIBRARY_PATH={loader.stubs}:{loader.own}")
    held = place.predicted(RemoveFiles((f"{loader.stubs}/libcuda.so.1",)), again=loader.look)
    assert {"libcuda.would_load.path", "libcuda.candidates"} <= set(held)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc for a library of its own")
def test_a_preloaded_library_is_taken_out(place: Place) -> None:
    loader = Loader(place)
    build_libcuda(loader.compat, version="570.86.10", cuda=12080)
    loader.profile(f"export LD_LIBRARY_PATH={loader.own}", f"export LD_PRELOAD={loader.compat}/libcuda.so.1")
    held = place.predicted(Unwire((f"{loader.compat}/libcuda.so.1",), WiredBy.PRELOAD), again=loader.look)
    assert {"libcuda.would_load.path", "libcuda.ld_preload", "libcuda.driver_cuda"} <= set(held)


def test_pythonpath_no_longer_hides_the_installed_torch(place: Place) -> None:
    place.with_uv()
    fake_torch(place.site, version="2.9.0", cuda="13.0")
    fake_torch(place.folder / "checkout", version="2.8.0", cuda="12.8")
    (place.home / ".profile").write_text(f"export PYTHONPATH={place.folder}/checkout\n")
    unread = (*_NO_REAL_TORCH, "torch.commit", "torch.requires", "torch.rocm", "torch.xpu")
    held = place.predicted(
        UnsetVariables(("PYTHONPATH",)), again=lambda: place.look(place.login(), python=place.python), unlike=unread
    )
    assert {"python.python_path", "torch.version", "torch.wheel_cuda", "torch.folder"} <= set(held)


def test_login_shells_read_what_the_container_was_started_with(place: Place) -> None:
    root = place.folder / "root"
    (root / "proc/1").mkdir(parents=True)
    (root / "proc/1/environ").write_bytes(b"PATH=/usr/bin\0HF_HOME=/workspace/hf\0container=docker\0")
    (root / ".dockerenv").touch()
    (root / str(place.folder)[1:]).mkdir(parents=True)
    (root / str(place.home)[1:]).symlink_to(place.home)
    started = place.folder / "rp_environment"
    started.write_text("export HF_HOME=/workspace/hf\n")
    (place.home / ".profile").write_text("export EDITOR=vi\n")

    def in_a_login_shell() -> Looked:
        return look(place.login(), root=str(root))

    before = in_a_login_shell()
    assert before.facts.container.only_in_pid_1 == Known(("HF_HOME",), "/proc/1/environ")
    held = place.predicted(ReadEnvironment(str(started), ("HF_HOME",)), again=in_a_login_shell)
    assert held == ["container.only_in_pid_1"]
