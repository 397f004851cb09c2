"""What an installed torch is, from its files alone; pip, gcc and packaging are the referees."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.markers import Marker

from firstlight.facts.companions import probe_companions
from firstlight.facts.distributions import InstalledFrom, Requirement, evaluate_marker, requirements
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.python_environments import probe_environments
from firstlight.facts.torch_install import TorchBuild, TorchChannel, TorchInstall, probe_torch
from firstlight.machine import Host, Machine
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode
from firstlight.versions import CudaVersion, TorchVersion
from tests.environments import environment_with_pip

HOST: Host = replace(LiveMachine().host, home="/home/maria", cwd="/home/maria/app", arch="x86_64", python_prefix="")
SITE = "/opt/venv/lib/python3.12/site-packages"
TORCH = f"{SITE}/torch"
RECORD = f"{SITE}/torch-2.11.0.dist-info"
VERSION_FILE = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda}
git_version = '70d99e998b4955e0049d13a98d77ae1b14db1f45'
hip: Optional[str] = {hip}
xpu: Optional[str] = None
"""
METADATA = """Metadata-Version: 2.4
Name: torch
Version: 2.11.0
Requires-Dist: filelock
Requires-Dist: cuda-toolkit[cudart,cublas]==13.0.2; platform_system == "Linux"
Requires-Dist: nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"
Requires-Dist: nvidia-nccl-cu12==2.27.5; platform_machine == "aarch64"
Requires-Dist: triton==3.6.0; platform_system == "Linux" and nvidia_driver >= "580"
Requires-Dist: opt-einsum>=3.3; extra == "opt-einsum"

Requires-Dist: nvidia-from-the-description==1
"""
TOOLKIT = """Name: cuda-toolkit
Requires-Dist: nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux' or sys_platform == 'win32') and extra == 'all'
Requires-Dist: nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux' or sys_platform == 'win32') and extra == 'cublas'
Requires-Dist: nvidia-cufft==12.0.0.61.*; (sys_platform == 'linux') and extra == 'cufft'
"""


def _write(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def _compile(root: Path, path: str, source: str, *flags: str) -> None:
    """A real shared library at `path`."""
    file = _write(root, path)
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-xc", "-", "-xnone", "-o", str(file), *flags],
        input=source,
        text=True,
        check=True,
    )


def _install(root: Path, *, version: str = "2.11.0+cu130", cuda: str = "'13.0'", hip: str = "None") -> None:
    _write(root, "/opt/venv/pyvenv.cfg", "home = /usr/bin\nversion_info = 3.12.3\n")
    _write(root, f"{TORCH}/__init__.py")
    _write(root, f"{TORCH}/version.py", VERSION_FILE.format(version=version, cuda=cuda, hip=hip))
    _write(root, f"{RECORD}/METADATA", METADATA)
    _write(root, f"{RECORD}/WHEEL", "Wheel-Version: 1.0\nTag: cp312-cp312-manylinux_2_28_x86_64\n")
    _write(root, f"{RECORD}/INSTALLER", "uv\n")


def _machine(root: Path, host: Host = HOST, **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ={"VIRTUAL_ENV": "/opt/venv", **environ}, host=host)


def _probe(machine: Machine) -> Fact[TorchInstall]:
    return probe_torch(machine, probe_environments(machine).environments[0])


def _found(root: Path, host: Host = HOST, **environ: str) -> TorchInstall:
    fact = _probe(_machine(root, host, **environ))
    assert isinstance(fact, Known), fact
    return fact.value


