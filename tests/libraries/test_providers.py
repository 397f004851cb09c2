"""Who is chosen for missing libraries: versions, majors, machines, pins, and agreement among the packages."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from firstlight.facts.known import Known, Unknown
from firstlight.libraries.providers import Providers, choose_providers
from firstlight.tables import load
from firstlight.tables.soname_rows import SonameWheel
from tools.refresh_tables import pip_index_url

TABLES = load()
FIELD_REPORT = ("libnvpl_lapack_lp64_gomp.so.0", "libnvpl_blas_lp64_gomp.so.0", "libcudss.so.0")
TORCH_2_11 = {
    "cuda-toolkit": "==13.0.2",
    "nvidia-cudnn-cu13": "==9.19.0.56",
    "nvidia-nccl-cu13": "==2.28.9",
    "nvidia-cusparselt-cu13": "==0.8.0",
    "nvidia-nvshmem-cu13": "==3.4.5",
}


def choose(
    *missing: str,
    arch: str = "x86_64",
    major: int | None = 13,
    pins: dict[str, str] | None = None,
    installed: dict[str, str] | None = None,
) -> Providers:
    return choose_providers(
        missing, arch=arch, cuda_major=major, pins=pins or {}, installed=installed or {}, tables=TABLES
    )


def versions(providers: Providers) -> dict[str, str]:
    """Every package that would be there, with its version."""
    found = {each.project: each.version for each in providers.chosen}
    return found | {each.project.partition("[")[0]: each.version for each in providers.brought}


def reasons(providers: Providers) -> dict[str, str]:
    return {each.soname: each.reason for each in providers.unknown}


def test_the_library_of_an_older_release_gets_bounds_that_leave_the_newest_out() -> None:
    [cudss] = choose("libcudss.so.0").chosen
    assert cudss.requirement == "nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10"
    assert cudss.version == "0.8.0.10"
    assert cudss.path == "nvidia/cu13/lib/libcudss.so.0"
    assert cudss.bytes == Known(80682451, "PyPI's list of files, 2026-11-16")
    assert not cudss.from_pin
    [newest] = choose("libcudss.so.1").chosen
    assert Version(newest.version) >= Version("1")


def test_all_that_the_field_report_lacked_comes_in_one_answer() -> None:
    providers = choose(*FIELD_REPORT, arch="aarch64")
    assert [(each.soname, each.project, each.version, each.folder) for each in providers.chosen] == [
        ("libnvpl_lapack_lp64_gomp.so.0", "nvpl-lapack", "0.4.0.1", "nvpl/lib"),
        ("libnvpl_blas_lp64_gomp.so.0", "nvpl-blas", "0.6.0", "nvpl/lib"),
        ("libcudss.so.0", "nvidia-cudss-cu13", "0.8.0.10", "nvidia/cu13/lib"),
    ]
    assert providers.unknown == ()
    assert [each.package for each in providers.nvidia] == ["libnvpl-lapack0", "libnvpl-blas0", "libcudss0-cuda-13"]
    assert providers.nvidia[2].folder == "/usr/lib/aarch64-linux-gnu/libcudss/13"


def test_nvpl_is_never_offered_outside_aarch64() -> None:
    providers = choose(*FIELD_REPORT, arch="x86_64")
    assert [each.soname for each in providers.chosen] == ["libcudss.so.0"]
    assert reasons(providers)[FIELD_REPORT[0]] == ("only wheels for aarch64 have it (nvpl-lapack), and this is x86_64")
    assert "libnvpl-lapack0" not in [each.package for each in providers.nvidia]


@pytest.mark.parametrize(("major", "project"), [(12, "nvidia-cudss-cu12"), (13, "nvidia-cudss-cu13")])
def test_the_cuda_major_chooses_among_projects_with_the_same_library(major: int, project: str) -> None:
    [cudss] = choose("libcudss.so.0", major=major).chosen
    assert cudss.project == project


def test_the_toolkits_parts_of_cuda_13_have_no_suffix_and_placeholders_are_not_offered() -> None:
    providers = choose("libcudart.so.13", "libcublas.so.13", "libcusparse.so.12", "libcufft.so.12")
    assert [each.project for each in providers.chosen] == [
        "nvidia-cuda-runtime",
        "nvidia-cublas",
        "nvidia-cusparse",
        "nvidia-cufft",
    ]
    assert {each.folder for each in providers.chosen} == {"nvidia/cu13/lib"}


def test_a_library_of_another_major_is_refused_with_who_has_it() -> None:
    assert reasons(choose("libcudart.so.12", major=13)) == {
        "libcudart.so.12": "only packages for CUDA 12 have it (nvidia-cuda-runtime-cu12), and this is CUDA 13"
    }


def test_what_torch_pins_is_taken_and_so_is_what_its_toolkit_pins() -> None:
    providers = choose("libcudnn.so.9", "libcudnn_ops.so.9", "libnccl.so.2", "libcublas.so.13", pins=TORCH_2_11)
    assert versions(providers) == {
        "nvidia-cudnn-cu13": "9.19.0.56",
        "nvidia-nccl-cu13": "2.28.9",
        "nvidia-cublas": "13.1.0.3",
    }
    assert all(each.from_pin for each in providers.chosen)
    assert providers.requirements == (
        "nvidia-cudnn-cu13==9.19.0.56",
        "nvidia-nccl-cu13==2.28.9",
        "nvidia-cublas==13.1.0.3.*",
    )


def test_a_pin_may_be_a_bare_version_and_a_project_written_in_any_way() -> None:
    [cudnn] = choose("libcudnn.so.9", pins={"nvidia_cudnn_cu13": "9.19.0.56"}).chosen
    assert cudnn.requirement == "nvidia-cudnn-cu13==9.19.0.56"


def test_a_range_that_torch_asks_for_is_kept_beside_the_bounds() -> None:
    [cudss] = choose("libcudss.so.0", pins={"nvidia-cudss-cu13": "<0.8"}).chosen
    assert cudss.requirement == "nvidia-cudss-cu13>=0.7.0.20,<=0.7.1.6,<0.8"


def test_what_a_chosen_package_requires_agrees_with_torchs_toolkit() -> None:
    providers = choose("libcudss.so.0", pins=TORCH_2_11)
    assert versions(providers) == {
        "nvidia-cudss-cu13": "0.8.0.10",
        "cuda-toolkit": "13.0.2",
        "nvidia-cublas": "13.1.0.3",
    }
    assert "cuda-toolkit[cublas]==13.0.2" in providers.requirements


def test_what_is_installed_stays_though_a_newer_one_would_do() -> None:
    providers = choose("libcudss.so.0", installed={"nvidia-cublas": "13.1.0.3", "nvidia-cuda-nvrtc": "13.0.88"})
    assert versions(providers) == {"nvidia-cudss-cu13": "0.8.0.10", "cuda-toolkit": "13.0.2"}
    # Without being asked, pip takes the newest cuda-toolkit, and with it another cuBLAS.
    assert providers.requirements[1] == "cuda-toolkit[cublas]==13.0.2"


def test_an_installed_release_with_the_library_is_kept_and_costs_nothing() -> None:
    providers = choose("libcudss.so.0", installed={"nvidia-cudss-cu13": "0.7.1.6"})
    [cudss] = providers.chosen
    assert (cudss.version, cudss.installed, cudss.is_installed) == ("0.7.1.6", "0.7.1.6", True)
    assert providers.requirements == ()
    assert providers.download_bytes == Known(0, "sizes on PyPI")


def test_an_installed_release_without_the_library_is_replaced() -> None:
    [cudss] = choose("libcudss.so.0", installed={"nvidia-cudss-cu13": "1.0.0.35"}).chosen
    assert (cudss.version, cudss.installed, cudss.is_installed) == ("0.8.0.10", "1.0.0.35", False)


def test_two_libraries_of_one_project_get_one_version_that_has_both() -> None:
    both = choose("libnvToolsExt.so.1", "libnvtx3interop.so.1", major=12)
    assert len({each.version for each in both.chosen if each.project == "nvidia-nvtx-cu12"}) == 1
    providers = choose("libcudss.so.0", "libcudss_mtlayer_gomp.so.0")
    assert {each.version for each in providers.chosen} == {"0.8.0.10"}


def test_two_libraries_that_no_release_has_together_are_said_to_be_so() -> None:
    providers = choose("libcudss.so.0", "libcudss.so.1")
    assert [each.soname for each in providers.chosen] == ["libcudss.so.0"]
    assert "none of these has libcudss.so.0" in reasons(providers)["libcudss.so.1"]


def test_a_pinned_and_installed_release_is_not_given_up_for_one_library() -> None:
    pinned = {"nvidia-cudnn-cu12": "==9.10.2.21"}
    installed = {"nvidia-cudnn-cu12": "9.10.2.21"}
    providers = choose("libcudnn.so.8", major=12, pins=pinned, installed=installed)
    assert providers.chosen == ()
    assert reasons(providers)["libcudnn.so.8"].endswith("and torch pins nvidia-cudnn-cu12==9.10.2.21")


def test_a_pin_without_the_library_gives_way_where_nothing_is_installed_and_that_is_said() -> None:
    [cudss] = choose("libcudss.so.0", pins={"nvidia-cudss-cu13": "==1.0.0.35"}).chosen
    assert (cudss.version, cudss.from_pin, cudss.against_pin) == ("0.8.0.10", False, "==1.0.0.35")


def test_a_release_that_requires_a_placeholder_is_passed_over() -> None:
    # 0.7.0.20 and 0.7.1.4 require nvidia-cublas-cu13, which is an empty source archive.
    assert TABLES.placeholder_project("nvidia-cublas-cu13") is not None
    providers = choose("libcudss.so.0", pins={"nvidia-cudss-cu13": "<=0.7.1.4"})
    assert providers.chosen == ()
    assert "agrees with the other packages" in reasons(providers)["libcudss.so.0"]


def test_a_pin_newer_than_the_tables_is_trusted_to_ship_what_the_newest_does() -> None:
    [cudnn] = choose("libcudnn.so.9", pins={"nvidia-cudnn-cu13": "==99.1.0.7"}).chosen
    assert (cudnn.version, cudnn.requirement) == ("99.1.0.7", "nvidia-cudnn-cu13==99.1.0.7")
    assert isinstance(cudnn.bytes, Unknown)


def test_of_two_projects_with_a_library_the_one_with_the_rest_of_it_is_taken() -> None:
    [alone] = choose("libcudnn.so.9").chosen
    assert alone.project == "nvidia-cudnn-cu13"  # not nvidia-cudnn-jit-cu13
    [pinned] = choose("libcudnn.so.9", pins={"nvidia-cudnn-jit-cu13": "==9.27.0.42"}).chosen
    assert pinned.project == "nvidia-cudnn-jit-cu13"


def test_without_a_cuda_major_the_libraries_or_what_is_there_tell_it() -> None:
    told = choose("libcudart.so.12", "libcudss.so.0", major=None)
    assert told.cuda_major == Known(12, "libcudart.so.12, which is of CUDA 12 alone")
    assert [each.project for each in told.chosen] == ["nvidia-cuda-runtime-cu12", "nvidia-cudss-cu12"]
    there = choose("libcudss.so.0", major=None, installed={"nvidia-cudss-cu12": "1.0.0.35"})
    assert there.cuda_major == Known(12, "the packages that are installed or that torch pins")
    guessed = choose("libcudss.so.0", major=None)
    assert isinstance(guessed.cuda_major, Known)
    assert guessed.cuda_major.value == 13
    assert "nothing here names a CUDA major" in guessed.cuda_major.seen_in
    assert isinstance(choose("libnvpl_fftw.so.0", arch="aarch64", major=None).cuda_major, Unknown)


def test_every_name_gets_one_answer_of_the_right_kind() -> None:
    providers = choose(
        "libcuda.so.1", "libnvidia-ml.so.1", "libgomp.so.1", "libcudss.so.0", "libtorch_cuda_cu.so", "libodd.so.3",
        "libcudss.so.7", "libnvinfer.so.10", "libcudss.so.0",
    )  # fmt: skip
    assert providers.driver == ("libcuda.so.1", "libnvidia-ml.so.1")
    assert [(each.soname, each.package) for each in providers.debian] == [("libgomp.so.1", "libgomp1")]
    assert [each.soname for each in providers.chosen] == ["libcudss.so.0"]
    assert list(reasons(providers)) == ["libtorch_cuda_cu.so", "libodd.so.3", "libcudss.so.7", "libnvinfer.so.10"]
    assert "it is torch's own" in reasons(providers)["libtorch_cuda_cu.so"]
    assert reasons(providers)["libodd.so.3"] == "no package that the tables know has it"
    assert reasons(providers)["libcudss.so.7"].endswith("they know libcudss.so.0, libcudss.so.1")
    assert "NVIDIA's own pip channel" in reasons(providers)["libnvinfer.so.10"]


def test_nothing_missing_asks_for_nothing() -> None:
    providers = choose()
    assert (providers.chosen, providers.brought, providers.unknown, providers.requirements) == ((), (), (), ())


def test_the_size_of_all_counts_each_wheel_once_and_what_it_brings() -> None:
    providers = choose("libcudss.so.0", "libcudss_mtlayer_gomp.so.0", pins=TORCH_2_11)
    assert providers.download_bytes == Known(80682451 + 423133236, "sizes on PyPI")


def every_provider() -> Iterator[SonameWheel]:
    seen = set()
    for row in TABLES.soname_wheels:
        if (key := (row.soname, row.machine, row.cuda_major)) not in seen:
            seen.add(key)
            yield row


def test_for_every_library_of_the_tables_the_choice_has_it_and_its_requirements_hold() -> None:
    for row in every_provider():
        providers = choose(row.soname, arch=row.machine, major=row.cuda_major or 13)
        [chosen] = providers.chosen or pytest.fail(f"{row}: {reasons(providers)}")
        runs = [run for run in TABLES.wheels_with(row.soname, machine=row.machine) if run.project == chosen.project]
        version = Version(chosen.version)
        assert any(Version(run.first) <= version <= Version(run.last) and run.path == chosen.path for run in runs), row
        assert version in SpecifierSet(chosen.requirement.removeprefix(chosen.project)), row
        assert isinstance(chosen.bytes, Known), row
        taken = versions(providers)
        for project, text in taken.items():
            for releases in TABLES.library_releases(project, machine=row.machine):
                for pin in releases.requires if text in releases.versions else ():
                    if pin.project in taken:
                        assert Version(taken[pin.project]) in SpecifierSet(pin.spec), (row, project, pin)


@pytest.mark.parametrize("seed", range(60))
def test_any_set_of_libraries_under_any_torch_gets_one_answer_each_and_no_contradiction(seed: int) -> None:
    pick = random.Random(seed)
    torch = pick.choice([row for row in TABLES.torch_releases if row.wheel_cuda is not None])
    pins = {pin.project: pin.spec for pin in torch.pins}
    present = {pin.project: pin.version for pin in torch.pins if pin.version and pick.random() < 0.5}
    everything = sorted({row.soname for row in TABLES.soname_wheels})
    names = (*pick.sample(everything, 6), "libcuda.so.1", "libgomp.so.1")
    major = torch.wheel_cuda.major if torch.wheel_cuda is not None else None
    providers = choose(*names, arch=torch.machine, major=major, pins=pins, installed=present)
    answered = [*(each.soname for each in providers.chosen), *(each.soname for each in providers.debian)]
    assert sorted([*answered, *reasons(providers), *providers.driver]) == sorted(names)
    by_project: dict[str, set[str]] = {}
    for each in providers.chosen:
        by_project.setdefault(each.project, set()).add(each.version)
        if each.from_pin:
            assert Version(each.version) in SpecifierSet(pins.get(each.project, "")), each
    assert all(len(found) == 1 for found in by_project.values()), by_project
    assert all(each.reason and not each.reason.endswith(".") for each in providers.unknown)


@pytest.mark.network
@pytest.mark.parametrize(
    ("missing", "arch", "major", "pins"),
    [
        (FIELD_REPORT, "aarch64", 13, {}),
        (("libcudss.so.0",), "x86_64", 13, TORCH_2_11),
        (("libcusolver.so.11", "libcudnn.so.9", "libnccl.so.2"), "x86_64", 12, {}),
    ],
    ids=["field-report", "torch-2.11", "cuda-12"],
)
def test_a_real_resolver_on_pypi_takes_the_same_versions(
    missing: tuple[str, ...], arch: str, major: int, pins: dict[str, str]
) -> None:
    providers = choose(*missing, arch=arch, major=major, pins=pins)
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [str(uv), "pip", "compile", "-", "--no-config", "--no-python-downloads", "--no-header", "--no-annotate",
         "--python-platform", f"{arch}-manylinux_2_28", "--exclude-newer", "2026-11-16", "--default-index",
         pip_index_url()],
        input="\n".join(providers.requirements), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip("no index could be reached")
    assert done.returncode == 0, done.stderr
    assert dict(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==(\S+)$", done.stdout, re.M)) == versions(providers)
