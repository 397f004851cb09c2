"""Toolkits: found wherever they hide, told apart, and honest about what they lack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.known import Known, Unknown
from firstlight.facts.toolkits import Part, Toolkit, ToolkitFacts, defines, plain_path, probe_toolkits
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode
from firstlight.versions import CudaVersion

# The limits as 13.0 and 13.4 write them; the first clang limit is for another operating system.
HOST_CONFIG = """#if (__GRCO_CLANG_COMPILER__ == 1) && ((__clang_major__ < 16) || (__clang_major__ > 20))
#if __GNUC__ > 15
#error -- unsupported GNU version! gcc versions later than 15 are not supported!
#endif /* __GNUC__ > 15 */
#if defined(__HORIZON__)
#if (__clang_major__ >= 20) || (__clang_major__ < 3)
#error -- unsupported HOS clang version! The version must be must be less than 20 and greater than 3.2 .
#endif /* __HORIZON__  */
#if (__clang_major__ >= 21) || (__clang_major__ < 3)
#error -- unsupported clang version! clang version must be less than 21 and greater than 3.2 .
"""
NVCC_13 = (
    "#!/bin/sh\necho 'nvcc: NVIDIA (R) Cuda compiler driver'\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n"
)


def put(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def executable(root: Path, path: str, text: str = "\x7fELF") -> Path:
    file = put(root, path, text)
    file.chmod(0o755)
    return file


def full_toolkit(root: Path, path: str, *, nvcc: str = "\x7fELF") -> None:
    """A toolkit as the runfile installs it, with the files as links into targets/ left out."""
    executable(root, f"{path}/bin/nvcc", nvcc)
    executable(root, f"{path}/bin/ptxas")
    executable(root, f"{path}/nvvm/bin/cicc")
    put(root, f"{path}/nvvm/libdevice/libdevice.10.bc")
    put(root, f"{path}/include/crt/host_config.h", HOST_CONFIG)
    put(root, f"{path}/include/cuda_runtime.h")
    put(root, f"{path}/include/cuda.h", "#define CUDA_VERSION 13000\n")
    for name in ("libcudart.so", "libcudart_static.a", "libcudadevrt.a", "libnvrtc.so.13"):
        put(root, f"{path}/lib64/{name}")


def version_json(cuda: str, nvcc: str) -> str:
    return json.dumps({"cuda": {"name": "CUDA SDK", "version": cuda}, "cuda_nvcc": {"version": nvcc}})


def machine_of(root: Path, *, arch: str = "x86_64", **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ=environ, host=replace(LiveMachine().host, arch=arch))


def by_path(facts: ToolkitFacts) -> dict[str, Toolkit]:
    return {toolkit.path: toolkit for toolkit in facts.toolkits}


def reachable(tmp_path: Path, root: Path, name: str) -> Path:
    """A folder that has the same path inside the tree and outside it, so that its programs can really be run."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    link = root / str(folder).lstrip("/")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    return folder


def test_a_complete_toolkit_lacks_nothing_and_is_found_once_however_many_names_it_has(tmp_path: Path) -> None:
    full_toolkit(tmp_path, "/usr/local/cuda-13.0")
    put(tmp_path, "/usr/local/cuda-13.0/version.json", version_json("13.0.2", "13.0.88"))
    (tmp_path / "usr/local/cuda").symlink_to("cuda-13.0")
    facts = probe_toolkits(machine_of(tmp_path, CUDA_HOME="/usr/local/cuda", PATH="/usr/local/cuda/bin"))
    [toolkit] = facts.toolkits
    assert toolkit.path == "/usr/local/cuda-13.0"
    assert toolkit.found_by == ("CUDA_HOME", "PATH", "/usr/local/cuda", "/usr/local/cuda-13.0")
    assert toolkit.missing == ()
    assert toolkit.version == Known(CudaVersion(13, 0, 2), seen_in="/usr/local/cuda-13.0/version.json")
    assert toolkit.nvcc_version == Known(CudaVersion(13, 0, 88), seen_in="/usr/local/cuda-13.0/version.json")
    assert toolkit.gcc_max == Known(15, seen_in="/usr/local/cuda-13.0/include/crt/host_config.h")
    assert toolkit.clang_below == Known(21, seen_in="/usr/local/cuda-13.0/include/crt/host_config.h")
    assert facts.cuda_home == Known("/usr/local/cuda", seen_in="CUDA_HOME")
    assert isinstance(facts.nvcc_on_path, Known)
    assert not facts.nvcc_on_path.value.is_wrapper