def test_a_cuda_wheel_tells_version_cuda_pins_and_origin(tmp_path: Path) -> None:
    _install(tmp_path)
    _write(tmp_path, f"{SITE}/cuda_toolkit-13.0.2.dist-info/METADATA", TOOLKIT)
    torch = _found(tmp_path)
    assert torch.folder == TORCH
    assert torch.found_via == "site-packages"
    assert torch.version == Known(TorchVersion.parse("2.11.0+cu130"), f"{TORCH}/version.py")
    assert torch.recorded_version == Known("2.11.0", RECORD)
    assert torch.channel == Known(TorchChannel.RELEASE, f"{TORCH}/version.py")
    assert torch.build == Known(TorchBuild.CUDA, f"{TORCH}/version.py")
    assert torch.wheel_cuda == Known(CudaVersion(13, 0), f"{TORCH}/version.py")
    assert torch.rocm == Unknown(f"{TORCH}/version.py names no hip")
    assert torch.commit == Known("70d99e998b4955e0049d13a98d77ae1b14db1f45", f"{TORCH}/version.py")
    assert torch.wheel_tags == Known(("cp312-cp312-manylinux_2_28_x86_64",), f"{RECORD}/WHEEL")
    assert torch.installer == Known("uv", f"{RECORD}/INSTALLER")
    assert torch.installed_from == Known(InstalledFrom.INDEX, f"no {RECORD}/direct_url.json")
    assert torch.requires == Known(
        (
            Requirement("cuda-toolkit", ("cublas", "cudart"), "==13.0.2", "", "torch"),
            Requirement("nvidia-cudnn-cu13", (), "==9.19.0.56", "", "torch"),
            Requirement("triton", (), "==3.6.0", 'platform_system == "Linux" and nvidia_driver >= "580"', "torch"),
            Requirement("nvidia-cublas", (), "==13.1.0.3.*", "", "cuda-toolkit"),
        ),
        f"{RECORD}/METADATA",
    )


def test_pins_are_those_of_the_machines_own_arch(tmp_path: Path) -> None:
    _install(tmp_path)
    torch = _found(tmp_path, replace(HOST, arch="aarch64"))
    assert isinstance(torch.requires, Known)
    assert Requirement("nvidia-nccl-cu12", (), "==2.27.5", "", "torch") in torch.requires.value


def test_metadata_with_crlf_ends_at_its_blank_line_too(tmp_path: Path) -> None:
    _install(tmp_path)
    _write(tmp_path, f"{RECORD}/METADATA").write_bytes(METADATA.replace("\n", "\r\n").encode())
    torch = _found(tmp_path)
    assert isinstance(torch.requires, Known)
    assert [each.name for each in torch.requires.value] == ["cuda-toolkit", "nvidia-cudnn-cu13", "triton"]


@pytest.mark.parametrize(
    ("version", "channel"),
    [
        ("2.9.0", TorchChannel.RELEASE),
        ("2.7.1+cu128", TorchChannel.RELEASE),
        ("2.9.0rc5+cu130", TorchChannel.CANDIDATE),
        ("2.10.0.dev20251015+cu130", TorchChannel.NIGHTLY),
        ("2.10.0a0+gitab12cd3", TorchChannel.SOURCE),
        ("2.8.0a0+5228986c39.nv25.06", TorchChannel.NVIDIA),
        ("2.5.0a0+872d972e41.nv24.08", TorchChannel.NVIDIA),
    ],
)
def test_the_version_tells_the_channel(tmp_path: Path, version: str, channel: TorchChannel) -> None:
    _install(tmp_path, version=version)
    assert _found(tmp_path).channel == Known(channel, f"{TORCH}/version.py")


def test_a_cpu_build_says_so_and_its_libraries_are_not_searched(tmp_path: Path) -> None:
    _install(tmp_path, version="2.13.0+cpu", cuda="None")
    _compile(tmp_path, f"{TORCH}/lib/libtorch_python.so", 'const char flags[] = "sm_90";\n')
    torch = _found(tmp_path)
    assert torch.build == Known(TorchBuild.CPU, f"{TORCH}/version.py")
    assert torch.wheel_cuda == Unknown(f"CPU-only build: {TORCH}/version.py says cuda = None")
    assert torch.compiled_for == Unknown("not searched: a cpu build has no CUDA architectures")


def test_a_rocm_build_is_told_apart_from_a_cpu_build(tmp_path: Path) -> None:
    _install(tmp_path, version="2.9.0+rocm6.4", cuda="None", hip="'6.4.43482-0f2d60242'")
    torch = _found(tmp_path)
    assert torch.build == Known(TorchBuild.ROCM, f"{TORCH}/version.py")
    assert torch.rocm == Known("6.4.43482-0f2d60242", f"{TORCH}/version.py")
    assert isinstance(torch.wheel_cuda, Unknown)


@pytest.mark.parametrize(
    "flags", ["sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", "sm_90a", "sm_50 sm_120 compute_120", "sm_87 sm_101f"]
)
def test_the_architectures_are_read_from_a_real_library(tmp_path: Path, flags: str) -> None:
    _install(tmp_path)
    _compile(
        tmp_path,
        f"{TORCH}/lib/libtorch_python.so",
        'const char *const noise[] = {"sm_", "--gpu-architecture=sm_ 90", "sm_9 sm_", "sm_35 or newer"};\n'
        f'const char padding[70000] = {{1}}; const char *const flags = "{flags}";\n',
    )
    assert _found(tmp_path).compiled_for == Known(tuple(flags.split()), f"{TORCH}/lib/libtorch_python.so")


