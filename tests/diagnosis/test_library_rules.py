"""What is said of torch's shared libraries on machines that were reported, and what must not be said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Question, Seen
from firstlight.diagnosis.library_path_rules import library_path_breaks, library_path_shadows
from firstlight.diagnosis.library_providers import provider
from firstlight.diagnosis.library_rules import (
    LIBRARY_RULES,
    cudnn_mix,
    missing_library,
    two_cuda_majors,
)
from firstlight.diagnosis.runtime_library_rules import glibc_too_old, libstdcxx_too_old
from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.companions import NvidiaWheel
from firstlight.facts.cuda_libraries import CudaLibraryFacts, FoundIn
from firstlight.facts.distributions import Requirement
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.facts.torch_libraries import LoadedLibrary, MissingLibrary, TorchLibraries
from firstlight.tables import load
from firstlight.ways.costs import bytes_of
from firstlight.ways.kinds import (
    AskPerson,
    CloseLibraries,
    InstallConda,
    Manner,
    RemoveDistributions,
    RemovePackages,
    UnsetVariables,
    Unwire,
    UseImage,
    Why,
    WiredBy,
)
from tests.diagnosis.rule_case import MACHINES, facts_of, ways_of
from tests.diagnosis.unknown_facts import nothing_known, one_less_known
from tests.diagnosis.wheels import torches, wheels

TABLES = load()
Check = Callable[[Question], Iterator[Seen]]
OWN = (
    "thor-missing-libraries", "cuda-lib64-first", "cuda-lib64-first-rpath", "cudnn-mix", "nccl-of-two-majors",
    "centos-7", "conda-without-libstdcxx-link",
)  # fmt: skip
SITE = "/home/user/venv/lib/python3.12/site-packages"


def seen(check: Check, facts: Facts) -> list[Seen]:
    return list(check(Question(facts, TABLES)))


def codes(facts: Facts) -> list[str]:
    return [rule.code for rule in LIBRARY_RULES if seen(rule.check, facts)]


def libraries_of(facts: Facts) -> TorchLibraries:
    assert isinstance(facts.torch_libraries, Known)
    return facts.torch_libraries.value


def with_libraries(facts: Facts, **changes: object) -> Facts:
    return replace(facts, torch_libraries=Known(replace(libraries_of(facts), **changes), "test"))  # type: ignore[arg-type]


def lacking(facts: Facts, *names: str, damaged: str = "") -> Facts:
    """The machine with these names missing, all asked for by libtorch_cuda.so."""
    asker = (f"{torch_folder(facts)}/lib/libtorch_cuda.so",)
    return with_libraries(facts, missing=tuple(MissingLibrary(name, asker, damaged) for name in names))


def torch_folder(facts: Facts) -> str:
    assert isinstance(facts.torch, Known)
    return facts.torch.value.folder


def with_pins(facts: Facts, *pins: Requirement) -> Facts:
    assert isinstance(facts.torch, Known)
    torch = replace(facts.torch.value, requires=Known(pins, "METADATA"))
    return replace(facts, torch=Known(torch, "test"))


def wheel(name: str, version: str, *, site: str = SITE, folder: str = "nvpl/lib") -> NvidiaWheel:
    return NvidiaWheel(name, version, site, Known(f"{site}/{folder}", "RECORD"))


# missing-library


def test_thor_lacks_three_libraries_and_all_are_named_at_once_with_one_way() -> None:
    found = seen(missing_library, facts_of("thor-missing-libraries"))
    assert [each.saw for each in found] == [
        f"{name}, needed by libtorch_cuda.so in {SITE}/torch/lib, is on no path that the loader searches; "
        f"{requirement} has it"
        for name, requirement in (
            ("libnvpl_lapack_lp64_gomp.so.0", "nvpl-lapack>=0.2.3.1,<=0.4.0.1"),
            ("libnvpl_blas_lp64_gomp.so.0", "nvpl-blas>=0.3.0,<=0.6.0"),
            ("libcudss.so.0", "nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10"),
        )
    ]
    names = ("libnvpl_lapack_lp64_gomp.so.0", "libnvpl_blas_lp64_gomp.so.0", "libcudss.so.0")
    other_torch = wheels("torch==2.14.1+cu130", cuda="cu130")
    [close], *others = ways_of(found[0])
    assert isinstance(close, CloseLibraries)
    assert (close.missing, others) == (names, [(other_torch,)])
    assert [ways_of(each) for each in found[1:]] == [[], []]
    assert "ImportError: libnvpl_lapack_lp64_gomp.so.0: cannot open shared object file" in found[0].error


def test_after_the_install_nvpl_is_there_and_still_not_found_which_is_said() -> None:
    installed = (wheel("nvpl-lapack", "0.4.0.1"), wheel("nvpl-blas", "0.6.0"))
    facts = replace(facts_of("thor-missing-libraries"), nvidia_wheels=installed)
    names = ("libnvpl_lapack_lp64_gomp.so.0", "libnvpl_blas_lp64_gomp.so.0")
    [first, _] = seen(missing_library, lacking(facts, *names))
    assert "nvpl-lapack 0.4.0.1 is installed, but its folder nvpl/lib is not searched" in first.saw
    assert _closes(first) == names


def test_a_newer_cudss_is_not_the_library_asked_for() -> None:
    newest = wheel("nvidia-cudss-cu13", "1.0.0.35", folder="nvidia/cu13/lib")
    facts = replace(facts_of("thor-missing-libraries"), nvidia_wheels=(newest,))
    [found] = seen(missing_library, lacking(facts, "libcudss.so.0"))
    assert "nvidia-cudss-cu13 1.0.0.35 is installed, which has another version of it" in found.saw
    assert found.saw.endswith("nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10 has it")


def test_libcuda_is_the_drivers_and_never_a_missing_package() -> None:
    facts = lacking(facts_of("thor-missing-libraries"), "libcuda.so.1", "libnvidia-ml.so.1")
    assert seen(missing_library, facts) == []


def test_the_provider_is_chosen_by_torchs_cuda_major() -> None:
    facts = facts_of("nvcc-12-9-torch-cu128")
    question = Question(lacking(facts, "libcudss.so.0"), TABLES)
    found = provider(question, "libcudss.so.0")
    assert found is not None
    assert found.requirement == "nvidia-cudss-cu12>=0.4.0.2,<=0.8.0.10"


def test_nvpl_has_no_wheel_for_x86_64() -> None:
    assert provider(Question(facts_of("no-toolkit"), TABLES), "libnvpl_blas_lp64_gomp.so.0") is None
    [found] = seen(missing_library, lacking(facts_of("no-toolkit"), "libnvpl_blas_lp64_gomp.so.0"))
    assert torches(found)  # another build of torch may not ask for it
    assert not any(isinstance(way, CloseLibraries) for ways in ways_of(found) for way in ways)


def test_only_what_somebody_brings_is_closed_and_the_rest_is_not_promised() -> None:
    facts = lacking(facts_of("no-toolkit"), "libnvpl_blas_lp64_gomp.so.0", "libcudss.so.0")
    first = seen(missing_library, facts)[0]
    assert _closes(first) == ("libcudss.so.0",)


def test_libraries_under_a_torch_of_pythonpath_are_let_be_where_another_torch_lies_behind_it() -> None:
    facts = override(lacking(facts_of("no-toolkit"), "libcudss.so.0"), ("torch.found_via=PYTHONPATH",))
    [found] = seen(missing_library, facts)
    assert ways_of(found) == [(UnsetVariables(("PYTHONPATH",)),)]


def test_the_version_that_torch_pins_is_taken_and_never_the_jit_package() -> None:
    facts = with_pins(facts_of("no-toolkit"), Requirement("nvidia-cudnn-cu13", (), "==9.19.0.56", ""))
    [found] = seen(missing_library, lacking(facts, "libcudnn.so.9"))
    assert found.saw.endswith("; nvidia-cudnn-cu13==9.19.0.56 has it")


def test_a_pin_through_cuda_toolkit_counts_as_torchs() -> None:
    pinned = with_pins(facts_of("no-toolkit"), Requirement("cuda-toolkit", ("cudart",), "==13.0.2", ""))
    facts = lacking(replace(pinned, nvidia_wheels=()), "libcudart.so.13")
    [found] = seen(missing_library, facts)
    assert found.saw.endswith("; nvidia-cuda-runtime==13.0.96.* has it")


def test_a_pin_that_does_not_ship_the_name_gives_way_to_the_range() -> None:
    facts = with_pins(facts_of("no-toolkit"), Requirement("nvidia-cudss-cu13", (), "==1.0.0.35", ""))
    [found] = seen(missing_library, lacking(facts, "libcudss.so.0"))
    assert found.saw.endswith("; nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10 has it")


def test_a_damaged_file_is_installed_again_instead_of_searched_for() -> None:
    path = "/root/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13"
    facts = lacking(facts_of("no-toolkit"), "libcudart.so.13", damaged=path)
    [found] = seen(missing_library, facts)
    assert f"is damaged: the loader cannot use {path}" in found.saw
    assert _closes(found) == ("libcudart.so.13",)


def test_a_file_that_went_with_the_removal_of_another_package_is_installed_again() -> None:
    # what is left of the machine of pytorch/pytorch#186591 after `pip uninstall nvidia-nccl-cu12` alone
    facts = facts_of("nccl-of-two-majors")
    facts = replace(facts, nvidia_wheels=tuple(each for each in facts.nvidia_wheels if "cu12" not in each.name))
    [found] = seen(missing_library, lacking(facts, "libnccl.so.2"))
    assert "nvidia-nccl-cu13 2.29.7 is installed, but its file is gone" in found.saw
    assert _closes(found) == ("libnccl.so.2",)


def test_what_torch_opens_itself_from_another_site_packages_folder_is_not_missing() -> None:
    elsewhere = wheel("nvidia-cublas", "13.1.0.3", site="/usr/lib/python3/dist-packages", folder="nvidia/cu13/lib")
    facts = replace(facts_of("no-toolkit"), nvidia_wheels=(elsewhere,))
    assert seen(missing_library, lacking(facts, "libcublas.so.13")) == []
    assert seen(missing_library, lacking(replace(facts, nvidia_wheels=()), "libcublas.so.13")) != []


def test_a_library_of_the_distribution_comes_from_its_package_manager() -> None:
    facts = lacking(facts_of("cudnn-mix"), "libgomp.so.1")
    [found] = seen(missing_library, facts)
    assert found.saw.endswith("; the package libgomp1 has it")
    assert _closes(found) == ("libgomp.so.1",)


@pytest.mark.parametrize("soname", sorted({row.soname for row in TABLES.rows("sonames")}))  # type: ignore[attr-defined]
def test_no_wheel_is_ever_named_without_bounds(soname: str) -> None:
    for name in ("no-toolkit", "nvcc-12-9-torch-cu128", "thor-missing-libraries"):
        found = provider(Question(facts_of(name), TABLES), soname)
        if found is not None:
            assert re.fullmatch(r"[a-z0-9-]+(?:>=\S+,<=\S+|==\S+)", found.requirement), found


# the rules about LD_LIBRARY_PATH


def exchanged(facts: Facts) -> list[Seen]:
    return [*seen(library_path_breaks, facts), *seen(library_path_shadows, facts)]


def test_an_older_library_breaks_the_import_and_a_newer_one_is_only_in_the_way() -> None:
    older, newer = facts_of("cuda-lib64-first"), facts_of("cuda-lib64-newer-first")
    assert (len(seen(library_path_breaks, older)), len(seen(library_path_shadows, older))) == (1, 0)
    assert (len(seen(library_path_breaks, newer)), len(seen(library_path_shadows, newer))) == (0, 1)


def test_a_toolkit_first_on_the_library_path_exchanges_nvjitlink_under_cusparse() -> None:
    [found] = exchanged(facts_of("cuda-lib64-first"))
    assert found.saw == (
        "libnvJitLink.so.12, needed by libcusparse.so.12, comes from /usr/local/cuda-12.2/lib64/libnvJitLink.so.12 "
        "(LD_LIBRARY_PATH) instead of "
        "/home/user/venv/lib/python3.10/site-packages/nvidia/nvjitlink/lib/libnvJitLink.so.12; it is of CUDA 12.2, "
        "torch of 12.4"
    )
    assert ways_of(found) == [(Unwire(("/usr/local/cuda-12.2/lib64",), WiredBy.LIBRARY_PATH),)]


def test_with_rpath_in_every_library_the_same_library_path_does_no_harm() -> None:
    facts = facts_of("cuda-lib64-first-rpath")
    assert facts.libcuda.ld_library_path == ("/usr/local/cuda-12.2/lib64",)
    assert exchanged(facts) == []


def test_newer_torch_opens_its_own_libraries_first() -> None:
    facts = facts_of("cuda-lib64-first")
    assert exchanged(override(facts, ("torch.version=2.10.0+cu126",))) != []
    assert exchanged(override(facts, ("torch.version=2.11.0+cu126",))) == []
    cusparse = replace(libraries_of(facts).shadowed[0], name="libcusparse.so.12")
    other = with_libraries(facts, shadowed=(cusparse,), loaded=())
    assert exchanged(override(other, ("torch.version=2.12.0+cu126",))) != []
    assert exchanged(override(other, ("torch.version=2.13.0+cu126",))) == []


def test_a_torch_from_conda_or_source_opens_no_wheels_first() -> None:
    facts = override(facts_of("cuda-lib64-first"), ("torch.version=2.15.0",))
    shadow = replace(libraries_of(facts).shadowed[0], instead_of="/opt/conda/lib/libnvJitLink.so.12")
    assert exchanged(with_libraries(facts, shadowed=(shadow,), loaded=())) != []


def test_all_folders_that_do_harm_leave_the_path_at_once() -> None:
    facts = facts_of("cuda-lib64-newer-first")
    [shadow] = libraries_of(facts).shadowed
    second = replace(shadow, path="/opt/cuda/lib64/libnvJitLink.so.12", entry="/opt/cuda/lib64")
    both = exchanged(with_libraries(facts, shadowed=(shadow, second), loaded=()))
    away = Unwire(("/usr/local/cuda-12.6/lib64", "/opt/cuda/lib64"), WiredBy.LIBRARY_PATH)
    assert [ways_of(each) for each in both] == [[(away,)], [(away,)]]


def test_other_entries_of_the_library_path_are_kept() -> None:
    facts = override(facts_of("cuda-lib64-first"), ("libcuda.ld_library_path=/opt/own/lib,/usr/local/cuda-12.2/lib64",))
    [found] = exchanged(facts)
    assert ways_of(found) == [(Unwire(("/usr/local/cuda-12.2/lib64",), WiredBy.LIBRARY_PATH),)]


@pytest.mark.parametrize("name", ["libcurl.so.4", "libgomp.so.1", "libcuda.so.1", "libstdc++.so.6"])
def test_libraries_that_are_not_cudas_are_left_to_others(name: str) -> None:
    facts = facts_of("cuda-lib64-first")
    shadow = replace(libraries_of(facts).shadowed[0], name=name)
    assert exchanged(with_libraries(facts, shadowed=(shadow,), loaded=())) == []


def test_a_name_found_through_the_library_path_alone_is_exchanged_when_its_wheel_is_installed() -> None:
    # pytorch/pytorch#138460: libcusparse without any search path; torch would open the wheel's file itself
    facts = with_libraries(facts_of("cuda-lib64-first"), shadowed=())
    [found] = exchanged(facts)
    assert found.saw.startswith(
        "libnvJitLink.so.12, needed by libcusparse.so.12, comes from /usr/local/cuda-12.2/lib64"
    )
    assert exchanged(replace(facts, nvidia_wheels=())) == []


# two-cuda-majors


def test_nccl_wheels_of_two_majors_write_the_same_file() -> None:
    [found] = seen(two_cuda_majors, facts_of("nccl-of-two-majors"))
    folder = "/root/venv/lib/python3.12/site-packages/nvidia/nccl/lib"
    assert found.saw == (
        f"nvidia-nccl-cu12 2.29.3 and nvidia-nccl-cu13 2.29.7 are both installed into {folder}; "
        "torch is built for CUDA 13"
    )
    again = wheels("nvidia-nccl-cu13==2.29.7", manner=Manner.AGAIN)
    assert ways_of(found) == [(RemoveDistributions(("nvidia-nccl-cu12",)), again)]


def test_wheels_of_two_majors_in_folders_of_their_own_are_fine() -> None:
    both = (
        wheel("nvidia-cublas-cu12", "12.8.4.1", folder="nvidia/cublas/lib"),
        wheel("nvidia-cublas", "13.1.0.3", folder="nvidia/cu13/lib"),
    )
    assert seen(two_cuda_majors, replace(facts_of("no-toolkit"), nvidia_wheels=both)) == []


def test_two_runtimes_in_one_closure_are_named_with_who_asks() -> None:
    facts = facts_of("cuda-lib64-first")
    second = LoadedLibrary("libcudart.so.13", "/opt/x/libcudart.so.13", FoundBy.CACHE, "", ("/opt/x/libother.so",))
    [found] = seen(two_cuda_majors, with_libraries(facts, loaded=(*libraries_of(facts).loaded, second)))
    assert "libcudart.so.12 for libtorch_cuda.so" in found.saw
    assert "libcudart.so.13 for libother.so (/opt/x/libcudart.so.13)" in found.saw
    assert ways_of(found) == []
    wired = replace(second, found_by=FoundBy.LIBRARY_PATH, entry="/opt/x")
    [found] = seen(two_cuda_majors, with_libraries(facts, loaded=(*libraries_of(facts).loaded, wired)))
    assert ways_of(found) == [(Unwire(("/opt/x",), WiredBy.LIBRARY_PATH),)]


def test_a_companion_for_another_major_counts_only_where_its_runtime_is_installed() -> None:
    facts = facts_of("flash-attn-cu12")
    cudart = wheel("nvidia-cuda-runtime-cu12", "12.8.90", folder="nvidia/cuda_runtime/lib")
    alone = replace(facts, nvidia_wheels=())
    beside = replace(facts, nvidia_wheels=(cudart,))
    assert seen(two_cuda_majors, alone) == []
    [found] = seen(two_cuda_majors, beside)
    assert "nvidia-cuda-runtime-cu12 12.8.90" in found.saw
    assert ways_of(found) == [(RemoveDistributions(("flash-attn",)),)]


# cudnn-mix


def test_cudnn_9_20_of_the_wheel_would_take_a_part_of_the_systems_9_23() -> None:
    [found] = seen(cudnn_mix, facts_of("cudnn-mix"))
    assert found.saw == (
        "nvidia-cudnn-cu13 9.20.0.48 opens libcudnn_engines_tensor_ir.so.9 by name and does not ship it; "
        "cuDNN 9.23.0 in /usr/lib/x86_64-linux-gnu does"
    )
    assert ways_of(found) == [(RemovePackages(("libcudnn9-*",), alone=True),), (wheels("torch==2.15.0"),)]


@pytest.mark.parametrize(
    "settings",
    [
        ("nvidia_wheels.0.version=9.10.2.21",),  # does not know the part: torch 2.8 to 2.10
        ("cuda_libraries.libraries.0.version=9.20.0",),  # the system's does not have it either
        ("torch.version=2.14.0+cu130",),
        ("cuda_libraries.libraries.0.found_in=toolkit",),  # not on the loader's way by itself
    ],
)
def test_a_second_cudnn_that_is_not_reached_is_no_mix(settings: tuple[str, ...]) -> None:
    facts = facts_of("cudnn-mix")
    assert facts.cuda_libraries.libraries[0].found_in is FoundIn.SYSTEM
    assert seen(cudnn_mix, override(facts, settings)) == []


def test_another_cudnn_on_the_library_path_mixes_its_parts_in() -> None:
    settings = ("nvidia_wheels.0.version=9.10.2.21", "cuda_libraries.libraries.0.found_in=LD_LIBRARY_PATH")
    facts = override(facts_of("cudnn-mix"), settings)
    [found] = seen(cudnn_mix, facts)
    assert "LD_LIBRARY_PATH leads to cuDNN 9.23.0 in /usr/lib/x86_64-linux-gnu first" in found.saw
    path = facts.cuda_libraries.libraries[0].path
    unknown = AskPerson("take-cudnn-off", Why.DECISION, (("ls", "-l", path),))
    assert ways_of(found)[0] == (unknown,)
    wired = override(facts, ("libcuda.ld_library_path=/opt/lib,/usr/lib/x86_64-linux-gnu/",))
    [found] = seen(cudnn_mix, wired)
    assert ways_of(found)[0] == (Unwire(("/usr/lib/x86_64-linux-gnu/",), WiredBy.LIBRARY_PATH),)
    same = override(facts, ("nvidia_wheels.0.version=9.23.0.12",))
    assert seen(cudnn_mix, same) == []
    assert seen(cudnn_mix, replace(facts, cuda_libraries=CudaLibraryFacts(()))) == []


# glibc-too-old, libstdcxx-too-old


def test_centos_7_is_too_old_for_a_library_below_torch() -> None:
    [found] = seen(glibc_too_old, facts_of("centos-7"))
    assert found.saw == (
        "glibc 2.17 (/lib64/libc.so.6); libcurand.so.10 needs 2.27 (/home/user/anaconda3/envs/trl/lib/libcurand.so.10)"
    )
    assert "version `GLIBC_2.27' not found" in found.means
    assert (UseImage(""),) in ways_of(found)
    assert torches(found)[0].startswith("2.5")  # the last of its minor whose wheels take glibc 2.17


def test_versions_are_compared_as_numbers() -> None:
    assert seen(glibc_too_old, override(facts_of("centos-7"), ("glibc=2.9",))) != []
    assert seen(glibc_too_old, override(facts_of("centos-7"), ("glibc=2.100",))) == []


def test_where_the_files_tell_nothing_the_wheels_tag_does() -> None:
    facts = facts_of("h100-driver-570")
    assert seen(glibc_too_old, override(facts, ("glibc=2.28",))) == []
    [found] = seen(glibc_too_old, override(facts, ("glibc=2.27",)))
    assert "torch, by its tag, needs 2.28 (cp312-cp312-manylinux_2_28_x86_64)" in found.saw


def test_conda_without_its_link_gets_the_systems_older_libstdcxx() -> None:
    [found] = seen(libstdcxx_too_old, facts_of("conda-without-libstdcxx-link"))
    assert found.saw.startswith(
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6 offers GLIBCXX_3.4.28 at most; "
        "libtorch_python.so needs GLIBCXX_3.4.30"
    )
    assert ways_of(found)[0] == (InstallConda("libstdcxx-ng", "conda-forge", "", "lib/libstdc++.so.6"),)


def test_conda_with_its_own_libstdcxx_is_fine_on_an_old_system() -> None:
    facts = facts_of("centos-7")
    assert facts.runtime.libstdcxx == Known("3.4.19", "/lib64/libstdc++.so.6")
    assert seen(libstdcxx_too_old, facts) == []


# all of them


@pytest.mark.parametrize("name", ["h100-driver-570", "h200-healthy", "gb10-torch-cu130", "nvcc-12-9-torch-cu128"])
def test_a_machine_with_sound_libraries_has_no_finding_about_them(name: str) -> None:
    assert codes(facts_of(name)) == []


@pytest.mark.parametrize("name", sorted(path.parent.name for path in MACHINES.glob("*/machine.json")))
def test_of_a_machine_of_which_nothing_is_known_nothing_is_said(name: str) -> None:
    assert codes(nothing_known(facts_of(name))) == []


@pytest.mark.parametrize("name", OWN)
def test_one_fact_fewer_makes_no_rule_stumble(name: str) -> None:
    facts = facts_of(name)
    full = set(codes(facts))
    for path, less in one_less_known(facts):
        extra = set(codes(less)) - full
        # Without the version of torch it is not known that it opens its own libraries first.
        allowed = {"library-path-shadows", "cudnn-mix"} if "torch.version" in path else set()
        if "library-path-breaks" in full - set(codes(less)):
            allowed = {*allowed, "library-path-shadows"}  # which of the two is older is then not known
        assert extra <= allowed, path


def test_what_is_asked_of_the_driver_is_unknown_when_libraries_are() -> None:
    facts = replace(facts_of("thor-missing-libraries"), torch_libraries=Unknown("not installed yet"))
    assert codes(facts) == []


def _closes(seen: Seen) -> tuple[str, ...]:
    """The libraries that the first answer brings."""
    (close,) = ways_of(seen)[0]
    assert isinstance(close, CloseLibraries)
    return close.missing


def test_what_the_wheels_of_missing_libraries_require_is_named_and_counted() -> None:
    (first, *_) = seen(missing_library, facts_of("thor-missing-libraries"))
    (close,) = ways_of(first)[0]
    assert isinstance(close, CloseLibraries)
    wheels = {each.project: each.version for each in close.wheels}
    assert wheels["nvidia-cublas"] == "13.8.0.4", "nvidia-cudss-cu13 requires it, and the plan installs it"
    size = bytes_of(close, facts_of("thor-missing-libraries"), TABLES)
    assert size == Known(33258781 + 2057299 + 80481232 + 552729449 + 50927348, "sizes on PyPI, 2026-11-16")