def test_two_toolkits_side_by_side_are_two(tmp_path: Path) -> None:
    for release in ("12.4", "13.0"):
        full_toolkit(tmp_path, f"/usr/local/cuda-{release}")
        put(tmp_path, f"/usr/local/cuda-{release}/version.json", version_json(f"{release}.1", f"{release}.9"))
    found = by_path(probe_toolkits(machine_of(tmp_path)))
    assert [found[f"/usr/local/cuda-{release}"].version for release in ("12.4", "13.0")] == [
        Known(CudaVersion(12, 4, 1), seen_in="/usr/local/cuda-12.4/version.json"),
        Known(CudaVersion(13, 0, 1), seen_in="/usr/local/cuda-13.0/version.json"),
    ]


def test_without_version_json_nvcc_is_asked(tmp_path: Path) -> None:
    root = tmp_path / "root"
    home = reachable(tmp_path, root, "cuda")
    full_toolkit(home, "/", nvcc=NVCC_13)
    [toolkit] = probe_toolkits(machine_of(root, CUDA_HOME=str(home), PATH="/usr/bin:/bin")).toolkits
    assert toolkit.version == Known(CudaVersion(13, 0, 88), seen_in=f"{home}/bin/nvcc --version")
    assert toolkit.nvcc_version == toolkit.version


@pytest.mark.parametrize(
    "nvcc",
    ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho release 13.0\n", "#!/bin/sh\necho release 999.9, V999.9.9\n", "\x7fELF"],
)
def test_an_nvcc_that_does_not_answer_leaves_the_version_to_the_header(tmp_path: Path, nvcc: str) -> None:
    root = tmp_path / "root"
    home = reachable(tmp_path, root, "cuda")
    full_toolkit(home, "/", nvcc=nvcc)
    [toolkit] = probe_toolkits(machine_of(root, CUDA_HOME=str(home), PATH="/usr/bin:/bin")).toolkits
    assert isinstance(toolkit.nvcc_version, Unknown)
    assert toolkit.version == Known(CudaVersion(13, 0), seen_in=f"{home}/include/cuda.h")


def test_a_date_in_version_json_is_not_a_patch_number(tmp_path: Path) -> None:
    put(tmp_path, "/usr/local/cuda-12.1/version.json", version_json("12.1.20230222", "12.1.66"))
    [toolkit] = probe_toolkits(machine_of(tmp_path)).toolkits
    assert toolkit.version == Known(CudaVersion(12, 1), seen_in="/usr/local/cuda-12.1/version.json")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '{"cuda": 13}', '{"cuda": {"version": "new"}}'])
def test_an_absurd_version_json_is_passed_over(tmp_path: Path, text: str) -> None:
    full_toolkit(tmp_path, "/opt/cuda")
    put(tmp_path, "/opt/cuda/version.json", text)
    [toolkit] = probe_toolkits(machine_of(tmp_path)).toolkits
    assert toolkit.version == Known(CudaVersion(13, 0), seen_in="/opt/cuda/include/cuda.h")


