"""What the tables answer, above all where common wisdom is wrong."""

from __future__ import annotations

import datetime
import subprocess
import sys

import pytest

from firstlight.errors import BadInput
from firstlight.tables import CompatVerdict, load
from firstlight.tables.compat_rows import CompatEvidence
from firstlight.tables.gpu_rows import GpuKind, OpenModule, Runs
from firstlight.tables.row import Confidence, Pin
from firstlight.tables.torch_rows import IndexChannel, VariantStatus
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion

TABLES = load()
CUDA = CudaVersion.parse
DRIVER = DriverVersion.parse
CC = ComputeCapability.parse
TORCH = TorchVersion.parse


# CUDA and drivers


def test_the_floor_of_cuda_13_is_the_first_580_driver_and_not_580_95_05() -> None:
    major = TABLES.cuda_major(13)
    assert major is not None
    assert major.min_driver_same_major == DRIVER("580.65.06")
    assert major.min_driver_same_major < DRIVER("580.82.07") < DRIVER("580.95.05")
    shipped = TABLES.cuda_runfile(CUDA("13.0.2"))
    assert shipped is not None
    assert shipped.driver_shipped_with == DRIVER("580.95.05")


def test_cuda_12_8_is_paired_with_570_26_ships_570_86_10_and_runs_from_525_60_13() -> None:
    release, runfile, major = (
        TABLES.cuda_release(CUDA("12.8")),
        TABLES.cuda_runfile(CUDA("12.8.0")),
        TABLES.cuda_major(12),
    )
    assert release is not None
    assert runfile is not None
    assert major is not None
    assert str(release.driver_in_release_notes) == "570.26"
    assert str(runfile.driver_shipped_with) == "570.86.10"
    assert str(major.min_driver_same_major) == "525.60.13"


def test_driver_550_is_the_cuda_12_4_branch() -> None:
    assert TABLES.native_cuda(DRIVER("550.54.15")) == CUDA("12.4")


def test_565_reports_a_cuda_that_had_no_toolkit_and_says_it_is_second_hand() -> None:
    row = TABLES.branch(565)
    assert row is not None
    assert str(row.native_cuda) == "12.7"
    assert row.confidence is Confidence.REPORTED
    assert TABLES.cuda_release(CUDA("12.7")) is None


def test_13_4_bundles_no_driver() -> None:
    runfile = TABLES.cuda_runfile(CUDA("13.4.1"))
    assert runfile is not None
    assert runfile.driver_shipped_with is None


def test_a_toolkit_without_a_third_number_is_its_ga_and_11_5_speaks_for_every_update() -> None:
    ga, rc, any_update = (TABLES.cuda_release(CUDA(text)) for text in ("11.0", "11.0.1", "11.5.2"))
    assert ga is not None
    assert rc is not None
    assert any_update is not None
    assert (ga.label, rc.label, any_update.label) == ("11.0 GA", "11.0 RC", "11.5, every update")


def test_the_oldest_driver_is_that_of_the_major_and_before_cuda_11_that_of_the_release() -> None:
    oldest = {text: str(TABLES.oldest_driver(CUDA(text))) for text in ("13.2", "12.8", "11.8", "10.2", "9.0", "14.0")}
    assert oldest == {
        "13.2": "580.65.06", "12.8": "525.60.13", "11.8": "450.80.02",
        "10.2": "440.33", "9.0": "384.81", "14.0": "None",
    }  # fmt: skip


def test_what_is_not_known_is_none() -> None:
    assert TABLES.cuda_major(14) is None
    assert TABLES.branch(999) is None
    assert TABLES.native_cuda(DRIVER("999.1")) is None
    assert TABLES.cuda_release(CUDA("13.0")) is None
    assert TABLES.branch_of(CUDA("14.0")) is None
    assert TABLES.branch_life(570) is None
    assert TABLES.architecture_limit("Hopper") is None
    assert TABLES.compat_package(CUDA("12.7")) is None
    assert TABLES.gpu_named("AMD Instinct MI300X") is None
    assert TABLES.capability(CC("8.8")) is None
    assert TABLES.torch_release("2.99.0") is None
    assert TABLES.torch_variants(TORCH("3.0.0")) == ()
    assert TABLES.error(12345) is None
    assert TABLES.tegra_release("34.1") is None
    assert TABLES.jetpack("40.0.0") is None
    assert TABLES.toolkit_wheel(CUDA("13.9")) is None
    assert TABLES.wheels_with("libnothing.so.1", machine="x86_64") == ()


