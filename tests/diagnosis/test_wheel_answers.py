"""Which other torch is offered, in which order, on every recorded machine: what keeps most of the user's first."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Question, Seen
from firstlight.diagnosis.wheel_answers import torch_answers, torch_or_else, within
from firstlight.diagnosis.wheel_choice import wheels_that_run
from firstlight.facts.known import Known
from firstlight.facts.override import override
from firstlight.tables import load
from firstlight.versions import TorchVersion
from firstlight.ways.kinds import BuildFromSource, InstallWheels, Package
from firstlight.ways.way import Proof
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.diagnosis.wheels import torches

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))


def _offered(question: Question) -> list[str]:
    return torches(Seen("", torch_answers(question)))


def _judged(question: Question) -> TorchVersion | None:
    torch = question.facts.torch
    version = torch.value.version if isinstance(torch, Known) else torch
    return version.value if isinstance(version, Known) else None


@pytest.mark.parametrize(
    ("machine", "first"),
    [("gh200-torch-pypi", "2.9.0+cu128"), ("rocm-torch-on-nvidia", "2.9.0+cu130"), ("v100-torch-cu130", "2.9.0+cu126")],
)
def test_the_same_release_comes_first_in_the_cuda_that_suits_the_gpu(machine: str, first: str) -> None:
    assert _offered(Question(facts_of(machine), TABLES))[0] == first


@pytest.mark.parametrize("name", NAMES)
def test_the_first_is_of_the_judged_release_or_minor_wherever_one_runs(name: str) -> None:
    for settings in ((), ("driver=570.133.20",), ("driver=535.104.05",)):
        question = Question(override(facts_of(name), settings), TABLES)
        judged, offered = _judged(question), [TorchVersion.parse(each) for each in _offered(question)]
        if judged is None or not offered:
            continue
        same = [each for each in offered if each.release[:2] == judged.release[:2]]
        assert not same or offered[0] in same, settings
        assert judged.text not in [each.text for each in offered], settings
        older = [each for each in offered if each.release[:2] < judged.release[:2]]
        assert not older or len(offered) == 1, settings  # only where nothing else runs


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_guessed_is_among_the_wheels_that_run_and_says_what_tells_so(name: str) -> None:
    question = Question(facts_of(name), TABLES)
    runs = {(wheel.torch.public, wheel.index) for wheel in wheels_that_run(question)}
    for answer in torch_answers(question):
        for way in answer.ways:
            if isinstance(way, InstallWheels) and answer.proof is not Proof.GUESSED:
                torch = way.package("torch")
                assert torch is not None
                assert (torch.version.partition("+")[0], way.index) in runs
                assert answer.proof_by.startswith("it has code for ")


def test_where_no_wheel_is_known_to_run_one_is_guessed_and_a_build_comes_last() -> None:
    answers = torch_or_else(Question(override(facts_of("v100-torch-cu130"), ("capability=3.5",)), TABLES))
    assert [each.proof for each in answers if each.ways] == [Proof.GUESSED] * len(
        [each for each in answers if each.ways]
    )
    assert isinstance(answers[-1].ways[0], BuildFromSource)


def test_what_cannot_be_had_is_said_with_the_place() -> None:
    [refused] = torch_answers(Question(facts_of("h100-driver-570"), TABLES), lambda _: False)
    assert refused.why_not == (
        "no other official wheel is known to run on NVIDIA H100 80GB HBM3 (9.0) here (x86_64, Python 3.12.3, "
        "driver 570.133.20)"
    )


@pytest.mark.parametrize(
    ("specifier", "package"),
    [
        ("==9.1.0.70", Package("p", "9.1.0.70")),
        ("== 3.5.0", Package("p", "3.5.0")),
        (">=2.29, <3", Package("p", bounds=">=2.29,<3")),
        ("==13.0.*", Package("p", bounds="==13.0.*")),
        ("", Package("p")),
    ],
)
def test_a_requirement_is_a_version_or_bounds(specifier: str, package: Package) -> None:
    assert within("p", specifier) == package
    assert package.requirement == f"p{specifier.replace(' ', '')}"