def test_a_wrapper_on_path_leads_to_the_toolkit_it_starts(tmp_path: Path) -> None:
    full_toolkit(tmp_path, "/usr/local/cuda-13.0")
    for tool in ("nvcc", "ptxas"):
        executable(tmp_path, f"/usr/local/bin/{tool}", f'#!/bin/sh\nexec /usr/local/cuda-13.0/bin/{tool} "$@"\n')
    facts = probe_toolkits(machine_of(tmp_path, PATH="/usr/local/bin"))
    assert isinstance(facts.nvcc_on_path, Known)
    nvcc = facts.nvcc_on_path.value
    assert nvcc.is_wrapper
    assert nvcc.toolkit == Known("/usr/local/cuda-13.0", seen_in="/usr/local/bin/nvcc")
    assert [(each.path, each.found_by[0]) for each in facts.toolkits] == [("/usr/local/cuda-13.0", "PATH")]
    # torch goes two folders up from the wrapper and misses the toolkit
    assert facts.cpp_extension_home == Known("/usr/local", seen_in="nvcc on PATH")


@pytest.mark.parametrize("text", ["#!/bin/sh\nexec $CUDA/bin/nvcc\n", "#!/bin/sh\n\0\0/\0/bin/nvcc\n", "#!"])
def test_a_wrapper_that_names_no_path_says_so(tmp_path: Path, text: str) -> None:
    executable(tmp_path, "/usr/bin/nvcc", text)
    facts = probe_toolkits(machine_of(tmp_path, PATH="/usr/bin"))
    assert isinstance(facts.nvcc_on_path, Known)
    assert facts.nvcc_on_path.value.is_wrapper
    assert facts.nvcc_on_path.value.toolkit == Unknown("/usr/bin/nvcc is not a script that names an nvcc")


def test_a_script_inside_a_toolkit_is_no_wrapper(tmp_path: Path) -> None:
    full_toolkit(tmp_path, "/opt/conda", nvcc="#!/bin/sh\nexit 1\n")
    facts = probe_toolkits(machine_of(tmp_path, PATH="/opt/conda/bin", CONDA_PREFIX="/opt/conda"))
    assert isinstance(facts.nvcc_on_path, Known)
    assert not facts.nvcc_on_path.value.is_wrapper
    assert [each.found_by for each in facts.toolkits] == [("PATH", "CONDA_PREFIX")]


def test_ccache_in_front_of_nvcc_is_a_wrapper(tmp_path: Path) -> None:
    executable(tmp_path, "/usr/bin/ccache")
    (tmp_path / "usr/lib/ccache").mkdir(parents=True)
    (tmp_path / "usr/lib/ccache/nvcc").symlink_to("../../bin/ccache")
    facts = probe_toolkits(machine_of(tmp_path, PATH="/usr/lib/ccache"))
    assert isinstance(facts.nvcc_on_path, Known)
    assert facts.nvcc_on_path.value.is_wrapper
    assert facts.nvcc_on_path.value.real == "/usr/bin/ccache"


def test_the_wheel_toolkit_lacks_lib64_and_the_links_a_linker_wants(tmp_path: Path) -> None:
    site = "/venv/lib/python3.12/site-packages"
    home = f"{site}/nvidia/cu13"
    for name in ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc"):
        executable(tmp_path, f"{home}/{name}")
    put(tmp_path, f"{home}/nvvm/libdevice/libdevice.10.bc")
    put(tmp_path, f"{home}/include/crt/host_config.h", HOST_CONFIG)
    put(tmp_path, f"{home}/include/cuda_runtime.h")
    put(tmp_path, f"{home}/include/cuda.h", "#define CUDA_VERSION 13020\n")
    for name in ("libcudart.so.13", "libcudart_static.a", "libcudadevrt.a", "libnvrtc.so.13"):
        put(tmp_path, f"{home}/lib/{name}")
    [toolkit] = probe_toolkits(machine_of(tmp_path), site_packages=(site,)).toolkits
    assert toolkit.found_by == ("site-packages",)
    assert toolkit.missing == (Part.CUDART_LINK, Part.LIB64)
    assert toolkit.version == Known(CudaVersion(13, 2), seen_in=f"{home}/include/cuda.h")
    assert toolkit.library_folders == (f"{home}/lib",)