def test_580_is_long_term_until_june_2028_and_the_end_of_volta() -> None:
    life, end = TABLES.branch_life(580), TABLES.architecture_limit("Volta")
    assert life is not None
    assert end is not None
    assert life.supported_until == "2028-06"
    assert (end.last_driver_branch, end.last_cuda_major) == (580, 12)


# Forward compatibility


@pytest.mark.parametrize(
    ("cuda", "branch", "verdict"),
    [
        ("13.0", 570, CompatVerdict.ACCEPTS),
        ("13.0", 535, CompatVerdict.ACCEPTS),
        ("13.0", 550, CompatVerdict.ACCEPTS),
        ("13.1", 550, CompatVerdict.ACCEPTS),
        ("13.2", 550, CompatVerdict.NOT_LISTED),
        ("13.4", 550, CompatVerdict.NOT_LISTED),
        ("13.0", 580, CompatVerdict.SAME_RELEASE),
        ("13.0", 590, CompatVerdict.REFUSES),
        ("12.9", 580, CompatVerdict.REFUSES),
        ("13.0", 560, CompatVerdict.NOT_LISTED),
        ("12.9", 560, CompatVerdict.ACCEPTS),
        ("13.9", 535, CompatVerdict.NOT_LISTED),
    ],
)
def test_whether_a_compat_package_takes_a_kernel_branch(cuda: str, branch: int, verdict: CompatVerdict) -> None:
    assert TABLES.accepts_kernel_branch(CUDA(cuda), branch).verdict is verdict


def test_550_with_13_0_rests_on_the_librarys_own_note_as_nvidias_table_leaves_it_out() -> None:
    answer = TABLES.accepts_kernel_branch(CUDA("13.0"), 550)
    assert [row.evidence for row in answer.rows] == [CompatEvidence.ELF_NOTE]
    assert answer.rows[0].library == "libcuda.so.580.95.05"
    both = TABLES.accepts_kernel_branch(CUDA("13.0"), 570)
    assert [row.evidence for row in both.rows] == [CompatEvidence.ELF_NOTE, CompatEvidence.NVIDIA_TABLE]


def test_the_packages_for_a_branch_come_newest_first_and_550_stops_at_13_1() -> None:
    assert [str(row.cuda) for row in TABLES.compat_packages_for(550)] == ["13.1", "13.0", "12.9"]
    assert [row.package for row in TABLES.compat_packages_for(570)][:2] == ["cuda-compat-13-4", "cuda-compat-13-3"]
    assert TABLES.compat_packages_for(615) == ()


def test_a_package_row_or_a_full_cuda_version_asks_the_same_question() -> None:
    package = TABLES.compat_package(CUDA("13.0.2"))
    assert package is not None
    assert package.folder == "/usr/local/cuda-13.0/compat"
    assert TABLES.accepts_kernel_branch(package, 550) == TABLES.accepts_kernel_branch(CUDA("13.0.2"), 550)


def test_builds_of_one_package_come_in_the_order_of_drivers_not_of_text() -> None:
    builds = [str(row.driver) for row in TABLES.compat_builds(CUDA("13.0"))]
    assert builds == ["580.95.05", "580.173.02"]


@pytest.mark.parametrize(("brand", "listed"), [(14, True), (2, True), (1, True), (5, False), (6, False), (15, False)])
def test_which_brands_compat_libraries_list(*, brand: int, listed: bool) -> None:
    row = TABLES.compat_brand(brand)
    assert row is not None
    assert row.listed is listed


def test_the_image_of_13_2_no_longer_lets_550_in() -> None:
    older, newer = TABLES.image(CUDA("13.0")), TABLES.image(CUDA("13.2"))
    assert older is not None
    assert newer is not None
    assert 550 in older.branches
    assert 550 not in newer.branches


