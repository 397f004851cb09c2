"""What-if questions (--set, --want) and absurd facts: no contradiction, no empty remedy, no crash, safe commands."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Diagnosis, Goal, Question, Severity
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wanted import with_wanted
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.tables import load
from firstlight.versions import TorchVersion
from firstlight.ways.kinds import BuildFromSource, MakeEnvironment
from firstlight.ways.way import Proof
from tests.diagnosis.absurd import absurd_facts
from tests.diagnosis.rule_case import MACHINES, facts_of, ways_of
from tests.diagnosis.wheels import torches, wheels

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
VARIATIONS = (
    (),
    ("driver=470.82.01",),
    ("driver=550.54.15",),
    ("driver=unknown",),
    *((f"cuinit={code}",) for code in (3, 34, 46, 100, 304, 802, 803, 804, 805, 999)),
    ("libcuda.device_count=0", "cuinit=0"),
    ("glibc=2.12",),
)


def _judged(facts: Facts, *wants: str, goal: Goal = Goal.INFER) -> Diagnosis:
    return judge(Question(with_wanted(facts, TABLES, wants), TABLES, goal, wants), RULES)


def _all_words(diagnosis: Diagnosis) -> str:
    parts = ((each.title, *each.saw, each.means) for each in diagnosis.findings)
    return "\n".join(word for part in parts for word in part)


def test_a_pretended_driver_takes_what_was_seen_with_the_real_one_with_it() -> None:
    facts = override(facts_of("h200"), ("driver=570.133.20",))
    for fact in (facts.libcuda.driver_cuda, facts.libcuda.init_code, facts.libcuda.device_count):
        assert fact == Unknown("--set driver: not observed")
    kept = override(facts_of("h200"), ("driver_cuda=13.0", "driver=570.133.20"))
    assert isinstance(kept.libcuda.driver_cuda, Known)


def test_the_same_driver_pretended_changes_nothing_that_was_seen() -> None:
    assert isinstance(override(facts_of("h200"), ("driver=580.159.04",)).libcuda.driver_cuda, Known)


def test_the_remedy_for_a_pretended_driver_is_not_the_wheel_that_was_refused() -> None:
    finding = _judged(override(facts_of("h200"), ("driver=570.133.20",))).of("driver-too-old-for-wheel")
    assert finding is not None
    assert "offers CUDA 12.8" in finding.saw[0]
    assert "2.11.0+cu128" in torches(finding)
    assert not any(version.endswith("+cu130") for version in torches(finding))


def test_a_pretended_code_is_named_by_the_tables_and_not_by_what_was_seen_before() -> None:
    words = _all_words(_judged(override(facts_of("h200"), ("cuinit=804",))))
    assert "CUDA_SUCCESS" not in words
    assert "804 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" in words
    assert "is newer than" not in words


@pytest.mark.parametrize("want", ["torch==2.9.0+cu999", "torch==2.12.0+cu124"])
def test_a_variant_that_does_not_exist_is_refused_with_those_that_do(want: str) -> None:
    with pytest.raises(BadInput, match=r"the (?:oldest|newest) CUDA it is built for is 1\d\.\d \(cu126, ") as caught:
        _judged(facts_of("h200-healthy"), want)
    assert caught.value.exit_code == 2


def test_a_torch_newer_than_the_tables_is_refused_with_the_newest_and_their_date() -> None:
    with pytest.raises(BadInput, match=rf"2\.15\.0 \(they are of {TABLES.newest_date()}\)"):
        _judged(facts_of("h200-healthy"), "torch==99.0")


@pytest.mark.parametrize("want", ["torch==2.16.0.dev20261101+cu134", "torch==2.9.0+cu130", "torch==2.9.1"])
def test_nightlies_and_known_releases_may_be_wanted(want: str) -> None:
    _judged(facts_of("h200-healthy"), want)


def test_a_wanted_torch_is_never_called_installed_and_brings_its_own_pins() -> None:
    diagnosis = _judged(facts_of("h100-driver-570"), "torch==2.9.0+cu130")
    finding = diagnosis.of("driver-too-old-for-wheel")
    assert finding is not None
    assert finding.title == "The GPU driver is too old for the wanted torch wheel."
    off_pin = _judged(facts_of("h100-cudnn-off-pin"), "torch==2.9.0")
    assert off_pin.of("nvidia-wheel-off-pin") is None
    assert _judged(facts_of("h100-triton-3-4"), "torch==2.9.0").of("companions-disagree") is None
    other = _judged(facts_of("vllm-torch-2-9"), "torch==2.9.1").of("companion-wants-other-torch")
    assert other is not None
    assert "wanted is 2.9.1" in other.saw[0]


def test_a_cpu_torch_may_be_wanted_where_there_is_no_gpu() -> None:
    assert not _judged(facts_of("gpu-less"), "torch==2.9.0+cpu").blocked
    assert _judged(facts_of("gpu-less"), "torch==2.9.0+cu130").blocked


def test_a_wanted_torch_without_a_wheel_for_this_python_blocks() -> None:
    diagnosis = _judged(facts_of("h200-no-torch"), "torch==2.1.0")
    assert diagnosis.primary == "no-wheel-for-python"
    finding = diagnosis.of("no-wheel-for-python")
    assert finding is not None
    assert finding.saw[0].startswith("torch 2.1.0 has wheels for Python 3.8, 3.9, 3.10 and 3.11 (PyPI, ")
    assert "this is Python 3.12.3" in finding.saw[0]
    assert ways_of(finding)[0] == (MakeEnvironment("~/venv-3.11", "3.11"), wheels("torch==2.1.0"))
    assert torches(finding)[1].startswith("2.2.0")  # the nearest for this Python


@pytest.mark.parametrize(("glibc", "blocked"), [("2.17", True), ("2.27", True), ("2.28", False), ("unknown", False)])
def test_a_wanted_torch_whose_wheels_need_a_newer_c_library_blocks(glibc: str, *, blocked: bool) -> None:
    diagnosis = _judged(override(facts_of("h200-no-torch"), (f"glibc={glibc}",)), "torch==2.9.0")
    assert (diagnosis.primary == "glibc-too-old") is blocked
    finding = diagnosis.of("glibc-too-old")
    assert (finding is not None) is blocked
    if finding is not None:
        assert finding.saw == (f"glibc {glibc} (--set); torch 2.9.0, by its tag, needs 2.28 (manylinux_2_28_x86_64)",)


def test_no_remedy_names_a_torch_that_this_c_library_does_not_take() -> None:
    finding = _judged(override(facts_of("h200-no-torch"), ("glibc=2.17",))).of("torch-not-installed")
    assert finding is not None
    assert torches(finding)[0].startswith("2.6.0")


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_installs_a_torch_that_the_bounds_do_not_admit(name: str) -> None:
    for finding in judge(Question(facts_of(name), TABLES, wants=("torch<2.6",)), RULES).findings:
        if finding.code not in ("companion-wants-other-torch", "duplicate-distributions"):  # what is here, made whole
            assert all(TorchVersion.parse(each).release < (2, 6) for each in torches(finding) if each), finding.code


def test_an_installed_torch_outside_the_bounds_is_said_to_be_what_was_judged() -> None:
    diagnosis = judge(Question(facts_of("h200-healthy"), TABLES, wants=("torch<2.6",)), RULES)
    assert diagnosis.primary == "torch-not-as-wanted"
    assert not diagnosis.blocked
    finding = diagnosis.of("torch-not-as-wanted")
    assert finding is not None
    assert finding.saw == (
        "judged: the installed torch 2.11.0+cu130 (/usr/local/lib/python3.12/dist-packages/torch/version.py), which "
        "does not satisfy torch<2.6",
    )


@pytest.mark.parametrize("want", ["torch>=2.11", "torch", "torch==2.11.*", "vllm", "torch~=2.11.0"])
def test_bounds_that_admit_the_installed_torch_say_nothing(want: str) -> None:
    diagnosis = judge(Question(facts_of("h200-healthy"), TABLES, wants=(want,)), RULES)
    assert diagnosis.of("torch-not-as-wanted") is None


@pytest.mark.parametrize("name", NAMES)
def test_what_blocks_always_says_what_to_do(name: str) -> None:
    for settings in VARIATIONS:
        for goal in (Goal.INFER,) if settings else (Goal.INFER, Goal.BUILD_EXTENSIONS):
            diagnosis = _judged(override(facts_of(name), settings), goal=goal)
            blocks = [each for each in diagnosis.findings if each.severity is Severity.BLOCKS]
            empty = [each.code for each in blocks if not ways_of(each)]
            assert empty == [], settings


def test_a_driver_of_cuda_11_is_told_the_newest_wheel_that_it_runs() -> None:
    finding = _judged(override(facts_of("h200-no-torch"), ("driver=470.82.01",))).of("torch-not-installed")
    assert finding is not None
    assert torches(finding)[0] == "2.6.0+cu118"
    assert finding.answers[0].proof is Proof.REPORTED  # whose code is in it is known second-hand


def test_of_a_driver_older_than_every_row_nothing_is_claimed() -> None:
    finding = _judged(override(facts_of("h200-no-torch"), ("driver=440.33.01",))).of("torch-not-installed")
    assert finding is not None
    assert not any("the driver runs" in each.proof_by for each in finding.answers)


@pytest.mark.parametrize("name", NAMES[::6])
def test_no_rule_raises_on_absurd_facts(name: str) -> None:
    for path, facts in absurd_facts(facts_of(name)):
        question = Question(facts, TABLES, Goal.KERNELS)
        for rule in RULES:
            try:
                tuple(rule.check(question))
            except Exception as error:  # noqa: BLE001 the point of the test
                pytest.fail(f"{rule.code} raised {error!r} with {path} absurd")


@pytest.mark.parametrize(("driver", "builds"), [("470.82.01", 0), ("535.183.01", 1)])
def test_no_build_is_offered_of_a_release_that_no_cuda_of_this_driver_builds(driver: str, builds: int) -> None:
    diagnosis = _judged(override(facts_of("wsl2-healthy"), (f"driver={driver}",)))
    finding = diagnosis.of("driver-too-old-for-wheel")
    assert finding is not None
    assert sum(isinstance(way, BuildFromSource) for ways in ways_of(finding) for way in ways) == builds