def test_the_cu12_wheel_has_ptxas_but_no_nvcc_and_ptxas_tells_its_version(tmp_path: Path) -> None:
    root = tmp_path / "root"
    site = reachable(tmp_path, root, "site-packages")
    home = f"{site}/nvidia/cuda_nvcc"
    executable(site, "/nvidia/cuda_nvcc/bin/ptxas", NVCC_13.replace("13.0, V13.0.88", "12.9, V12.9.86"))
    put(site, "/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc")
    put(site, "/nvidia/cuda_nvcc/include/crt/host_config.h", "#if __GNUC__ > 14\n")
    [toolkit] = probe_toolkits(machine_of(root, PATH="/usr/bin:/bin"), site_packages=(str(site),)).toolkits
    assert toolkit.has == (Part.PTXAS, Part.LIBDEVICE, Part.CRT_HEADERS)
    assert toolkit.version == Known(CudaVersion(12, 9, 86), seen_in=f"{home}/bin/ptxas --version")
    assert toolkit.nvcc_version == Unknown(f"no nvcc in {home}/bin")
    assert isinstance(toolkit.clang_below, Unknown)


def test_debians_package_takes_its_headers_and_libraries_from_usr(tmp_path: Path) -> None:
    home = "/usr/lib/nvidia-cuda-toolkit"
    for name in ("nvcc", "ptxas", "cicc"):
        executable(tmp_path, f"{home}/bin/{name}")
    put(tmp_path, f"{home}/libdevice/libdevice.10.bc")
    executable(tmp_path, "/usr/bin/nvcc", f'#!/bin/sh\n\nexec {home}/bin/nvcc "$@"\n')
    put(tmp_path, "/usr/include/crt/host_config.h", HOST_CONFIG)
    put(tmp_path, "/usr/include/cuda_runtime.h")
    put(tmp_path, "/usr/include/cuda.h", "#define CUDA_VERSION 12040\n")
    put(tmp_path, "/usr/lib/aarch64-linux-gnu/libcudart.so")
    facts = probe_toolkits(machine_of(tmp_path, arch="aarch64", PATH="/usr/bin"))
    [toolkit] = facts.toolkits
    assert toolkit.path == home
    assert toolkit.found_by == ("PATH", home)
    assert toolkit.version == Known(CudaVersion(12, 4), seen_in="/usr/include/cuda.h")
    assert {Part.CICC, Part.LIBDEVICE, Part.CRT_HEADERS, Part.CUDART_LINK} <= set(toolkit.has)


def test_two_folders_with_one_nvcc_are_one_toolkit(tmp_path: Path) -> None:
    full_toolkit(tmp_path, "/usr/lib/nvidia-cuda-toolkit")
    (tmp_path / "usr/lib/cuda").mkdir()
    (tmp_path / "usr/lib/cuda/bin").symlink_to("../nvidia-cuda-toolkit/bin")
    [toolkit] = probe_toolkits(machine_of(tmp_path)).toolkits
    assert toolkit.found_by == ("/usr/lib/nvidia-cuda-toolkit", "/usr/lib/cuda")


@pytest.mark.parametrize(
    ("arch", "target"), [("x86_64", "x86_64-linux"), ("aarch64", "sbsa-linux"), ("aarch64", "aarch64-linux")]
)
def test_headers_and_libraries_under_targets_count_on_their_own_processor(
    tmp_path: Path, arch: str, target: str
) -> None:
    put(tmp_path, f"/opt/conda/targets/{target}/include/crt/host_config.h", HOST_CONFIG)
    put(tmp_path, f"/opt/conda/targets/{target}/lib/libcudart.so")
    [toolkit] = probe_toolkits(machine_of(tmp_path, arch=arch, CONDA_PREFIX="/opt/conda")).toolkits
    assert toolkit.has == (Part.CRT_HEADERS, Part.CUDART, Part.CUDART_LINK)
    other = "x86_64" if arch == "aarch64" else "aarch64"
    assert probe_toolkits(machine_of(tmp_path, arch=other, CONDA_PREFIX="/opt/conda")).toolkits == ()