def test_pypi_and_debian_have_no_compat_package_but_conda_forge_has() -> None:
    offers = {row.channel: row.offers for row in TABLES.compat_sources}
    assert (offers["PyPI"], offers["Debian"], offers["conda-forge"]) == (False, False, True)


# GPUs and code


@pytest.mark.parametrize(
    ("name", "model", "capability", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "H100", "9.0", GpuKind.DATA_CENTER),
        ("NVIDIA H100 PCIe", "H100", "9.0", GpuKind.DATA_CENTER),
        ("NVIDIA GH200 480GB", "GH200", "9.0", GpuKind.DATA_CENTER),
        ("NVIDIA A100-SXM4-40GB", "A100", "8.0", GpuKind.DATA_CENTER),
        ("NVIDIA A10G", "A10G", "8.6", GpuKind.DATA_CENTER),
        ("NVIDIA A10", "A10", "8.6", GpuKind.DATA_CENTER),
        ("NVIDIA L4", "L4", "8.9", GpuKind.DATA_CENTER),
        ("NVIDIA L40S", "L40S", "8.9", GpuKind.DATA_CENTER),
        ("Tesla V100-SXM2-16GB", "V100", "7.0", GpuKind.DATA_CENTER),
        ("NVIDIA RTX A6000", "RTX A series", "8.6", GpuKind.WORKSTATION),
        ("Quadro RTX 6000", "Quadro RTX", "7.5", GpuKind.WORKSTATION),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", "8.9", GpuKind.WORKSTATION),
        ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 Ada", "8.9", GpuKind.WORKSTATION),
        (
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "RTX PRO 6000 Blackwell",
            "12.0",
            GpuKind.WORKSTATION,
        ),
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Blackwell Server",
            "12.0",
            GpuKind.DATA_CENTER,
        ),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 40 series", "8.9", GpuKind.GEFORCE),
        ("NVIDIA GeForce RTX 5070 Ti", "GeForce RTX 5070 Ti", "12.0", GpuKind.GEFORCE),
        ("NVIDIA GB10", "GB10", "12.1", GpuKind.NOT_CERTAIN),
        ("NVIDIA Thor", "Jetson Thor", "11.0", GpuKind.JETSON),
        ("Orin (nvgpu)", "Jetson Orin", "8.7", GpuKind.JETSON),
        ("NVIDIA GeForce GTX 960", "GeForce GTX 900 series", "5.2", GpuKind.GEFORCE),
        ("NVIDIA GeForce GTX 960M", "GeForce GTX 960M, 950M, 940M, 930M", "5.0", GpuKind.GEFORCE),
        ("NVIDIA GeForce GTX TITAN X", "GeForce GTX TITAN X", "5.2", GpuKind.TITAN),
        ("Quadro M5000", "Quadro M series", "5.2", GpuKind.WORKSTATION),
        ("Quadro M5000M", "Quadro M series, mobile", "5.0", GpuKind.WORKSTATION),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", "RTX PRO 5000 Blackwell", "12.0", GpuKind.WORKSTATION),
    ],
)
def test_a_device_name_gives_the_model(name: str, model: str, capability: str, kind: GpuKind) -> None:
    gpu = TABLES.gpu_named(name)
    assert gpu is not None
    assert (gpu.model, str(gpu.capability), gpu.kind) == (model, capability, kind)


@pytest.mark.parametrize(
    ("code", "device", "cuda", "runs"),
    [
        ("12.0", "12.1", "12.8", Runs.YES),  # GB10 runs sm_120 code; torch 2.9's warning is false
        ("10.0", "10.3", "13.0", Runs.YES),  # B300 runs sm_100 code
        ("10.0", "10.1", "12.8", Runs.NO),  # Thor under its old name
        ("11.0", "10.1", "13.0", Runs.YES),
        ("10.1", "11.0", "13.0", Runs.YES),
        ("8.0", "8.7", "13.0", Runs.NO),  # Orin is not served by data-center Ampere code ...
        ("8.6", "8.7", "13.0", Runs.NO),
        ("8.0", "8.7", "13.2", Runs.YES),  # ... before CUDA 13.2
        ("8.6", "8.7", "13.4.1", Runs.YES),
        ("8.7", "8.0", "13.2", Runs.NO),
        ("8.0", "8.9", "12.8", Runs.YES),
        ("8.9", "8.6", "12.8", Runs.NO),
        ("9.0", "10.0", "12.8", Runs.NO),
        ("7.0", "7.2", "13.0", Runs.NO),
        ("7.5", "7.0", "13.0", Runs.NO),
        ("8.8", "8.8", "13.0", Runs.NOT_KNOWN),
    ],
)
def test_where_code_runs(code: str, device: str, cuda: str, runs: Runs) -> None:
    assert TABLES.runs_on(CC(code), CC(device), torch_cuda=CUDA(cuda)) is runs


