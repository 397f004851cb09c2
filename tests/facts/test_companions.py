"""Which torch and which CUDA each companion was made for, from its files; compiled ones are built with gcc."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.companions import Companion, probe_companions, probe_nvidia_wheels
from firstlight.facts.distributions import InstalledFrom, Requirement
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import probe_environments
from firstlight.machine import Host, Machine
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode
from firstlight.versions import CudaVersion

HOST: Host = replace(LiveMachine().host, home="/home/maria", cwd="/home/maria", arch="x86_64", python_prefix="")
SITE = "/opt/venv/lib/python3.12/site-packages"


def _write(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def _install(root: Path, name: str, version: str, *requires: str) -> str:
    """An installed distribution; returns the folder of its record."""
    _write(root, "/opt/venv/pyvenv.cfg", "version_info = 3.12.3\n")
    record = f"{SITE}/{name}-{version}.dist-info"
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in requires)]
    _write(root, f"{record}/METADATA", "\n".join([*lines, "", "Text."]))
    return record


def _link(root: Path, path: str, *needed: str) -> None:
    """A real shared library at `path` that needs libraries of these names."""
    flags = ["-shared", "-nostdlib", "-xc", "/dev/null", "-xnone"]
    for name in needed:
        other = _write(root, f"/build/{name}")
        subprocess.run(["gcc", *flags, "-o", str(other), f"-Wl,-soname,{name}"], check=True)
    others = [str(root / "build" / name) for name in needed]
    subprocess.run(["gcc", *flags, "-o", str(_write(root, path)), "-Wl,--no-as-needed", *others], check=True)


def _machine(root: Path) -> LiveMachine:
    return LiveMachine(root=str(root), environ={"VIRTUAL_ENV": "/opt/venv"}, host=HOST)


def _probe(machine: Machine) -> dict[str, Companion]:
    return {each.name: each for each in probe_companions(machine, probe_environments(machine).environments[0])}


def _one(root: Path, name: str) -> Companion:
    return _probe(_machine(root))[name]


def test_torchvision_from_an_index_tells_its_cuda_in_its_own_version_file(tmp_path: Path) -> None:
    record = _install(tmp_path, "torchvision", "0.24.0", "numpy", "torch (==2.9.0)", "scipy ; extra == 'scipy'")
    _write(tmp_path, f"{SITE}/torchvision/version.py", "__version__ = '0.24.0+cu128'\ngit_version = 'unknown'\n")
    found = _one(tmp_path, "torchvision")
    assert found.version == "0.24.0"
    assert found.local_tag == Known("cu128", f"{SITE}/torchvision/version.py")
    assert found.torch_required == Known("==2.9.0", f"{record}/METADATA")
    assert found.built_for_torch == Known("2.9.0", f"{record}/METADATA")
    assert found.built_for_cuda == Known(CudaVersion(12, 8), f"{SITE}/torchvision/version.py")
    assert found.cuda_major == Known(12, f"{SITE}/torchvision/version.py")
    assert found.requires == (
        Requirement("numpy", (), "", "", "torchvision"),
        Requirement("torch", (), "==2.9.0", "", "torchvision"),
    )


@pytest.mark.parametrize(
    ("version", "torch", "cuda", "major"),
    [
        ("2.8.3+cu12torch2.8cxx11abiTRUE", "2.8", None, 12),
        ("2.8.3+cu130torch2.9", "2.9", CudaVersion(13, 0), 13),
        ("2.1.2+pt28cu128", "2.8", CudaVersion(12, 8), 12),
        ("2.1.2+pt210cu130", "2.10", CudaVersion(13, 0), 13),
        ("2.8.3+cu118", None, CudaVersion(11, 8), 11),
        ("2.8.3+cpu", None, None, None),
        ("2.8.3+git1cu2", None, None, None),
    ],
)
def test_local_versions_of_each_habit_are_understood(
    tmp_path: Path, version: str, torch: str | None, cuda: CudaVersion | None, major: int | None
) -> None:
    _install(tmp_path, "torch_scatter", version)
    found = _one(tmp_path, "torch-scatter")
    assert (found.built_for_torch.value if isinstance(found.built_for_torch, Known) else None) == torch
    assert (found.built_for_cuda.value if isinstance(found.built_for_cuda, Known) else None) == cuda
    assert (found.cuda_major.value if isinstance(found.cuda_major, Known) else None) == major


def test_a_flash_attention_wheel_installed_from_an_address_keeps_its_tag_and_not_the_address(tmp_path: Path) -> None:
    record = _install(tmp_path, "flash_attn", "2.8.3", "torch", "einops")
    name = "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    url = {"url": f"https://user:hunter2@files.corp/{name}", "archive_info": {}}
    _write(tmp_path, f"{record}/direct_url.json", json.dumps(url))
    recording = RecordingMachine(_machine(tmp_path))
    found = _probe(recording)["flash-attn"]
    assert found.local_tag == Known("cu12torch2.8cxx11abiTRUE", f"{record}/direct_url.json")
    assert found.built_for_torch == Known("2.8", f"{record}/direct_url.json")
    assert found.installed_from == Known(InstalledFrom.ARCHIVE, f"{record}/direct_url.json")
    assert "hunter2" not in str(recording.evidence)
    assert "corp" not in str(recording.evidence)


def test_xformers_writes_down_what_it_was_built_with(tmp_path: Path) -> None:
    _install(tmp_path, "xformers", "0.0.33", "torch==2.9.0")
    notes = f"{SITE}/xformers/cpp_lib.json"
    _write(tmp_path, notes, '{"version": {"cuda": 1300, "hip": null, "torch": "2.9.0+cu130"}, "env": {}}')
    found = _one(tmp_path, "xformers")
    assert found.built_for_torch == Known("2.9.0+cu130", notes)
    assert found.built_for_cuda == Known(CudaVersion(13, 0), notes)
    _write(tmp_path, notes, '{"version": {"cuda": 1208, "torch": "2.8.0+cu128"}}')
    assert _one(tmp_path, "xformers").built_for_cuda == Known(CudaVersion(12, 8), notes)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", '{"version": 3}', '{"version": {"cuda": "x"}}'])
def test_broken_notes_of_xformers_leave_the_requirement_to_tell(tmp_path: Path, text: str) -> None:
    record = _install(tmp_path, "xformers", "0.0.33", "torch==2.9.0")
    _write(tmp_path, f"{SITE}/xformers/cpp_lib.json", text)
    found = _one(tmp_path, "xformers")
    assert found.built_for_torch == Known("2.9.0", f"{record}/METADATA")
    assert isinstance(found.built_for_cuda, Unknown)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("vllm", "vllm/_C.abi3.so"),
        ("vllm", "vllm/_C_stable_libtorch.abi3.so"),
        ("flash_attn", "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"),
        ("torchaudio", "torchaudio/lib/libtorchaudio.so"),
        ("transformer_engine", "transformer_engine/wheel_lib/libtransformer_engine.so"),
    ],
)
def test_compiled_code_tells_the_major_of_the_cuda_runtime_it_needs(tmp_path: Path, name: str, file: str) -> None:
    _install(tmp_path, name, "1.0")
    _link(tmp_path, f"{SITE}/{file}", "libtorch.so", "libcudart.so.13")
    found = _one(tmp_path, name.replace("_", "-"))
    assert isinstance(found.cuda_major, Known)
    assert found.cuda_major.value == 13
    assert isinstance(found.built_for_cuda, Unknown)


def test_a_vendored_cuda_runtime_with_a_hash_in_its_name_counts(tmp_path: Path) -> None:
    _install(tmp_path, "torchvision", "0.24.0")
    _link(tmp_path, f"{SITE}/torchvision/_C.so", "libcudart.e8e8b82a.so.12")
    assert _one(tmp_path, "torchvision").cuda_major == Known(12, f"{SITE}/torchvision/_C.so")


def test_code_without_a_cuda_runtime_broken_code_and_no_code_each_give_a_reason(tmp_path: Path) -> None:
    _install(tmp_path, "torchvision", "0.24.0")
    assert _one(tmp_path, "torchvision").cuda_major == Unknown("no compiled file of torchvision was found")
    library = f"{SITE}/torchvision/_C.so"
    _link(tmp_path, library, "libtorch.so")
    reason = Unknown(f"{library} is not linked to a CUDA runtime, or could not be read")
    assert _one(tmp_path, "torchvision").cuda_major == reason
    _write(tmp_path, library, "\x7fELF")
    assert _one(tmp_path, "torchvision").cuda_major == reason


def test_names_that_carry_the_cuda_major_tell_it(tmp_path: Path) -> None:
    _install(tmp_path, "cupy_cuda12x", "13.4.0")
    _install(tmp_path, "jax_cuda13_plugin", "0.8.0")
    _install(tmp_path, "jax", "0.8.0")
    found = _probe(_machine(tmp_path))
    assert [
        getattr(found[name].cuda_major, "value", None) for name in ("cupy-cuda12x", "jax-cuda13-plugin", "jax")
    ] == [
        12,
        13,
        None,
    ]


def test_bitsandbytes_has_a_library_for_each_cuda(tmp_path: Path) -> None:
    _install(tmp_path, "bitsandbytes", "0.50.2", "torch<3,>=2.4")
    for name in ("cuda118", "cuda132", "cuda128_nocublaslt", "cpu", "rocm64", "cuda9"):
        _write(tmp_path, f"{SITE}/bitsandbytes/libbitsandbytes_{name}.so")
    found = _one(tmp_path, "bitsandbytes")
    assert found.cuda_choices == (CudaVersion(11, 8), CudaVersion(12, 8), CudaVersion(13, 2))
    assert isinstance(found.built_for_torch, Unknown)


def test_deepspeed_notes_its_build_and_a_pure_build_notes_nothing(tmp_path: Path) -> None:
    _install(tmp_path, "deepspeed", "0.18.2", "torch")
    notes = f"{SITE}/deepspeed/git_version_info_installed.py"
    _write(tmp_path, notes, "version='0.18.2'\ntorch_info={'version': '2.8', 'cuda_version': '12.8'}\n")
    found = _one(tmp_path, "deepspeed")
    assert found.built_for_torch == Known("2.8", notes)
    assert found.built_for_cuda == Known(CudaVersion(12, 8), notes)
    _write(tmp_path, notes, "torch_info={'version': '0.0', 'cuda_version': '0.0'}\n")
    found = _one(tmp_path, "deepspeed")
    assert isinstance(found.built_for_torch, Unknown)
    assert isinstance(found.built_for_cuda, Unknown)


def test_a_companion_without_metadata_is_still_told_with_the_reason(tmp_path: Path) -> None:
    _write(tmp_path, "/opt/venv/pyvenv.cfg", "version_info = 3.12.3\n")
    (tmp_path / f"{SITE}/vllm-0.11.0+cu129.dist-info".lstrip("/")).mkdir(parents=True)
    found = _one(tmp_path, "vllm")
    assert found.torch_required == Unknown(f"{SITE}/vllm-0.11.0+cu129.dist-info/METADATA: no such file")
    assert found.built_for_cuda == Known(CudaVersion(12, 9), f"{SITE}/vllm-0.11.0+cu129.dist-info")


def test_torch_numpy_and_nvidia_wheels_are_no_companions(tmp_path: Path) -> None:
    for name in ("torch", "numpy", "setuptools", "nvidia_cublas", "cuda_bindings", "nvpl_blas", "triton"):
        _install(tmp_path, name, "1.0")
    assert list(_probe(_machine(tmp_path))) == ["triton"]


def test_nvidia_wheels_tell_where_their_libraries_really_are(tmp_path: Path) -> None:
    for name, library in (
        ("nvidia_cudnn_cu13-9.19.0.56", "nvidia/cudnn/lib/libcudnn.so.9"),
        ("nvidia_cublas-13.1.0.3", "nvidia/cu13/lib/libcublas.so.13"),
        ("nvpl_blas-0.6.0", "nvpl/lib/libnvpl_blas_lp64_gomp.so.0"),
        ("nvidia_nccl_cu13-2.28.9", "nvidia/nccl/lib/libnccl.so.2"),
        ("cuda_toolkit-13.0.2", "cuda_toolkit/notes.txt"),
    ):
        _install(tmp_path, *name.split("-"))
        rows = f"nvidia/__init__.py,,\nnvidia/x/include/lib/y.h,,\n{library},sha256=abc,123\n"
        _write(tmp_path, f"{SITE}/{name}.dist-info/RECORD", rows)
        if "nccl" not in name:
            _write(tmp_path, f"{SITE}/{library}")
    _install(tmp_path, "nvidia_nvtx", "13.0.85")
    machine = _machine(tmp_path)
    wheels = probe_nvidia_wheels(machine, probe_environments(machine).environments[0])
    places = {each.name: each.library_folder for each in wheels}
    assert places == {
        "cuda-toolkit": Unknown(f"{SITE}/cuda_toolkit-13.0.2.dist-info/RECORD lists no shared library"),
        "nvidia-cublas": Known(f"{SITE}/nvidia/cu13/lib", f"{SITE}/nvidia_cublas-13.1.0.3.dist-info/RECORD"),
        "nvidia-cudnn-cu13": Known(f"{SITE}/nvidia/cudnn/lib", f"{SITE}/nvidia_cudnn_cu13-9.19.0.56.dist-info/RECORD"),
        "nvidia-nccl-cu13": Unknown(
            f"{SITE}/nvidia_nccl_cu13-2.28.9.dist-info/RECORD lists nvidia/nccl/lib/libnccl.so.2, which is not there"
        ),
        "nvidia-nvtx": Unknown(f"{SITE}/nvidia_nvtx-13.0.85.dist-info/RECORD: no such file"),
        "nvpl-blas": Known(f"{SITE}/nvpl/lib", f"{SITE}/nvpl_blas-0.6.0.dist-info/RECORD"),
    }


def test_a_recorded_machine_gives_the_same_companions_and_they_survive_json(tmp_path: Path) -> None:
    _install(tmp_path, "xformers", "0.0.33", "torch==2.9.0")
    _install(tmp_path, "vllm", "0.11.0", "torch==2.8.0", "xformers==0.0.32.post1; platform_system == 'Linux'")
    _link(tmp_path, f"{SITE}/vllm/_C.abi3.so", "libcudart.so.12")
    recording = RecordingMachine(_machine(tmp_path))
    live = _probe(recording)
    assert _probe(RecordedMachine(recording.evidence)) == live
    for each in live.values():
        assert decode(Companion, json.loads(json.dumps(encode(each))), "companion") == each