def test_a_library_without_architectures_a_missing_and_an_empty_one_each_give_a_reason(tmp_path: Path) -> None:
    _install(tmp_path)
    path = f"{TORCH}/lib/libtorch_python.so"
    assert _found(tmp_path).compiled_for == Unknown(f"{path}: no such file")
    _write(tmp_path, path, "no such list")
    assert _found(tmp_path).compiled_for == Unknown(f"{path} holds no list of architectures")
    _write(tmp_path, path).unlink()
    os.mkfifo(f"{tmp_path}{path}")
    assert _found(tmp_path).compiled_for == Unknown(f"{path} was not searched: other of 0 bytes")


def test_what_torchs_libraries_ask_of_the_loader_is_read_with_the_tag_it_is_in(tmp_path: Path) -> None:
    _install(tmp_path)
    _compile(tmp_path, "/build/libcudart.so.13", "int cudart;\n", "-Wl,-soname,libcudart.so.13")
    linked = ("-Wl,--no-as-needed", f"{tmp_path}/build/libcudart.so.13")
    rpath = "-Wl,-rpath,$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"
    _compile(tmp_path, f"{TORCH}/lib/libc10_cuda.so", "", *linked, "-Wl,--disable-new-dtags", rpath)
    _compile(tmp_path, f"{TORCH}/lib/libtorch_cpu.so", "", *linked, "-Wl,--enable-new-dtags", rpath)
    _compile(tmp_path, f"{TORCH}/_C.cpython-312-x86_64-linux-gnu.so", "")
    cut = _write(tmp_path, f"{TORCH}/lib/libtorch_cuda.so")
    cut.write_bytes(b"")
    torch = _found(tmp_path)
    search = ("$ORIGIN/../../nvidia/cu13/lib", "$ORIGIN")
    assert [(os.path.basename(each.file), each.needed, each.rpath, each.runpath) for each in torch.libraries] == [
        ("_C.cpython-312-x86_64-linux-gnu.so", (), (), ()),
        ("libtorch_cpu.so", ("libcudart.so.13",), (), search),
        ("libc10_cuda.so", ("libcudart.so.13",), search, ()),
    ]
    assert torch.unreadable_libraries == (f"{TORCH}/lib/libtorch_cuda.so",)


def test_no_torch_a_record_without_files_and_a_folder_left_behind_are_three_different_answers(tmp_path: Path) -> None:
    _write(tmp_path, "/opt/venv/pyvenv.cfg", "version_info = 3.12.3\n")
    (tmp_path / SITE.lstrip("/")).mkdir(parents=True)
    assert _probe(_machine(tmp_path)) == Unknown("torch is not installed in /opt/venv")
    _write(tmp_path, f"{TORCH}/lib/libleft_behind.so")
    assert _probe(_machine(tmp_path)) == Unknown("torch is not installed in /opt/venv")
    _write(tmp_path, f"{RECORD}/METADATA", METADATA)
    assert _probe(_machine(tmp_path)) == Unknown(f"{RECORD} is there, but no torch package that belongs to it")


def test_files_that_do_not_say_what_they_should_are_unknown_with_a_reason(tmp_path: Path) -> None:
    _install(tmp_path, version="banana", cuda="'thirteen'")
    torch = _found(tmp_path)
    assert isinstance(torch.version, Unknown)
    assert "'banana' is not a torch version" in torch.version.reason
    assert isinstance(torch.wheel_cuda, Unknown)
    assert "'thirteen' is not a CUDA version" in torch.wheel_cuda.reason
    (tmp_path / f"{TORCH}/version.py".lstrip("/")).unlink()
    (tmp_path / f"{TORCH}/version.py".lstrip("/")).mkdir()
    for name in ("METADATA", "WHEEL", "INSTALLER"):
        (tmp_path / f"{RECORD}/{name}".lstrip("/")).unlink()
    torch = _found(tmp_path)
    assert torch.version == Known(TorchVersion.parse("2.11.0"), RECORD)
    assert torch.build == Unknown(f"{TORCH}/version.py (is a folder) does not say what it was built for")
    assert torch.requires == Unknown(f"{RECORD}/METADATA: no such file")
    assert torch.wheel_tags == Unknown(f"{RECORD}/WHEEL: no such file")
    assert torch.installer == Unknown(f"{RECORD}/INSTALLER: no such file")


