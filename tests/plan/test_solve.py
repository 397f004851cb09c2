"""Torch and its companions solved together, on recorded machines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_choice import wheels_that_run
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.plan.builds import Surety, builds_for, place_of
from firstlight.plan.pins import admits, misfit, pin_on, takes_torch
from firstlight.plan.solve import WIDEST, PackageSet, Solution, solve
from firstlight.plan.want import PROJECTS, Channel, Want, parse_wants
from firstlight.tables import load
from firstlight.versions import CudaVersion, TorchVersion
from tests.diagnosis.rule_case import facts_of

TABLES = load()
INDEX = "https://download.pytorch.org/whl/"
FIELD_REPORT_000 = (
    "torch==2.9.0+cu130",
    "torchvision==0.24.0+cu130",
    "torchaudio==2.9.0",
    "xformers==0.0.32.post1",
    "vllm==0.11.0",
    "triton==3.4.0",
)


def question_of(machine: str, *settings: str) -> Question:
    facts = facts_of(machine)
    return Question(override(facts, settings) if settings else facts, TABLES)


def solved(
    machine: str, *wants: str, channel: Channel = Channel.STABLE, driver_cuda: CudaVersion | None = None
) -> Solution:
    return solve(question_of(machine), parse_wants(wants), channel=channel, driver_cuda=driver_cuda)


def names(packages: PackageSet) -> list[str]:
    return [pick.requirement for pick in packages.picks]


def assert_coherent(packages: PackageSet) -> None:
    """What pip would check: every requirement of every pick on another pick holds."""
    chosen = {pick.project: pick.version for pick in packages.picks}
    torch = TorchVersion.parse(packages.torch.version)
    for pick in packages.picks[1:]:
        row = TABLES.package_release(pick.project, pick.version)
        assert row is not None
        assert takes_torch(TABLES, row, torch, machine=packages.machine), names(packages)
        for pin in row.pins(packages.machine):
            if pin.project in chosen:
                assert admits(pin.spec, chosen[pin.project]), f"{pick.requirement} requires {pin}"
            else:
                assert pin.project not in PROJECTS, f"{pick.requirement} brings {pin}, which is not in the set"


def test_field_report_000s_packages_are_refused_naming_each_requirement_that_clashes() -> None:
    solution = solved("h100-driver-570", *FIELD_REPORT_000, driver_cuda=CudaVersion(13, 0))
    assert solution.sets == ()
    assert [clash.sentence for clash in solution.clashes] == [
        "vllm 0.11.0 requires torch==2.8.0; wanted is torch==2.9.0+cu130.",
        "PyPI's wheel of vllm 0.11.0 is linked with libcudart.so.12; wanted is torch==2.9.0+cu130, which has CUDA 13.",
        "xformers 0.0.32.post1 requires torch==2.8.0; wanted is torch==2.9.0+cu130.",
        "PyPI's wheel of xformers 0.0.32.post1 is linked with libcudart.so.12; wanted is torch==2.9.0+cu130, "
        "which has CUDA 13.",
        "torch 2.9.0 requires triton==3.5.0; wanted is triton==3.4.0.",
        "vllm 0.11.0 requires torchvision==0.23.0; wanted is torchvision==0.24.0+cu130.",
        "vllm 0.11.0 requires torchaudio==2.8.0; wanted is torchaudio==2.9.0.",
    ]
    assert solution.impossible.endswith("cannot be installed together: 7 requirements clash.")
    assert all("PyPI" in clash.said_by for clash in solution.clashes)


def test_the_nearest_to_field_report_000_keeps_torch_and_the_next_keeps_vllm() -> None:
    keeps_torch, keeps_vllm = solved("h100-driver-570", *FIELD_REPORT_000).nearest
    assert names(keeps_torch) == [
        "torch==2.9.0",
        "vllm==0.11.1",
        "xformers==0.0.33.post1",
        "torchvision==0.24.0",
        "torchaudio==2.9.0",
        "triton==3.5.0",
    ]
    assert keeps_torch.torch.cuda == Known(CudaVersion(12, 8), seen_in=_source("2.9.0"))
    assert names(keeps_vllm)[:3] == ["torch==2.8.0", "vllm==0.11.0", "xformers==0.0.32.post1"]
    assert_coherent(keeps_torch)
    assert_coherent(keeps_vllm)


def _source(torch: str) -> str:
    row = TABLES.torch_release(torch)
    assert row is not None
    return f"{row.source}, {row.date}"


def test_cu130_needs_a_driver_of_its_major_and_has_it_with_forward_compat() -> None:
    as_it_is = solved("h100-driver-570", "torch==2.9.0+cu130")
    assert as_it_is.sets == ()
    assert as_it_is.impossible == (
        "torch 2.9.0+cu130 needs a driver that runs CUDA 13; the driver 570.133.20 here runs CUDA 12."
    )
    assert names(as_it_is.nearest[0]) == ["torch==2.9.0"]
    for reach in (CudaVersion(13, 0), WIDEST):
        [found] = solved("h100-driver-570", "torch==2.9.0+cu130", driver_cuda=reach).sets
        assert names(found) == ["torch==2.9.0+cu130"]
        assert found.torch.index == INDEX + "cu130"
        assert "RELEASE.md" in found.proof_by


def test_an_unknown_build_is_impossible_naming_those_there_are() -> None:
    solution = solved("h200-healthy", "torch==2.9.0+cu199")
    assert solution.sets == ()
    assert solution.impossible == "torch 2.9.0 has no cu199; known for it: cu126, cu128 and cu130."
    assert names(solution.nearest[0]) == ["torch==2.9.0"]


def test_python_3_15_is_impossible_for_torch_2_9_and_both_ways_out_are_named() -> None:
    solution = solved("h200-healthy", "torch==2.9.0", "python==3.15")
    assert solution.sets == ()
    assert solution.impossible == (
        "torch 2.9.0 has wheels for Python 3.10, 3.11, 3.12, 3.13, 3.13t, 3.14 and 3.14t; this is Python 3.15. "
        "For Python 3.15 there is torch 2.15.0; an environment of Python 3.14 takes torch 2.9.0."
    )
    assert names(solution.nearest[0]) == ["torch==2.15.0"]


def test_no_other_python_is_named_for_a_torch_that_this_gpu_cannot_run() -> None:
    impossible = solved("h200-healthy", "torch==1.13.1").impossible
    assert "which NVIDIA H200 (capability 9.0) cannot run. For Python 3.12 there are torch 2.2.0 to" in impossible
    assert "an environment of Python" not in impossible


def test_the_python_of_the_environment_counts_where_none_is_wanted() -> None:
    facts = facts_of("h200-healthy")
    assert facts.environment is not None
    environment = replace(facts.environment, python_version=Known("3.15.0", "pyvenv.cfg"))
    python = replace(facts.python, environments=(environment,), selected=Known(0, "test"))
    question = Question(replace(facts, python=python), TABLES)
    assert solve(question, parse_wants(("torch==2.9.0",)), channel=Channel.STABLE).impossible.startswith(
        "torch 2.9.0 has wheels for Python 3.10"
    )
    [found] = solve(question, parse_wants(("torch==2.15.0",)), channel=Channel.STABLE).sets
    assert names(found) == ["torch==2.15.0"]


def test_a_c_library_that_is_too_old_for_the_wheels_is_named_and_an_older_torch_comes_nearest() -> None:
    wants = parse_wants(("torch==2.9.0",))
    solution = solve(question_of("h200-no-torch", "glibc=2.17"), wants, channel=Channel.STABLE)
    assert solution.sets == ()
    assert solution.impossible == "The wheels of torch 2.9.0 need glibc 2.28 or newer; this machine has 2.17."
    assert names(solution.nearest[0]) == ["torch==2.6.0"]
    assert solve(question_of("h200-no-torch", "glibc=2.28"), wants, channel=Channel.STABLE).sets


def test_a_python_that_leaves_one_torch_says_so_of_what_does_not_go_with_it() -> None:
    solution = solved("h200-healthy", "vllm", "python==3.15")
    [clash] = solution.clashes
    assert clash.sentence == (
        "vllm 0.8.3, the newest of vllm for this machine, requires torch==2.6.0; wanted is torch 2.15.0, the only one "
        "that runs here. No other release of vllm fits either."
    )


def test_aarch64_before_2_11_is_impossible_from_pypi_and_the_first_that_works_is_named() -> None:
    solution = solved("gh200-torch-pypi", "torch==2.9.0")
    assert solution.sets == ()
    assert solution.impossible == (
        "PyPI's wheel of torch==2.9.0 for aarch64 has no CUDA; the first that has is 2.11.0. "
        "Reported to be on PyTorch's index, and taken where asked for by name: torch==2.9.0+cu128."
    )
    assert names(solution.nearest[0]) == ["torch==2.11.0"]
    assert solution.nearest[0].machine == "aarch64"


def test_a_build_that_is_only_reported_is_taken_by_name_and_the_proof_says_so() -> None:
    [found] = solved("gh200-torch-pypi", "torch==2.9.0+cu128").sets
    assert "That torch 2.9.0+cu128 was built for aarch64 is reported, not documented." in found.proof_by


def test_a_package_without_wheels_for_the_processor_is_named() -> None:
    solution = solved("gh200-torch-pypi", "xformers")
    assert solution.impossible.startswith("xformers 0.0.35 has no wheel for aarch64 on PyPI; it has some for x86_64.")
    assert solution.nearest == ()


def test_a_volta_gets_cu126_and_a_wanted_cu130_names_the_capability() -> None:
    best = solved("v100-torch-cu130").sets[0]
    assert best.torch.local == "cu126"
    wanted = solved("v100-torch-cu130", "torch==2.9.0+cu130")
    assert "which Tesla V100-PCIE-16GB (capability 7.0) cannot run." in wanted.impossible


def test_nothing_wanted_gives_the_newest_that_runs() -> None:
    best, *others = solved("h200-healthy").sets
    assert names(best) == ["torch==2.15.0"]
    assert best.torch.index == ""
    assert [each.torch.version for each in others] == ["2.14.1", "2.14.0", "2.13.0", "2.12.1"]


def test_vllm_brings_the_newest_torch_it_has_a_release_for_and_what_it_pins() -> None:
    best = solved("h200-healthy", "vllm").sets[0]
    assert names(best) == ["torch==2.13.0", "vllm==0.32.0", "torchvision==0.28.0", "torchaudio==2.11.0"]
    assert "torchaudio 2.11.0 names no torch; later ones are used with it." in best.proof_by


def test_vllm_on_a_driver_of_cuda_12_is_one_that_is_linked_with_cuda_12() -> None:
    best = solved("h100-driver-550-cu128", "vllm").sets[0]
    assert names(best)[:2] == ["torch==2.10.0", "vllm==0.19.1"]
    assert best.picks[1].cuda == Unknown("its libraries name libcudart.so.12")


def test_a_triton_alone_decides_the_torch() -> None:
    [found] = solved("h200-healthy", "triton==3.4.0").sets
    assert names(found) == ["torch==2.8.0", "triton==3.4.0"]


def test_flash_attention_is_compiled_here_against_the_torch_that_is_taken() -> None:
    best = solved("h200-healthy", "flash-attn", "torch==2.13.0").sets[0]
    flash = best.pick("flash-attn")
    assert flash is not None
    assert flash.from_source
    assert flash.cuda == Known(CudaVersion(13, 0), "compiled here against torch 2.13.0")
    assert "that it compiles here is not known" in best.proof_by


def test_companions_come_from_the_index_of_torchs_build_or_from_pypi_where_the_cuda_major_is_the_same() -> None:
    best = solved("h200-healthy", "torch==2.9.0+cu130", "torchvision", "torchaudio").sets[0]
    assert names(best) == ["torch==2.9.0+cu130", "torchvision==0.24.0+cu130", "torchaudio==2.9.0+cu130"]
    assert {pick.index for pick in best.picks} == {INDEX + "cu130"}
    later = solved("h200-healthy", "torch==2.14.1+cu132", "torchaudio").sets[0]
    assert names(later) == ["torch==2.14.1+cu132", "torchaudio==2.11.0"], "there was no cu132 when it came out"


def test_a_wheel_linked_with_another_cuda_major_is_not_taken_from_pypi() -> None:
    best = solved("h200-healthy", "xformers").sets[0]
    xformers = best.pick("xformers")
    assert xformers is not None
    assert (best.torch.version, xformers.requirement) == ("2.14.1", "xformers==0.0.35+cu130")
    assert "That PyTorch's index has xformers==0.0.35+cu130 was not looked up." in best.proof_by


def test_two_builds_in_one_set_are_refused() -> None:
    solution = solved("h200-healthy", "torch==2.9.0+cu130", "torchvision==0.24.0+cu128")
    [clash] = solution.clashes
    assert clash.sentence == (
        "torchvision==0.24.0+cu128 is a build for cu128; wanted is torch==2.9.0+cu130. Both have to be the same build."
    )
    assert [names(each) for each in solution.nearest] == [
        ["torch==2.9.0+cu130", "torchvision==0.24.0+cu130"],
        ["torch==2.9.0+cu128", "torchvision==0.24.0+cu128"],
    ]


@pytest.mark.parametrize(
    ("want", "said"),
    [
        ("torch==2.16.0", "torch==2.16.0 is not known: the newest torch in the tables, of {date}, is 2.15.0."),
        ("torch==2.9.7", "There is no torch==2.9.7; the release before it is 2.9.1."),
        ("vllm==99", "vllm==99 is not known: the tables, of {date}, have vllm 0.6.0 to 0.32.0."),
    ],
)
def test_a_version_that_is_not_there_is_named_with_those_that_are(want: str, said: str) -> None:
    solution = solved("h200-healthy", want)
    assert solution.sets == ()
    assert solution.impossible == said.format(date=TABLES.newest_date())
    assert solution.nearest


def test_a_range_that_clashes_says_what_its_newest_requires() -> None:
    solution = solved("h200-healthy", "vllm>=0.20", "torch==2.9.0")
    assert solution.clashes[0].sentence == (
        "vllm 0.32.0, the newest of vllm>=0.20 for this machine, requires torch==2.13.0; wanted is torch==2.9.0. "
        "No other release of vllm>=0.20 fits either."
    )
    assert [names(each)[:2] for each in solution.nearest] == [
        ["torch==2.9.0", "vllm==0.13.0"],
        ["torch==2.11.0", "vllm==0.26.0"],
    ]


def test_another_processor_has_no_torch() -> None:
    facts = facts_of("h200-healthy")
    question = Question(replace(facts, place=replace(facts.place, arch="riscv64")), TABLES)
    solution = solve(question, (), channel=Channel.STABLE)
    assert solution == Solution((), (), "torch has no wheel for riscv64; known are x86_64 and aarch64.", ())


def test_a_nightly_has_no_number_that_the_tables_know_and_the_proof_says_so() -> None:
    [found] = solved("h200-healthy", "torch", "torchvision", channel=Channel.NIGHTLY).sets
    assert names(found) == ["torch", "torchvision"]
    assert {pick.index for pick in found.picks} == {INDEX + "nightly/cu132"}
    assert "was not looked at" in found.proof_by
    [dated] = solved("h200-healthy", "torch==2.16.0.dev20261110+cu130").sets
    assert names(dated) == ["torch==2.16.0.dev20261110+cu130"]
    assert dated.torch.index == INDEX + "nightly/cu130"


def test_a_release_is_not_looked_for_among_nightlies() -> None:
    solution = solved("h200-healthy", "torch==2.10.0+cu130", channel=Channel.NIGHTLY)
    assert solution.impossible.startswith("torch==2.10.0+cu130 is a release, and the nightly channel has none")
    assert names(solution.nearest[0]) == ["torch==2.10.0+cu130"]


def test_releases_of_vllm_do_not_go_with_a_nightly() -> None:
    solution = solved("h200-healthy", "vllm", channel=Channel.NIGHTLY)
    assert solution.impossible == "vllm cannot be installed with a nightly torch: releases require a released torch."
    assert "vllm==0.32.0" in names(solution.nearest[0])


@pytest.mark.parametrize(
    "machine", ["h100-driver-570", "h200-healthy", "v100-torch-cu130", "thor-torch-cu128", "gpu-less"]
)
def test_every_build_that_is_said_to_run_is_one_that_wheel_choice_knows_to_run(machine: str) -> None:
    question = question_of(machine)
    known = {(wheel.torch.public, wheel.cuda) for wheel in wheels_that_run(question)}
    any_torch = Want("torch", "", "", "torch")
    builds = builds_for(question, any_torch, place=place_of(question, ()))
    sure = {(b.torch.public, b.cuda) for b in builds if not b.why_not and b.surety is Surety.DOCUMENTED}
    assert sure
    assert sure <= known
    assert not known & {(build.torch.public, build.cuda) for build in builds if build.why_not}


_WANTS = st.lists(
    st.sampled_from(
        [
            *("torch==2.8.0", "torch==2.9.0", "torch==2.9.0+cu130", "torch>=2.11", "torch==2.13.0", "torch==2.15.0"),
            *("torchvision", "torchvision==0.24.0", "torchaudio", "torchaudio==2.9.0", "triton==3.5.0", "triton"),
            *("vllm", "vllm==0.11.0", "vllm>=0.12", "xformers", "xformers==0.0.32.post1", "flash-attn"),
            *("python==3.9", "python==3.12", "python==3.15"),
        ]
    ),
    max_size=5,
    unique_by=lambda text: text.split("=")[0].split(">")[0],
)


@settings(max_examples=60, deadline=None)
@given(
    wants=_WANTS,
    machine=st.sampled_from(["h100-driver-570", "h200-healthy", "gh200-torch-pypi", "v100-torch-cu130"]),
)
def test_sets_are_coherent_hold_every_want_and_do_not_depend_on_the_order_of_wants(
    wants: list[str], machine: str
) -> None:
    solution = solved(machine, *wants)
    parsed = parse_wants(tuple(wants))
    for packages in (*solution.sets, *solution.nearest):
        assert_coherent(packages)
        assert {want.project for want in parsed} - {"python"} <= {pick.project for pick in packages.picks} | {"torch"}
    for packages in solution.sets:
        for want in parsed:
            pick = packages.pick(want.project)
            assert want.project == "python" or (pick is not None and admits(want.specifier, pick.version))
    assert bool(solution.sets) is (solution.impossible == "")
    turned = solved(machine, *reversed(wants))
    assert (turned.sets, turned.nearest, turned.clashes) == (solution.sets, solution.nearest, solution.clashes)


def test_every_pick_fits_the_processor_and_python() -> None:
    question = question_of("h200-healthy")
    place = place_of(question, ())
    for packages in solved("h200-healthy", "vllm", "xformers", "torchvision").sets:
        for pick in packages.picks[1:]:
            row = TABLES.package_release(pick.project, pick.version)
            assert row is not None
            assert misfit(row, place) == ""
            assert pin_on(row, "torch", machine="x86_64") is not None or pick.project == "torchaudio"