def test_a_wheel_runs_on_a_device_if_one_of_its_codes_does() -> None:
    release = TABLES.torch_release("2.15.0", "aarch64")
    assert release is not None
    assert release.wheel_cuda == CUDA("13.2")
    for device, runs in (("8.7", Runs.YES), ("11.0", Runs.YES), ("7.2", Runs.NO)):
        assert TABLES.any_runs_on(release.compiled_for, CC(device), torch_cuda=release.wheel_cuda) is runs
    assert TABLES.any_runs_on((), CC("9.0"), torch_cuda=CUDA("13.0")) is Runs.NOT_KNOWN
    assert TABLES.any_runs_on((CC("8.8"),), CC("9.0"), torch_cuda=CUDA("13.0")) is Runs.NOT_KNOWN


def test_thor_was_10_1_and_is_11_0() -> None:
    old = TABLES.capability(CC("10.1"))
    assert old is not None
    assert old.renamed_to == CC("11.0")
    targets_12_9, targets_13_0 = TABLES.targets(CUDA("12.9")), TABLES.targets(CUDA("13.0.88"))
    assert targets_12_9 is not None
    assert targets_13_0 is not None
    assert "sm_101" in targets_12_9.targets
    assert "sm_101" not in targets_13_0.targets
    assert "sm_110a" in targets_13_0.targets


def test_volta_has_only_the_proprietary_modules() -> None:
    row = TABLES.kernel_module("Volta")
    assert row is not None
    assert row.open_module is OpenModule.NOT_SUPPORTED


def test_a_jetson_release_is_matched_by_its_line_and_its_jetpack_exactly() -> None:
    thor, orin = TABLES.tegra_release("38.2.1"), TABLES.tegra_release("36.4.3")
    assert thor is not None
    assert orin is not None
    assert (str(thor.cuda), str(orin.cuda)) == ("13.0", "12.6")
    assert TABLES.tegra_release("36.40.0") is None
    jetpack = TABLES.jetpack("38.4.0")
    assert jetpack is not None
    assert jetpack.jetpack == "7.1"


# Compilers


def test_cuda_13_dropped_everything_below_turing() -> None:
    assert [str(toolkit) for toolkit in TABLES.toolkits_for(CC("7.0"))][-1] == "12.9"
    assert [str(toolkit) for toolkit in TABLES.toolkits_for(CC("12.1"))] == [
        "12.9",
        "13.0",
        "13.1",
        "13.2",
        "13.3",
        "13.4",
    ]
    assert [str(toolkit) for toolkit in TABLES.toolkits_for(CC("10.7"))] == ["13.4"]


@pytest.mark.parametrize(
    ("toolkit", "gcc", "clang"), [("12.6", 13, 18), ("12.8.1", 14, 19), ("13.0", 15, 20), ("13.4", 16, 22)]
)
def test_the_newest_host_compilers(toolkit: str, gcc: int, clang: int) -> None:
    gcc_row, clang_row = TABLES.gcc_limit(CUDA(toolkit)), TABLES.clang_limit(CUDA(toolkit))
    assert gcc_row is not None
    assert clang_row is not None
    assert (gcc_row.newest_major, clang_row.newest_major) == (gcc, clang)


def test_old_gcc_limits_come_from_torchs_table_and_say_so_and_have_no_clang() -> None:
    row = TABLES.gcc_limit(CUDA("11.4"))
    assert row is not None
    assert row.confidence is Confidence.REPORTED
    assert TABLES.clang_limit(CUDA("11.4")) is None