def test_a_torch_on_pythonpath_comes_before_the_installed_one(tmp_path: Path) -> None:
    _install(tmp_path)
    _write(tmp_path, "/shared/lib/torch/__init__.py")
    _write(tmp_path, "/shared/lib/torch/version.py", VERSION_FILE.format(version="2.4.0", cuda="'12.1'", hip="None"))
    torch = _found(tmp_path, PYTHONPATH="/nowhere:/shared/lib")
    assert (torch.folder, torch.found_via) == ("/shared/lib/torch", "PYTHONPATH")
    assert torch.recorded_version == Unknown("no record of torch beside /shared/lib/torch")


def test_a_torch_folder_in_the_current_folder_shadows_and_a_folder_that_is_no_package_does_not(tmp_path: Path) -> None:
    _install(tmp_path)
    (tmp_path / "home/maria/app/torch").mkdir(parents=True)
    assert _found(tmp_path).shadowed_by == ()
    _write(tmp_path, "/home/maria/app/torch/__init__.py")
    assert _found(tmp_path).shadowed_by == ("/home/maria/app/torch/__init__.py",)


@pytest.mark.parametrize("way", ["editable install", "egg-link"])
def test_a_checkout_is_followed_from_the_environment_and_its_address_is_not_kept(tmp_path: Path, way: str) -> None:
    _write(tmp_path, "/opt/venv/pyvenv.cfg", "version_info = 3.12.3\n")
    _write(tmp_path, "/home/maria/my pytorch/torch/__init__.py")
    version = VERSION_FILE.format(version="2.12.0a0+gitab12cd3", cuda="'13.1'", hip="None")
    _write(tmp_path, "/home/maria/my pytorch/torch/version.py", version)
    if way == "egg-link":
        _write(tmp_path, f"{SITE}/torch.egg-link", "/home/maria/my pytorch\n.")
    else:
        url = {"url": "file:///home/maria/my%20pytorch", "dir_info": {"editable": True}}
        _write(tmp_path, f"{SITE}/torch-2.12.0a0+gitab12cd3.dist-info/direct_url.json", json.dumps(url))
    torch = _found(tmp_path)
    assert (torch.folder, torch.found_via) == ("/home/maria/my pytorch/torch", way)
    assert torch.wheel_cuda == Known(CudaVersion(13, 1), "/home/maria/my pytorch/torch/version.py")
    if way == "editable install":
        assert isinstance(torch.installed_from, Known)
        assert torch.installed_from.value is InstalledFrom.EDITABLE


def test_a_recorded_machine_gives_the_same_torch_and_it_survives_json(tmp_path: Path) -> None:
    _install(tmp_path)
    _compile(tmp_path, f"{TORCH}/lib/libtorch_python.so", 'const char *const flags = "sm_90 compute_90";\n')
    recording = RecordingMachine(_machine(tmp_path))
    live = _probe(recording)
    assert _probe(RecordedMachine(recording.evidence)) == live
    assert isinstance(live, Known)
    assert decode(TorchInstall, json.loads(json.dumps(encode(live.value))), "torch") == live.value


def _wheel(folder: Path, name: str, *, version: str, requires: tuple[str, ...], files: dict[str, str]) -> None:
    """A wheel file written by hand, as an installer accepts it."""
    record = f"{name}-{version}.dist-info"
    headers = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in requires)]
    content = {
        **files,
        f"{record}/METADATA": "\n".join(["Metadata-Version: 2.1", *headers, "", "About it.", ""]),
        f"{record}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}")
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
        archive.writestr(f"{record}/RECORD", "\n".join([*rows, f"{record}/RECORD,,", ""]))


