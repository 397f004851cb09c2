"""CUDA libraries on disk: every copy once, with its version and the kind of place it lies in."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.cuda_libraries import CudaLibraryFacts, FoundIn, probe_cuda_libraries
from firstlight.facts.known import Known, Unknown
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode

SITE = "/venv/lib/python3.12/site-packages"


def put(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def library(root: Path, folder: str, *names: str) -> None:
    """The last name is the file, the ones before are links to it."""
    real = put(root, f"{folder}/{names[-1]}")
    for name in names[:-1]:
        (real.parent / name).symlink_to(real.name)


def machine_of(root: Path, *, arch: str = "x86_64", **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ=environ, host=replace(LiveMachine().host, arch=arch))


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_a_system_library_carries_its_version_in_its_name(tmp_path: Path, arch: str) -> None:
    folder = f"/usr/lib/{arch}-linux-gnu"
    library(tmp_path, folder, "libcudnn.so", "libcudnn.so.9", "libcudnn.so.9.10.2")
    put(tmp_path, f"{folder}/libcudnn_graph.so.9")
    [cudnn] = probe_cuda_libraries(machine_of(tmp_path, arch=arch)).libraries
    assert (cudnn.name, cudnn.file, cudnn.path) == ("cudnn", "libcudnn.so.9", f"{folder}/libcudnn.so.9.10.2")
    assert cudnn.version == Known("9.10.2", seen_in=f"{folder}/libcudnn.so.9.10.2")
    assert cudnn.found_in is FoundIn.SYSTEM


@pytest.mark.parametrize(
    ("name", "folder", "file", "header", "text", "version"),
    [
        ("cudnn", "cudnn", "libcudnn.so.9", "cudnn_version.h",
         "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 13\n#define CUDNN_PATCHLEVEL 0\n"
         "#define CUDNN_VERSION (CUDNN_MAJOR * 10000)\n", "9.13.0"),
        ("nccl", "nccl", "libnccl.so.2", "nccl.h",
         "#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH 7\n", "2.27.7"),
        ("cublas", "cu13", "libcublas.so.13", "cublas_api.h",
         "#define CUBLAS_VER_MAJOR 13\n#define CUBLAS_VER_MINOR 0\n#define CUBLAS_VER_PATCH 2\n", "13.0.2"),
        ("cudart", "cu13", "libcudart.so.13", "cuda_runtime_api.h", "#define CUDART_VERSION  13020\n", "13.2"),
        ("cusparselt", "cusparselt", "libcusparseLt.so.0", "cusparseLt.h",
         "#define CUSPARSELT_VER_MAJOR 0\n#define CUSPARSELT_VER_MINOR 8\n#define CUSPARSELT_VER_PATCH 1\n", "0.8.1"),
        ("nvshmem", "nvshmem", "libnvshmem_host.so.3", "non_abi/nvshmem_version.h",
         "#define NVSHMEM_VENDOR_MAJOR_VERSION 3\n#define NVSHMEM_VENDOR_MINOR_VERSION 7\n"
         "#define NVSHMEM_VENDOR_PATCH_VERSION 2\n", "3.7.2"),
        ("cudss", "cu13", "libcudss.so.0", "cudss.h",
         "#define CUDSS_VERSION_MAJOR 0\n#define CUDSS_VERSION_MINOR 7\n#define CUDSS_VERSION_PATCH 1\n", "0.7.1"),
    ],
)  # fmt: skip
def test_a_wheels_library_is_dated_by_the_header_beside_it(
    tmp_path: Path, name: str, folder: str, file: str, header: str, text: str, version: str
) -> None:
    home = f"{SITE}/nvidia/{folder}"
    library(tmp_path, f"{home}/lib", file)
    put(tmp_path, f"{home}/include/{header}", text)
    facts = probe_cuda_libraries(machine_of(tmp_path), site_packages=(SITE,))
    [found] = facts.named(name)
    assert facts.libraries == (found,)
    assert found.file == file
    assert found.version == Known(version, seen_in=f"{home}/include/{header}")
    assert found.found_in is FoundIn.WHEEL


def test_a_soname_with_two_numbers_is_not_taken_for_a_version(tmp_path: Path) -> None:
    library(tmp_path, f"{SITE}/nvidia/cuda_runtime/lib", "libcudart.so.11.0")
    [cudart] = probe_cuda_libraries(machine_of(tmp_path), site_packages=(SITE,)).libraries
    assert isinstance(cudart.version, Unknown)


def test_a_toolkit_folder_on_ld_library_path_is_reported_as_that_and_once(tmp_path: Path) -> None:
    library(tmp_path, "/usr/local/cuda-13.0/lib64", "libcublas.so", "libcublas.so.13", "libcublas.so.13.0.2.14")
    (tmp_path / "usr/local/cuda").symlink_to("cuda-13.0")
    plain = probe_cuda_libraries(machine_of(tmp_path)).libraries
    assert [(each.found_in, each.path.count("cuda-13.0")) for each in plain] == [(FoundIn.TOOLKIT, 1)]
    named = probe_cuda_libraries(
        machine_of(tmp_path, LD_LIBRARY_PATH="/none::relative:/usr/local/cuda/bin/../lib64")
    ).libraries
    assert [each.found_in for each in named] == [FoundIn.LD_LIBRARY_PATH]
    assert named[0].version == Known("13.0.2.14", seen_in="/usr/local/cuda-13.0/lib64/libcublas.so.13.0.2.14")


def test_copies_in_system_conda_and_wheel_are_all_told(tmp_path: Path) -> None:
    library(tmp_path, "/usr/lib64", "libnccl.so.2", "libnccl.so.2.18.3")
    library(tmp_path, "/opt/conda/lib", "libnccl.so.2", "libnccl.so.2.21.5")
    library(tmp_path, f"{SITE}/nvidia/nccl/lib", "libnccl.so.2")
    machine = machine_of(tmp_path, CONDA_PREFIX="/opt/conda")
    found = probe_cuda_libraries(machine, site_packages=(SITE,)).named("nccl")
    assert [each.found_in for each in found] == [FoundIn.SYSTEM, FoundIn.CONDA, FoundIn.WHEEL]


def test_two_versions_in_one_folder_are_two_libraries(tmp_path: Path) -> None:
    library(tmp_path, "/usr/lib/x86_64-linux-gnu", "libcudnn.so.8", "libcudnn.so.8.9.7")
    library(tmp_path, "/usr/lib/x86_64-linux-gnu", "libcudnn.so", "libcudnn.so.9", "libcudnn.so.9.1.0")
    found = probe_cuda_libraries(machine_of(tmp_path)).named("cudnn")
    assert [each.file for each in found] == ["libcudnn.so.9", "libcudnn.so.8"]


def test_a_jetsons_toolkit_keeps_its_libraries_under_targets(tmp_path: Path) -> None:
    library(tmp_path, "/usr/local/cuda-12.6/targets/aarch64-linux/lib", "libcudart.so.12", "libcudart.so.12.6.68")
    [cudart] = probe_cuda_libraries(machine_of(tmp_path, arch="aarch64")).libraries
    assert cudart.found_in is FoundIn.TOOLKIT
    assert probe_cuda_libraries(machine_of(tmp_path, arch="x86_64")).libraries == ()


@pytest.mark.parametrize("text", ["", "#define CUDNN_MAJOR 9\n", "#define CUDNN_MAJOR nine\n", "\0" * 999])
def test_a_header_without_the_numbers_leaves_the_version_open(tmp_path: Path, text: str) -> None:
    library(tmp_path, f"{SITE}/nvidia/cudnn/lib", "libcudnn.so.9")
    put(tmp_path, f"{SITE}/nvidia/cudnn/include/cudnn_version.h", text)
    [cudnn] = probe_cuda_libraries(machine_of(tmp_path), site_packages=(SITE,)).libraries
    assert cudnn.version == Unknown("its version is neither in the file name nor in cudnn_version.h")


def test_dangling_links_and_look_alikes_are_not_libraries(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    os.symlink("libcudnn.so.9.1.0", folder / "libcudnn.so.9")
    for name in (
        "libcudart.so.bak",
        "libcublasLt.so.12",
        "libnccl-net.so",
        "libcudart.so.13.0.96.1.2",
        "libcudart_static.a",
    ):
        put(folder, name)
    assert probe_cuda_libraries(machine_of(tmp_path)) == CudaLibraryFacts(())


def test_the_answer_can_be_written_down_and_replayed(tmp_path: Path) -> None:
    library(tmp_path, "/usr/local/cuda-13.0/lib64", "libcudart.so", "libcudart.so.13", "libcudart.so.13.0.96")
    library(tmp_path, f"{SITE}/nvidia/nccl/lib", "libnccl.so.2")
    recording = RecordingMachine(machine_of(tmp_path, LD_LIBRARY_PATH="/usr/local/cuda-13.0/lib64"))
    facts = probe_cuda_libraries(recording, site_packages=(SITE,))
    assert len(facts.libraries) == 2
    assert probe_cuda_libraries(RecordedMachine(recording.evidence), site_packages=(SITE,)) == facts
    assert decode(CudaLibraryFacts, json.loads(json.dumps(encode(facts))), "libraries") == facts