def test_only_the_13_wheels_carry_nvcc_and_their_extra_grew_up() -> None:
    assert {row.project: row.has_nvcc for row in TABLES.nvcc_wheels} == {
        "nvidia-cuda-nvcc-cu11": False,
        "nvidia-cuda-nvcc-cu12": False,
        "nvidia-cuda-nvcc": True,
    }
    early, late = TABLES.toolkit_wheel(CUDA("13.0.2")), TABLES.toolkit_wheel(CUDA("13.2.2"))
    assert early is not None
    assert late is not None
    assert early.nvcc_extra == ("nvidia-cuda-nvcc",)
    assert set(late.nvcc_extra) == {"nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime"}
    newest = TABLES.toolkit_wheel(CUDA("13.0"))
    assert newest is not None
    assert newest.release == "13.0.3.0"


# torch and companions


def test_what_pip_install_torch_gives() -> None:
    expected = {"2.9.0": "12.8", "2.10.0": "12.8", "2.11.0": "13.0", "2.14.1": "13.0", "2.15.0": "13.2"}
    for version, cuda in expected.items():
        release = TABLES.torch_release(version)
        assert release is not None
        assert str(release.wheel_cuda) == cuda, version
    newest = TABLES.newest_torch("aarch64")
    assert newest is not None
    assert newest.torch == TORCH("2.15.0")


def test_the_aarch64_wheel_on_pypi_is_cpu_only_up_to_2_10() -> None:
    for version, has_cuda in (("2.9.0", False), ("2.10.0", False), ("2.11.0", True)):
        release = TABLES.torch_release(TORCH(f"{version}+cu130"), "aarch64")
        assert release is not None
        assert (release.wheel_cuda is not None) is has_cuda, version
    small = TABLES.torch_release("2.9.0", "aarch64")
    assert small is not None
    assert small.wheel_mb == 104.1


def test_the_v100_ends_with_2_10_on_pypi_and_lives_on_in_the_12_6_variant() -> None:
    last, next_one = TABLES.torch_release("2.10.0"), TABLES.torch_release("2.11.0")
    assert last is not None
    assert next_one is not None
    assert CC("7.0") in last.compiled_for
    assert CC("7.0") not in next_one.compiled_for
    variant = TABLES.variant_targets(TORCH("2.15.0"), CUDA("12.6"), machine="x86_64")
    assert variant is not None
    assert CC("7.0") in variant.compiled_for
    assert CC("5.0") in variant.compiled_for
    split = TABLES.variant_targets(TORCH("2.15.0"), CUDA("12.6"), machine="aarch64")
    assert split is not None
    assert split.compiled_for == (CC("8.0"), CC("9.0"))
    unsplit = TABLES.variant_targets(TORCH("2.11.0"), CUDA("12.6"), machine="aarch64")
    assert unsplit is not None
    assert unsplit.machine == "any"


def test_2_9_has_an_experimental_13_0_variant_that_was_seen_in_the_stable_channel() -> None:
    variants = {str(row.wheel_cuda): row.status for row in TABLES.torch_variants(TORCH("2.9.1"))}
    assert variants == {
        "12.6": VariantStatus.STABLE,
        "12.8": VariantStatus.STABLE,
        "13.0": VariantStatus.EXPERIMENTAL,
    }
    sightings = TABLES.variant_sightings(TORCH("2.9.0+cu130"), CUDA("13.0"))
    assert {row.channel for row in sightings} == {IndexChannel.STABLE}


def test_pins_of_a_wheel_are_found_with_and_without_the_cuda_suffix() -> None:
    release = TABLES.torch_release("2.9.0")
    assert release is not None
    for project, version in (("triton", "3.5.0"), ("nvidia-cudnn", "9.10.2.21"), ("nvidia-nccl-cu12", "2.27.5")):
        pin = release.pin(project)
        assert pin is not None
        assert pin.version == version
    assert release.pin("nvidia-cudss") is None