def test_what_real_pip_installs_is_read_back(tmp_path: Path) -> None:
    said = VERSION_FILE.format(version="2.9.0+cu128", cuda="'12.8'", hip="None")
    _wheel(
        tmp_path,
        "torch",
        version="2.9.0",
        requires=(f'triton==3.5.0; platform_machine == "{HOST.arch}" and extra == "x"', "triton; python_version<'3'"),
        files={"torch/__init__.py": "raise SystemExit('imported')\n", "torch/version.py": said},
    )
    _wheel(
        tmp_path,
        "torchvision",
        version="0.23.0+cu126",
        requires=("torch (==2.9.0)",),
        files={"torchvision/__init__.py": ""},
    )
    venv = tmp_path / "venv"
    environment_with_pip(venv)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    pip = [str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
    direct = tmp_path / "torchvision-0.23.0+cu126-py3-none-any.whl"
    subprocess.run([*pip, "--find-links", str(tmp_path), "torch", str(direct)], check=True, env=environ)
    host = replace(LiveMachine().host, home=str(tmp_path), cwd=str(tmp_path), python_prefix="")
    machine = LiveMachine(environ={"VIRTUAL_ENV": str(venv)}, host=host)
    facts = probe_environments(machine)
    fact = probe_torch(machine, facts.environments[0])
    assert isinstance(fact, Known), fact
    torch = fact.value
    assert torch.version == Known(TorchVersion.parse("2.9.0+cu128"), f"{torch.folder}/version.py")
    assert isinstance(torch.installer, Known)
    assert torch.installer.value == "pip"
    assert isinstance(torch.requires, Known)
    assert torch.requires.value == ()
    assert isinstance(torch.installed_from, Known)
    assert torch.installed_from.value is InstalledFrom.INDEX
    [vision] = [each for each in probe_companions(machine, facts.environments[0]) if each.name == "torchvision"]
    assert vision.version == "0.23.0+cu126"
    assert isinstance(vision.torch_required, Known)
    assert vision.torch_required.value == "==2.9.0"
    assert isinstance(vision.installed_from, Known)
    assert vision.installed_from.value is InstalledFrom.ARCHIVE


MARKERS = (
    'platform_system == "Linux"',
    "platform_system == 'Linux' and platform_machine == 'x86_64'",
    'platform_machine != "x86_64"',
    '"x86" in platform_machine',
    'platform_machine not in "x86_64 aarch64"',
    'python_version < "3.13"',
    'python_version >= "3.9" and python_version < "3.12"',
    'python_full_version >= "3.12.4"',
    '"3.10" <= python_version',
    'sys_platform == "win32" or (os_name == "posix" and platform_machine == "x86_64")',
    '(sys_platform == "win32" or os_name == "posix") and platform_python_implementation != "PyPy"',
    'extra == "dev"',
    'extra == "dev" or platform_system == "Linux"',
    "(sys_platform == 'linux') and extra == 'all'",
    'implementation_name == "cpython"',
)


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("extra", ["", "all"])
def test_markers_mean_what_packaging_says(marker: str, arch: str, extra: str) -> None:
    environment = {
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": arch,
        "python_version": "3.12",
        "python_full_version": "3.12.3",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": extra,
    }
    ours = evaluate_marker(marker, arch=arch, python="3.12.3", extras=(extra,) if extra else ())
    assert ours is Marker(marker).evaluate(environment)


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ('nvidia_driver >= "580"', None),
        ('nvidia_driver >= "580" and platform_system == "Windows"', False),
        ('nvidia_driver >= "580" or platform_system == "Linux"', True),
        ('platform_release >= "6" and platform_system == "Linux"', None),
        ("((((((((", None),
        ("(" * 900, None),
        ('os_name == "posix" and ' * 100, None),
        ('platform_system == "Linux', None),
        ('platform_system == "Linux")', None),
        ('platform_system == "Linux" and', None),
        ("platform_system", None),
        ('python_version ~= "3.9"', None),
        ("$(reboot)", None),
        ("", None),
    ],
)
def test_a_marker_that_cannot_be_decided_is_none_unless_the_rest_decides(marker: str, expected: object) -> None:
    assert evaluate_marker(marker, arch="x86_64", python="3.12.3") is expected


def test_requirement_lines_of_every_age_are_read_and_absurd_ones_passed_over() -> None:
    lines = (
        "Requires-Dist: torch (==2.9.0)",
        "requires-dist: Flash_Attn [extra-b, a] >= 2.8 , < 3",
        "Requires-Dist: vllm @ https://example.invalid/vllm.whl ; python_version > '3'",
        "Requires-Dist: ;;;",
        f"Requires-Dist: {'x' * 5000}",
        "Requires-Python: >=3.10",
    )
    found = requirements(lines, asked_by="app", arch="x86_64", python="3.12.3")
    assert [(each.name, each.extras, each.specifier) for each in found] == [
        ("torch", (), "==2.9.0"),
        ("flash-attn", ("a", "extra-b"), ">=2.8,<3"),
        ("vllm", (), ""),
    ]
