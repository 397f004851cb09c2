"""What is said of compat libraries and libcuda on machines that were reported or measured, and when nothing is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from firstlight.diagnosis.compat_rules import (
    COMPAT_RULES,
    compat_baked_in,
    compat_branch_not_accepted,
    compat_not_eligible,
    compat_stale,
    compat_unused,
)
from firstlight.diagnosis.finding import Question, Rule, Seen
from firstlight.diagnosis.libcuda_rules import libcuda_damaged, libcuda_missing, stub_libcuda_wins
from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import Known, Unknown
from firstlight.facts.libcuda import LibcudaCandidate
from firstlight.facts.override import override
from firstlight.tables import load
from firstlight.versions import CudaVersion, DriverVersion
from firstlight.ways.effects import after_all
from firstlight.ways.kinds import (
    AskPerson,
    InstallPackages,
    RefreshLoaderCache,
    RegisterFolder,
    RemoveFiles,
    RemovePackages,
    Scope,
    SetVariables,
    StartContainer,
    Unwire,
    Variable,
    Why,
    WireCompat,
    WiredBy,
)
from firstlight.ways.way import Proof
from tests.diagnosis.rule_case import MACHINES, facts_of, ways_of
from tests.diagnosis.unknown_facts import nothing_known, one_less_known

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
Check = Callable[[Question], Iterator[Seen]]


def seen(check: Check, facts: Facts) -> list[Seen]:
    return list(check(Question(facts, TABLES)))


def changed(machine: str, *settings: str) -> Facts:
    return override(facts_of(machine), settings)


def loading(facts: Facts, **fields: object) -> Facts:
    """The facts with other fields in the libcuda that loads."""
    found = facts.libcuda.would_load
    assert isinstance(found, Known)
    library = replace(found.value, **fields)  # type: ignore[arg-type]
    return replace(facts, libcuda=replace(facts.libcuda, would_load=Known(library, found.seen_in)))


def test_a_stale_library_is_named_with_its_version_the_driver_and_the_entry_to_remove() -> None:
    [stale] = seen(compat_stale, facts_of("h200-compat-stale"))
    assert stale.saw == (
        "libcuda 580.95.05 from /usr/local/cuda/compat (LD_LIBRARY_PATH) is older than the kernel driver 580.159.04 "
        "(/sys/module/nvidia/version); cuInit gives 803"
    )
    unwire = Unwire(("/usr/local/cuda/compat",), WiredBy.LIBRARY_PATH)
    assert ways_of(stale) == [(unwire,), (unwire, RemovePackages(("cuda-compat-13-0",)))]
    assert {one.proof for one in stale.answers} == {Proof.DOCUMENTED}


def test_a_stale_library_known_to_ldconfig_is_named_with_the_file_that_names_its_folder() -> None:
    [stale] = seen(compat_stale, facts_of("h100-driver-595-compat-580"))
    assert stale.saw == (
        "libcuda 580.173.02 from /usr/local/cuda-13.0/compat (/etc/ld.so.conf.d/cuda-compat.conf) is older than the "
        "kernel driver 595.58.03 (/sys/module/nvidia/version); cuInit gives 803"
    )
    conf = "/etc/ld.so.conf.d/cuda-compat.conf"
    assert ways_of(stale)[0] == (Unwire(("/usr/local/cuda-13.0/compat",), WiredBy.LOADER_CONF, conf),)


def test_versions_are_compared_as_numbers_though_as_text_580_95_sorts_after_580_159() -> None:
    assert "580.95.05" > "580.159.04"
    assert seen(compat_stale, facts_of("h200-compat-stale"))
    assert not seen(compat_stale, changed("h200-compat-stale", "driver=580.94.99"))


def test_a_stale_library_is_predicted_where_cuinit_was_not_called() -> None:
    [stale] = seen(compat_stale, changed("h200-compat-stale", "cuinit=unknown"))
    assert stale.saw.endswith("cuInit will give 803 (it was not called here)")


@pytest.mark.parametrize("setting", ["driver=580.95.05", "cuinit=0", "cuinit=999", "driver=unknown"])
def test_a_library_of_the_drivers_version_or_one_that_starts_or_fails_otherwise_is_not_stale(setting: str) -> None:
    assert not seen(compat_stale, changed("h200-compat-stale", setting))


def test_a_preloaded_stale_library_is_taken_out_of_ld_preload() -> None:
    facts = loading(
        facts_of("h200-compat-stale"), found_by=FoundBy.PRELOAD, entry="/usr/local/cuda/compat/libcuda.so.1"
    )
    [stale] = seen(compat_stale, facts)
    assert "(LD_PRELOAD)" in stale.saw
    assert ways_of(stale)[0] == (Unwire(("/usr/local/cuda/compat/libcuda.so.1",), WiredBy.PRELOAD),)


def test_what_only_the_cache_still_names_is_gone_once_ldconfig_runs() -> None:
    facts = facts_of("h100-driver-595-compat-580")
    first, *rest = facts.libcuda.candidates
    forgotten = replace(first, entry="/etc/ld.so.cache")
    libcuda = replace(facts.libcuda, candidates=(forgotten, *rest), would_load=Known(forgotten, "ld.so.cache"))
    stale_cache = replace(facts, libcuda=libcuda)
    [stale] = seen(compat_stale, stale_cache)
    assert ways_of(stale)[0] == (RefreshLoaderCache(),)
    assert not seen(compat_stale, after_all(ways_of(stale)[0], stale_cache, TABLES))


def test_every_compat_folder_of_the_path_is_named_as_the_path_spells_it() -> None:
    facts = facts_of("h200-compat-stale")
    path = ("/usr/local/cuda/compat", "/opt/lib", "/usr/local/cuda-12.8/compat/")
    [stale] = seen(compat_stale, replace(facts, libcuda=replace(facts.libcuda, ld_library_path=path)))
    assert ways_of(stale)[0] == (
        Unwire(("/usr/local/cuda/compat", "/usr/local/cuda-12.8/compat/"), WiredBy.LIBRARY_PATH),
    )


def test_a_geforce_with_the_images_compat_library_mounted_over_the_hosts_is_told_why() -> None:
    [refused] = seen(compat_not_eligible, facts_of("rtx4090-compat-image"))
    assert refused.saw == (
        "libcuda 530.30.02 from /usr/lib/x86_64-linux-gnu (put there by the container runtime from "
        "/usr/local/cuda-12.1/compat) is a compat library for the kernel driver 525.125.06 "
        "(/sys/module/nvidia/version), which NVIDIA GeForce RTX 4090 (NVML brand 5, GEFORCE) may not use; "
        "cuInit gives 804"
    )
    image, host = ways_of(refused)
    assert image == (Unwire(("/usr/local/cuda-12.1/compat",), WiredBy.CONTAINER_RUNTIME),)
    assert isinstance(host[0], AskPerson)
    assert host[0].why is Why.HOST


def test_a_geforce_is_refused_before_cuinit_is_called_and_a_data_center_gpu_is_not() -> None:
    [refused] = seen(compat_not_eligible, changed("rtx4090-compat-image", "cuinit=unknown"))
    assert refused.saw.endswith("cuInit will give 804 (it was not called here)")
    assert not seen(compat_not_eligible, changed("rtx4090-compat-image", "cuinit=unknown", "brand=14"))
    for brand in (0, 4):  # unknown and GRID, which the images let in
        assert not seen(compat_not_eligible, changed("rtx4090-compat-image", "cuinit=unknown", f"brand={brand}"))


def test_error_804_alone_is_proof_enough() -> None:
    facts = changed("rtx4090-compat-image", "brand=14")
    assert seen(compat_not_eligible, facts)
    assert seen(compat_not_eligible, replace(facts, compat=()))


def test_an_unused_library_is_named_with_the_branches_of_its_own_note() -> None:
    [unused] = seen(compat_unused, facts_of("h100-driver-570-compat-unused"))
    assert unused.saw == (
        "libcuda 580.95.05 in /usr/local/cuda-13.0/compat is not loaded; it takes branches 535, 550, 565, 570, 575, "
        "580 (its own note), the kernel driver is 570.133.20 (/sys/module/nvidia/version) and torch was built with "
        "CUDA 13.0 (/usr/local/lib/python3.12/dist-packages/torch/version.py)"
    )
    wired = WireCompat("/usr/local/cuda-13.0/compat", CudaVersion(13, 0), (535, 550, 565, 570, 575))
    assert ways_of(unused)[0] == (wired,)
    assert unused.answers[0].proof is Proof.PROVED_HERE


@pytest.mark.parametrize(
    "setting",
    [
        "brand=unknown",  # not known to be eligible
        "brand=15",
        "driver=560.28.03",  # not in the note
        "driver=580.105.08",  # newer than the library
        "torch.wheel_cuda=12.8",  # the wheel does not need it
        "driver_cuda=13.0",  # and cuInit gives 0: something makes up for the driver
    ],
)
def test_a_library_that_does_not_fit_or_is_not_needed_is_not_called_unused(setting: str) -> None:
    assert not seen(compat_unused, changed("h100-driver-570-compat-unused", setting))


def test_driver_550_may_use_compat_13_0_although_nvidias_table_no_longer_lists_the_branch() -> None:
    [unused] = seen(compat_unused, changed("h100-driver-570-compat-unused", "driver=550.54.15"))
    assert "the kernel driver is 550.54.15" in unused.saw


def test_a_library_without_a_note_is_judged_by_the_table() -> None:
    facts = facts_of("h100-driver-570-compat-unused")
    bare = replace(facts, compat=tuple(replace(each, note=Unknown("no note")) for each in facts.compat))
    [unused] = seen(compat_unused, bare)
    assert "forward-compatibility.html" in unused.saw or "ELF note" in unused.saw
    unlisted = override(bare, ("driver=555.42.02",))
    assert not seen(compat_unused, unlisted)
    assert not seen(compat_branch_not_accepted, unlisted)  # not listed is not refused


def test_a_library_that_lacks_the_branch_says_which_it_takes() -> None:
    [refused] = seen(compat_branch_not_accepted, facts_of("h100-driver-560-compat-13-1"))
    assert refused.saw == (
        "libcuda 590.44.01 in /usr/local/cuda-13.1/compat is not loaded; it takes kernel driver branches 535, 550, "
        "570, 575, 580, 590 (its own note), and the kernel driver is 560.28.03 (/sys/module/nvidia/version)"
    )


def test_a_loaded_library_that_lacks_the_branch_is_unwired_first() -> None:
    facts = changed("h100-driver-570-compat", "driver=560.28.03", "cuinit=803")
    [refused] = seen(compat_branch_not_accepted, facts)
    assert "is loaded" in refused.saw
    assert refused.saw.endswith("cuInit gives 803")
    assert ways_of(refused)[0] == (Unwire(("/usr/local/cuda-13.0/compat",), WiredBy.LIBRARY_PATH),)
    assert not seen(compat_branch_not_accepted, override(facts, ("cuinit=0",)))


def test_the_l40s_pod_needs_no_compat_since_cuda_12_9_runs_on_a_12_8_driver() -> None:
    facts = facts_of("l40s-driver-570-compat-12-9")
    assert facts.compat  # it is there, and NGC's entry point left it out
    assert [rule.code for rule in COMPAT_RULES if seen(rule.check, facts)] == []


def test_compat_in_the_shell_start_up_works_today_and_is_called_baked_in() -> None:
    [baked] = seen(compat_baked_in, facts_of("h100-driver-570-compat"))
    assert baked.saw == (
        "libcuda 580.95.05 from /usr/local/cuda-13.0/compat (LD_LIBRARY_PATH) works on the kernel driver 570.133.20 "
        "(/sys/module/nvidia/version); with a newer driver than the library it will not"
    )
    folder = "/usr/local/cuda-13.0/compat"
    wired = WireCompat(folder, CudaVersion(13, 0), (535, 550, 565, 570, 575))
    assert ways_of(baked) == [(Unwire((folder,), WiredBy.LIBRARY_PATH), wired)]


def test_a_baked_in_library_that_the_driver_does_not_need_is_taken_out_alone() -> None:
    [baked] = seen(compat_baked_in, changed("h100-driver-570-compat", "driver=580.65.06", "cuinit=0"))
    assert ways_of(baked)[0] == (Unwire(("/usr/local/cuda-13.0/compat",), WiredBy.LIBRARY_PATH),)


@pytest.mark.parametrize(
    ("path", "found_by", "entry"),
    [
        ("/usr/local/cuda/compat/libcuda.so.1", FoundBy.CACHE, "/etc/ld.so.conf.d/00-compat-3117049.conf"),
        ("/usr/local/cuda/compat/lib/libcuda.so.1", FoundBy.LIBRARY_PATH, "/usr/local/cuda/compat/lib"),
        ("/usr/local/cuda-13.0/compat/libcuda.so.1", FoundBy.PRELOAD, "libcuda.so.1"),
    ],
)
def test_what_is_decided_at_each_start_is_not_baked_in(path: str, found_by: FoundBy, entry: str) -> None:
    facts = loading(facts_of("h100-driver-570-compat"), path=path, found_by=found_by, entry=entry)
    assert not seen(compat_baked_in, facts)


def test_a_stub_is_named_with_the_driver_library_behind_it() -> None:
    [stub] = seen(stub_libcuda_wins, facts_of("h100-stub-libcuda"))
    assert stub.saw == (
        "/usr/local/cuda-13.0/lib64/stubs/libcuda.so.1 (LD_LIBRARY_PATH) is the toolkit's stub; cuInit gives 34; the "
        "driver's own /usr/lib/x86_64-linux-gnu/libcuda.so.1 is behind it"
    )
    assert ways_of(stub) == [(Unwire(("/usr/local/cuda-13.0/lib64/stubs",), WiredBy.LIBRARY_PATH),)]


def test_error_34_of_a_stub_copied_elsewhere_is_enough() -> None:
    facts = loading(
        facts_of("h100-stub-libcuda"), is_stub=False, path="/opt/lib/libcuda.so.1", found_by=FoundBy.DEFAULT
    )
    [stub] = seen(stub_libcuda_wins, facts)
    assert ways_of(stub) == [(RemoveFiles(("/opt/lib/libcuda.so.1",)),)]


def test_a_libcuda_out_of_reach_is_named_with_its_folder() -> None:
    [missing] = seen(libcuda_missing, facts_of("gke-libcuda-out-of-reach"))
    assert missing.saw == (
        "kernel driver 580.95.05 (/sys/module/nvidia/version) is there, and /usr/local/nvidia/lib64/libcuda.so.1 too; "
        "that folder is neither in LD_LIBRARY_PATH nor in the loader's cache"
    )
    folder = "/usr/local/nvidia/lib64"
    assert ways_of(missing) == [
        (RegisterFolder(folder, "/etc/ld.so.conf.d/nvidia-driver.conf"),),
        (SetVariables((Variable("LD_LIBRARY_PATH", folder),), Scope.PROGRAM),),
    ]
    assert [one.why_not for one in missing.answers if one.why_not] == [f"the driver's libcuda is in {folder}"]


def test_a_container_without_the_compute_capability_is_told_to_ask_for_it() -> None:
    facts = facts_of("gke-libcuda-out-of-reach")
    container = replace(
        facts.container,
        kind=Known(ContainerKind.DOCKER, "/.dockerenv"),
        driver_capabilities=Known("graphics,utility", "NVIDIA_DRIVER_CAPABILITIES"),
    )
    bare = replace(facts, libcuda=replace(facts.libcuda, out_of_reach=()), container=container)
    [missing] = seen(libcuda_missing, bare)
    assert "no libcuda.so.1 in LD_LIBRARY_PATH, ld.so.cache or the default folders" in missing.saw
    asked = ("--gpus", "all", "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    assert ways_of(missing) == [(StartContainer(asked, gives_gpus=True),)]
    plain = replace(bare, container=replace(container, kind=Known(ContainerKind.NONE, "/proc/1")))
    [missing] = seen(libcuda_missing, plain)
    assert ways_of(missing) == [(InstallPackages(("libnvidia-compute-580",), version="580.95.05*"),)]


def test_an_old_loader_cache_is_told_from_a_missing_library() -> None:
    facts = facts_of("gke-libcuda-out-of-reach")
    later = LibcudaCandidate(
        path="/usr/lib64/libcuda.so.1",
        real_path="/usr/lib64/libcuda.so.580.95.05",
        version=Known(DriverVersion.parse("580.95.05"), "x"),
        found_by=FoundBy.LATER_CACHE_ENTRY,
        entry="/etc/ld.so.cache",
        is_stub=False,
        is_compat=False,
        is_damaged=False,
    )
    old = replace(facts, libcuda=replace(facts.libcuda, candidates=(later,), out_of_reach=()))
    [missing] = seen(libcuda_missing, old)
    assert "does not try the next one, /usr/lib64/libcuda.so.1" in missing.saw
    assert ways_of(missing) == [(RefreshLoaderCache(),)]


def test_a_machine_without_any_driver_is_left_to_the_rules_about_drivers() -> None:
    facts = changed("gke-libcuda-out-of-reach", "driver=unknown", "libcuda.out_of_reach=")
    assert not seen(libcuda_missing, facts)


def test_an_empty_libcuda_is_named_with_the_file_behind_the_link() -> None:
    [damaged] = seen(libcuda_damaged, facts_of("container-empty-libcuda"))
    assert damaged.saw == (
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1 (/etc/ld.so.cache) is not an ELF file; it is a link to "
        "/usr/lib/x86_64-linux-gnu/libcuda.so.515.43.04"
    )
    [(remove, start, look)] = ways_of(damaged)
    assert remove == RemoveFiles(("/usr/lib/x86_64-linux-gnu/libcuda.so.515.43.04",))
    assert start == StartContainer(("--gpus", "all"), gives_gpus=True)
    assert isinstance(look, AskPerson)
    assert not look.cures


@pytest.mark.parametrize("name", NAMES)
def test_at_most_one_rule_says_why_the_compat_library_in_use_fails(name: str) -> None:
    checks: tuple[Check, ...] = (compat_stale, compat_not_eligible, compat_baked_in, compat_unused)
    assert len([check for check in checks if seen(check, facts_of(name))]) <= 1


@pytest.mark.parametrize("rule", COMPAT_RULES, ids=lambda rule: rule.code)
def test_a_rule_says_nothing_of_a_machine_of_which_nothing_is_known(rule: Rule) -> None:
    assert not seen(rule.check, nothing_known(facts_of("h200-compat-stale")))


@pytest.mark.parametrize(
    "name", ["h200-compat-stale", "rtx4090-compat-image", "h100-driver-570-compat-unused", "gke-libcuda-out-of-reach"]
)
def test_no_rule_fails_whatever_single_fact_is_missing(name: str) -> None:
    for path, facts in one_less_known(facts_of(name)):
        for rule in COMPAT_RULES:
            for each in seen(rule.check, facts):
                assert "Unknown(" not in each.saw, path
                assert "Unknown(" not in str(each.answers), path