@pytest.mark.parametrize(
    ("triton", "capability", "knows"),
    [
        ("3.5.1", "12.1", False),
        ("3.6.0", "12.1", True),
        ("3.6.0", "11.0", False),
        ("3.7.0", "11.0", True),
        ("3.3.1", "12.0", True),
        ("3.1.0", "9.0", True),
        ("9.9.9", "9.0", None),
    ],
)
def test_what_tritons_own_ptxas_compiles_for(*, triton: str, capability: str, knows: bool | None) -> None:
    assert TABLES.triton_knows(triton, CC(capability)) is knows


def test_triton_3_1_is_not_taken_for_3_10() -> None:
    assert {row.triton for row in TABLES.triton_programs("3.1.0")} == {"3.1"}
    assert TABLES.triton_programs("3.10.0") == ()


def test_vllm_0_11_0_wants_torch_2_8_0_and_no_other() -> None:
    row = TABLES.companion("vllm", "0.11.0")
    assert row is not None
    pin = row.pin("torch")
    assert pin is not None
    assert pin.spec == "==2.8.0"
    xformers = row.pin("xformers")
    assert xformers is not None
    assert xformers.version == "0.0.32.post1"
    assert "0.11.0" not in [found.version for found in TABLES.companions_for("vllm", TORCH("2.9.0"))]


def test_the_companions_of_a_torch() -> None:
    for project, torch, versions in (
        ("torchvision", "2.9.0+cu130", ["0.24.0"]),
        ("torchvision", "2.15.0", ["0.29.1", "0.29.2"]),
        ("torchaudio", "2.9.1", ["2.9.1"]),
        ("xformers", "2.8.0", ["0.0.32.post1", "0.0.32.post2"]),
        ("vllm", "2.9.0", ["0.11.1", "0.11.2", "0.12.0", "0.13.0"]),
        ("vllm", "2.12.0", []),
    ):
        assert [row.version for row in TABLES.companions_for(project, TORCH(torch))] == versions, (project, torch)


def test_torchaudio_2_11_names_no_torch_and_is_offered_for_its_own_and_later_ones() -> None:
    """vllm 0.32.0 requires it beside torch 2.13.0, sglang 0.5.23 beside 2.14.1."""
    row = TABLES.companion("torchaudio", "2.11.0")
    assert row is not None
    assert row.pin("torch") is None
    assert "names no torch" in row.note
    assert TABLES.companions_for("torchaudio", TORCH("2.15.0")) == (row,)
    assert TABLES.companions_for("torchaudio", TORCH("2.11.0")) == (row,)
    assert row not in TABLES.companions_for("torchaudio", TORCH("2.10.0"))


def test_torch_2_4_to_2_15_have_their_torchvision_and_up_to_2_10_their_torchaudio() -> None:
    for release in TABLES.torch_releases:
        if release.machine == "x86_64" and release.torch >= TORCH("2.4.0"):
            assert TABLES.companions_for("torchvision", release.torch), release
            if release.torch <= TORCH("2.10.0"):
                assert TABLES.companions_for("torchaudio", release.torch), release


# Requirements


@pytest.mark.parametrize(
    ("spec", "version", "admits"),
    [
        ("==2.9.0", "2.9.0+cu130", True),
        ("==2.9.0", "2.9.1", False),
        (">=2.14.0", "2.15.0", True),
        (">=2.10", "2.9.1", False),
        ("<3,>=2.3", "2.15.0", True),
        ("<3,>=2.3", "3.0.0", False),
        ("~=3.8.0", "3.8.5", True),
        ("~=3.8.0", "3.9.0", False),
        ("~=2.0", "2.15.0", True),
        ("==2.9.*", "2.9.1", True),
        ("!=2.9.*", "2.9.1", False),
        ("!=2.9.0", "2.9.1", True),
        (">2.9.0", "2.9.0.post1", False),  # as pip has it
        ("<2.10", "2.10.0.dev20251015+cu130", False),
        ("<=2.9.0", "2.9.0", True),
        ("", "1.0.0", True),
    ],
)
def test_a_requirement_admits_a_version_or_not(*, spec: str, version: str, admits: bool) -> None:
    assert Pin("torch", spec).admits(TORCH(version)) is admits