def test_the_hpc_sdk_has_a_toolkit_per_release(tmp_path: Path) -> None:
    for release in ("12.9", "13.0"):
        full_toolkit(tmp_path, f"/opt/nvidia/hpc_sdk/Linux_aarch64/25.9/cuda/{release}")
    facts = probe_toolkits(machine_of(tmp_path, arch="aarch64"))
    assert [each.path.rpartition("/")[2] for each in facts.toolkits] == ["12.9", "13.0"]
    assert {each.found_by for each in facts.toolkits} == {("HPC SDK",)}


def test_a_runtime_image_is_a_toolkit_without_a_compiler_and_its_library_names_the_version(tmp_path: Path) -> None:
    put(tmp_path, "/usr/local/cuda-13.0/lib64/libcudart.so.13.0.96")
    (tmp_path / "usr/local/cuda-13.0/lib64/libcudart.so.13").symlink_to("libcudart.so.13.0.96")
    [toolkit] = probe_toolkits(machine_of(tmp_path)).toolkits
    assert toolkit.has == (Part.CUDART, Part.LIB64)
    assert toolkit.version == Known(CudaVersion(13, 0, 96), seen_in="/usr/local/cuda-13.0/lib64/libcudart.so.13.0.96")


def test_a_folder_with_the_compat_package_alone_is_no_toolkit(tmp_path: Path) -> None:
    put(tmp_path, "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05")
    (tmp_path / "usr/local/cuda-13.0/lib64").mkdir()
    assert probe_toolkits(machine_of(tmp_path)).toolkits == ()


def test_a_cuda_home_that_leads_nowhere_is_reported_and_gives_no_toolkit(tmp_path: Path) -> None:
    facts = probe_toolkits(machine_of(tmp_path, CUDA_HOME="/usr/local/cuda-99"))
    assert facts.cuda_home == Known("/usr/local/cuda-99", seen_in="CUDA_HOME")
    assert facts.cpp_extension_home == Known("/usr/local/cuda-99", seen_in="CUDA_HOME")
    assert facts.toolkits == ()


def test_a_bare_machine_has_no_toolkit(tmp_path: Path) -> None:
    facts = probe_toolkits(machine_of(tmp_path, PATH="/usr/bin", CUDA_HOME="relative/cuda"))
    assert facts.toolkits == ()
    assert facts.nvcc_on_path == Unknown("no nvcc on PATH")
    assert isinstance(probe_toolkits(machine_of(tmp_path)).cpp_extension_home, Unknown)


@pytest.mark.parametrize("text", ["", "#if __GNUC__ > 99999999999\n", "\0" * 100, "#if __GNUC__ > x\n"])
def test_host_config_without_a_limit_gives_none(tmp_path: Path, text: str) -> None:
    full_toolkit(tmp_path, "/opt/cuda")
    put(tmp_path, "/opt/cuda/include/crt/host_config.h", text)
    [toolkit] = probe_toolkits(machine_of(tmp_path)).toolkits
    assert isinstance(toolkit.gcc_max, Unknown)


def test_defines_reads_numbers_only(tmp_path: Path) -> None:
    put(tmp_path, "/a.h", "#define A 1\n#  define B\t(2)\n#define C x\n#define AB 7\n#define A 9\n")
    assert defines(machine_of(tmp_path), "/a.h", "A", "B", "C") == {"A": 1, "B": 2}
    assert defines(machine_of(tmp_path), "/none.h", "A") == {}


@pytest.mark.parametrize(
    ("text", "path"),
    [("/a/../b/", "/b"), ("//usr//lib", "/usr/lib"), ("a/b", ""), ("/a\0b", ""), ("", ""), ("/" + "x" * 5000, "")],
)
def test_plain_path_keeps_what_can_be_asked_for(text: str, path: str) -> None:
    assert plain_path(text) == path


def test_this_machine_answers_and_the_answer_can_be_written_down_and_replayed() -> None:
    recording = RecordingMachine(LiveMachine())
    facts = probe_toolkits(recording)
    assert probe_toolkits(RecordedMachine(recording.evidence)) == facts
    assert decode(ToolkitFacts, json.loads(json.dumps(encode(facts))), "toolkits") == facts