def test_a_requirement_is_read_and_printed_back() -> None:
    text = "cuda-toolkit[cublas,cudart]==13.0.3"
    pin = Pin.parse(text)
    assert (pin.project, pin.extras, pin.version, str(pin)) == ("cuda-toolkit", ("cublas", "cudart"), "13.0.3", text)
    assert Pin.parse("nvidia-cublas<=13.1.1.3,>=13.1.0.3").version == ""
    with pytest.raises(BadInput, match="not a requirement"):
        Pin.parse("two words")
    with pytest.raises(BadInput, match="not a version bound"):
        Pin("torch", "=>2.9").admits(TORCH("2.9.0"))


# Libraries and errors


def test_libcudss_0_needs_a_release_below_1() -> None:
    runs = [row for row in TABLES.wheels_with("libcudss.so.0", machine="aarch64") if row.project == "nvidia-cudss-cu13"]
    assert [row.requirement for row in runs] == ["nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10"]
    assert not any(row.in_newest for row in runs)
    newest = [row for row in TABLES.wheels_with("libcudss.so.1", machine="aarch64") if row.in_newest]
    assert "nvidia-cudss-cu13" in {row.project for row in newest}


def test_nvpl_is_for_aarch64_alone_and_lives_in_a_folder_torch_does_not_search() -> None:
    name = "libnvpl_lapack_lp64_gomp.so.0"
    assert {row.folder for row in TABLES.wheels_with(name, machine="aarch64")} == {"nvpl/lib"}
    assert TABLES.wheels_with(name, machine="x86_64") == ()


def test_libgomp_is_a_debian_package() -> None:
    row = TABLES.debian_package_with("libgomp.so.1")
    assert row is not None
    assert row.package == "libgomp1"
    assert TABLES.debian_package_with("libcudart.so.13") is None


@pytest.mark.parametrize(
    ("code", "name", "text"),
    [
        (34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"),
        (35, "", "CUDA driver version is insufficient for CUDA runtime version"),
        (209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"),
        (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"),
        (
            803,
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            "system has unsupported display driver / cuda driver combination",
        ),
        (
            804,
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            "forward compatibility was attempted on non supported HW",
        ),
    ],
)
def test_an_error_code_has_its_name_and_exact_text(code: int, name: str, text: str) -> None:
    row = TABLES.error(code)
    assert row is not None
    assert (row.name, row.text) == (name, text)
    assert row.meaning


def test_cuda_and_nvml_codes_do_not_mix() -> None:
    cuda, nvml = TABLES.error(18), TABLES.nvml_error(18)
    assert cuda is not None
    assert nvml is not None
    assert cuda.runtime_name == "cudaErrorInvalidTexture"
    assert nvml.name == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"


def test_an_error_is_found_by_its_words_and_by_its_name_in_a_longer_text() -> None:
    line = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    assert [row.code for row in TABLES.errors_in(line)] == [209]
    assert [row.code for row in TABLES.errors_in("cuInit -> CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)")] == [803]
    assert TABLES.errors_in("the connection timed out; timeout") == ()


# Age


def test_the_tables_know_their_age_and_warn_after_180_days() -> None:
    newest = TABLES.newest_date()
    assert newest >= max(row.date for row in TABLES.cuda_majors)
    assert TABLES.oldest_date() <= newest
    assert TABLES.age_days(newest) == 0
    assert TABLES.age_days(newest - datetime.timedelta(days=3)) == 0
    assert TABLES.age_warning(newest + datetime.timedelta(days=180)) == ""
    late = TABLES.age_warning(newest + datetime.timedelta(days=181))
    assert late.startswith(f"The tables were last checked 181 days ago, on {newest}")
    assert late.endswith("Upgrade firstlight.")


def test_the_dates_read_in_haste_are_those_of_the_rows() -> None:
    from firstlight.tables.reading import read_dates
    from firstlight.tables.subjects import SUBJECTS

    for subject in SUBJECTS:
        assert read_dates(TABLES.folder, subject.name) == {row.date for row in TABLES.rows(subject.name)}


def test_importing_the_tables_reads_nothing_and_pulls_in_no_json() -> None:
    code = (
        "import sys, firstlight.tables; firstlight.tables.load();"
        "print([name for name in sys.modules if name == 'json' or name.endswith('_rows')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
