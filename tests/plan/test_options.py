"""The options of the machines that field reports tell of, and of those that are easily got wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wanted import with_wanted
from firstlight.errors import BadInput
from firstlight.facts.ability import Sudo
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind, Provider, ProviderSeen
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.plan.option import Kind, Option, Proof, Reversible
from firstlight.plan.options import Ranked, Request, rank_options
from firstlight.plan.plan import choose
from firstlight.plan.want import parse_wants
from firstlight.report.options_text import options_text, top_options
from firstlight.tables import load
from tests.diagnosis.rule_case import facts_of

TABLES = load()
CU130 = "torch==2.9.0+cu130"


def _ranked(facts: Facts, *wants: str, goal: Goal = Goal.INFER, request: Request | None = None) -> Ranked:
    """As doctor does it: an exact torch takes the place of the installed one, then judge, then rank."""
    parsed = parse_wants(wants)
    exact = tuple(want.text for want in parsed if want.project == "torch" and want.exact)
    question = Question(with_wanted(facts, TABLES, exact), TABLES, goal, wants)
    asked = replace(request or Request(), wants=parsed, goal=goal)
    return rank_options(question, judge(question, RULES), asked)


def _of(ranked: Ranked, kind: Kind) -> list[Option]:
    return [option for option in ranked.options if option.kind is kind]


def _why_not(ranked: Ranked, kind: Kind) -> str:
    return "; ".join(option.why_not for option in ranked.rejected if option.kind is kind)


@pytest.mark.parametrize("wants", [(), (CU130,)])
def test_field_report_000_gets_forward_compat_first(wants: tuple[str, ...]) -> None:
    ranked = _ranked(facts_of("h100-driver-570"), *wants)
    first = ranked.options[0]
    assert first.id == "forward-compat:cuda-compat-13-0"
    assert first.proof is Proof.DOCUMENTED
    assert "lists branch 570" in first.proof_by
    assert "NVML brand 14" in first.proof_by
    assert first.leaves_out == ()
    assert first.folder == "/usr/local/cuda-13.0/compat"
    assert isinstance(first.cost.download_bytes, Known)


@pytest.mark.parametrize(
    ("want", "first"),
    [("torch<=2.9.1", "torch==2.9.1"), ("torch>=2.12,<2.14", "torch==2.13.0"), ("torch<2.6", "torch==2.5.1")],
)
def test_bounds_give_the_newest_release_that_they_admit(want: str, first: str) -> None:
    assert _ranked(facts_of("h200-no-torch"), want).options[0].brings[0] == first


def test_a_proof_speaks_of_the_driver_only_where_there_is_one() -> None:
    [without, *_] = _of(_ranked(facts_of("centos-7")), Kind.WHEEL)
    assert "it has code for" in without.proof_by
    assert "driver" not in without.proof_by
    [with_one, *_] = _of(_ranked(facts_of("h200-no-torch")), Kind.WHEEL)
    assert with_one.proof_by.endswith(", and the driver runs CUDA 13.2")


def test_a_compat_library_without_root_is_an_option_of_its_own() -> None:
    facts = facts_of("h100-driver-570")
    user = replace(facts, ability=replace(facts.ability, is_root=False, uid=1000, sudo=Sudo.ABSENT))
    ranked = _ranked(user, CU130)
    assert ranked.options[0].id == "forward-compat:archive-13.1"
    assert not ranked.options[0].needs_root
    assert ranked.options[0].brings[0] == "cuda_compat-linux-x86_64-590.48.01_cuda13.1-archive.tar.xz"
    assert "neither root nor sudo" in _why_not(ranked, Kind.COMPAT)


def test_a_compat_library_that_is_here_is_wired_and_nothing_is_fetched() -> None:
    ranked = _ranked(facts_of("h100-driver-570-compat-unused"))
    assert ranked.options[0].id == "forward-compat:/usr/local/cuda-13.0/compat"
    assert ranked.options[0].cost.download_bytes == Known(0, "nothing is downloaded or built")
    assert [option.kind for option in ranked.options].count(Kind.COMPAT) == 1


def test_cuinit_that_was_seen_to_work_is_proof() -> None:
    first = _ranked(facts_of("h100-driver-570-compat")).options[0]
    assert first.kind is Kind.COMPAT
    assert first.proof is Proof.PROVED_HERE
    assert "cuInit" in first.proof_by


@pytest.mark.parametrize("name", ["h100-driver-550-cu130", "h100-driver-550-cu128"])
def test_field_report_001_can_use_compat_and_a_new_pod_is_not_first(name: str) -> None:
    ranked = _ranked(facts_of(name), CU130)
    assert ranked.options[0].kind is Kind.COMPAT
    compat = next(option for option in ranked.options if option.id == "forward-compat:cuda-compat-13-0")
    assert "lists branch 550" in compat.proof_by
    machine = next(option for option in ranked.options if option.kind is Kind.MACHINE)
    assert ranked.options.index(machine) > ranked.options.index(compat)
    assert "--min-cuda-version 13.0" in machine.brings[0]
    assert "'NVIDIA H100 80GB HBM3'" in machine.brings[0]


def test_no_release_of_conda_that_leaves_550_out_is_offered_there() -> None:
    assert "does not list driver branch 550" in _why_not(_ranked(facts_of("h100-driver-550-cu130")), Kind.COMPAT)


def test_the_hybrid_of_field_report_001_is_named_unsound_with_the_reason() -> None:
    for goal in (Goal.INFER, Goal.BUILD_EXTENSIONS, Goal.KERNELS):
        ranked = _ranked(facts_of("h100-nvcc-13-torch-cu128"), goal=goal)
        hybrid = next(option for option in ranked.rejected if "hybrid" in option.id)
        assert hybrid.title == "compile with nvcc 13.0, run with the CUDA 12.8 libraries of torch"
        assert "unsound" in hybrid.why_not
        assert "error 35" in hybrid.why_not
        assert "LD_LIBRARY_PATH does not change" in hybrid.why_not


def test_the_sound_form_of_the_hybrid_is_a_toolkit_of_torchs_own_major() -> None:
    ranked = _ranked(facts_of("h100-nvcc-13-torch-cu128"), goal=Goal.BUILD_EXTENSIONS)
    assert ranked.options[0].kind is Kind.TOOLKIT
    assert [option.id for option in _of(ranked, Kind.TOOLKIT)] == [
        "toolkit-from-wheels:cuda-toolkit-12-8",
        "toolkit-from-wheels:conda-12.8",
    ]
    # The wheels of CUDA 12 carry ptxas alone; only from 13 on there is an nvcc among them.
    assert "no nvcc" in _why_not(ranked, Kind.TOOLKIT)


def test_for_cuda_13_the_toolkit_comes_from_wheels_without_root() -> None:
    first = _ranked(facts_of("no-toolkit"), goal=Goal.BUILD_EXTENSIONS).options[0]
    assert first.id == "toolkit-from-wheels:wheels-13.0"
    assert not first.needs_root
    assert first.brings == ("cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==13.0.3.0",)


def test_the_toolkit_behind_a_wrapper_is_named_and_no_other_is_fetched_before_it() -> None:
    ranked = _ranked(facts_of("nvcc-wrapper"), goal=Goal.BUILD_EXTENSIONS)
    first = ranked.options[0]
    assert first.title == "CUDA_HOME=/usr/local/cuda-13.0, whose nvcc is 13.0.88"
    assert first.cost.download_bytes == Known(0, "nothing is downloaded or built")
    for option in _of(ranked, Kind.TOOLKIT):
        assert option.because == ("nvcc-is-wrapper",), "no nvcc 13 compiles for 7.0, which TORCH_CUDA_ARCH_LIST names"
        assert "arch-unknown-to-toolkit has to be answered too" in option.leaves_out


def test_an_rtx_5090_with_driver_570_may_not_use_compat() -> None:
    facts = override(facts_of("flash-attn-cu12"), ("driver=570.133.20",))
    ranked = _ranked(facts, CU130)
    assert _of(ranked, Kind.COMPAT) == []
    assert "804" in _why_not(ranked, Kind.COMPAT)
    assert ranked.options[0].kind is Kind.DRIVER


def test_a_v100_gets_cu126() -> None:
    for wants in ((), ("torch",)):
        first = _ranked(facts_of("v100-torch-cu130"), *wants).options[0]
        assert first.kind is Kind.WHEEL
        assert first.brings[0].endswith("+cu126")
        assert first.index.endswith("/cu126")


@pytest.mark.parametrize("name", ["h200-compat-first", "h200-compat-stale", "h100-driver-595-compat-580"])
def test_a_stale_compat_path_is_removed_and_nothing_else(name: str) -> None:
    ranked = _ranked(facts_of(name))
    assert [option.kind for option in ranked.options] == [Kind.REMOVE]
    assert "compat" in ranked.options[0].title
    assert "803" in _why_not(ranked, Kind.COMPAT)


def test_the_stale_path_goes_first_for_what_is_wanted_too() -> None:
    ranked = _ranked(facts_of("h200-compat-first"), CU130)
    assert ranked.options[0].kind is Kind.REMOVE
    assert CU130 in ranked.options[0].brings
    assert "has to be answered first" in _why_not(ranked, Kind.WHEEL)


def test_removing_a_spoofed_version_alone_does_not_make_the_driver_newer() -> None:
    ranked = _ranked(facts_of("h100-spoofed-version"))
    removal = _of(ranked, Kind.REMOVE)[0]
    assert "does not run CUDA 13.0" in removal.leaves_out[0]
    assert ranked.options[0].kind is Kind.COMPAT
    assert "LD_PRELOAD" in ranked.options[0].title


def test_field_report_000s_package_set_is_refused_with_the_pins_that_clash_and_the_nearest_set_offered() -> None:
    wants = (CU130, "torchaudio==2.9.0", "xformers==0.0.32.post1", "vllm==0.11.0", "triton==3.4.0")
    ranked = _ranked(facts_of("h100-driver-570"), *wants)
    sentences = " ".join(clash.sentence for clash in ranked.refused)
    assert "vllm 0.11.0 requires torch==2.8.0" in sentences
    assert "torch 2.9.0 requires triton==3.5.0" in sentences
    first = ranked.options[0]
    assert first.kind is Kind.WHEEL
    assert "vllm==0.11.0" in first.brings
    assert any(each.startswith("torch==2.8.0") for each in first.brings)
    assert any(each.startswith(f"{CU130}:") for each in first.leaves_out)
    assert CU130 not in first.satisfies
    assert "vllm 0.11.0 requires torch==2.8.0" in options_text(ranked)
    assert "vllm 0.11.0 requires torch==2.8.0" in top_options(ranked)


def test_what_comes_near_only_with_another_driver_is_no_option_of_this_machine() -> None:
    ranked = _ranked(facts_of("orin-torch-pypi"), "torch==2.15.0")
    assert ranked.options == ()
    [near] = [each for each in ranked.rejected if each.id == "another-wheel:torch-2.14.1+cu132"]
    assert near.why_not == "it takes driver 580.65.06 or newer (here 540.4.0)"
    assert "Nothing that comes near it is known to run on this machine" in ranked.impossible
    with pytest.raises(BadInput, match=r"the nearest elsewhere is torch==2\.14\.1\+cu132: it takes driver 580\.65\.06"):
        choose(ranked, "")


def test_what_is_wanted_and_here_already_needs_nothing() -> None:
    ranked = _ranked(facts_of("h200"), "torch==2.11.0+cu130")
    assert [option.kind for option in ranked.options] == [Kind.NOTHING]


def test_what_is_wanted_and_runs_here_is_one_set_of_wheels() -> None:
    ranked = _ranked(facts_of("h200"), CU130)
    assert ranked.options[0].kind is Kind.WHEEL
    assert ranked.options[0].brings == (CU130,)
    assert ranked.options[0].leaves_out == ()


def test_a_want_that_only_another_driver_runs_brings_compat_even_where_nothing_is_wrong_yet() -> None:
    ranked = _ranked(facts_of("h100-driver-550-cu128"), "torch>=2.15")
    kinds = [option.kind for option in ranked.options]
    assert Kind.MACHINE in kinds or Kind.COMPAT in kinds
    assert Kind.NOTHING not in kinds


def test_a_wheel_of_the_same_release_keeps_the_release_and_takes_its_companions_along() -> None:
    wheel = next(each for each in _ranked(facts_of("h100-driver-570")).options if each.kind is Kind.WHEEL)
    assert wheel.brings == ("torch==2.9.0+cu128", "torchvision==0.24.0+cu128", "torchaudio==2.9.0+cu128")
    assert wheel.leaves_out == ()


def test_no_wheel_is_offered_that_the_c_library_is_too_old_for() -> None:
    offered = [each for option in _of(_ranked(facts_of("centos-7")), Kind.WHEEL) for each in option.brings]
    assert offered
    assert not [each for each in offered if each.startswith(("torch==2.7", "torch==2.1", "torch==2.8", "torch==2.9"))]


@pytest.mark.parametrize("wants", [("torch",), ("torchvision",), ("torch", "torchvision", "python==3.10")])
def test_a_jetson_gets_its_own_torch_and_no_other_on_top(wants: tuple[str, ...]) -> None:
    first = _ranked(facts_of("orin-torch-pypi"), *wants).options[0]
    assert first == replace(_ranked(facts_of("orin-torch-pypi")).options[0], satisfies=(*wants, "the goal infer"))
    assert first.id == "repair:install-jetson-wheel"
    assert "jetson-ai-lab" in first.brings[0]
    assert first.index == ""


def test_what_is_not_known_to_go_with_a_jetsons_torch_is_left_out_and_said() -> None:
    first = _ranked(facts_of("orin-torch-pypi"), "torch>=2.9", "vllm", "python==3.10").options[0]
    assert first.id == "repair:install-jetson-wheel"
    assert not any("cu132" in piece or "vllm" in piece for piece in (first.title, *first.brings))
    assert first.satisfies == ("python==3.10", "the goal infer")
    assert [each.partition(":")[0] for each in first.leaves_out] == ["torch>=2.9", "vllm"]


def test_a_driver_is_upgraded_only_where_it_can_be() -> None:
    facts = facts_of("h100-driver-570")
    assert "container" in _why_not(_ranked(facts, CU130), Kind.DRIVER)
    plain = replace(facts, container=replace(facts.container, kind=Known(ContainerKind.NONE, "no marker")))
    driver = _of(_ranked(plain, CU130), Kind.DRIVER)[0]
    assert driver.brings == ("nvidia-driver-580-server-open",)
    assert driver.needs_root
    assert driver.reversible is Reversible.PARTLY
    assert isinstance(driver.cost.minutes, Unknown)


def test_another_machine_at_vast_is_asked_for_by_cuda_and_capability() -> None:
    facts = facts_of("h100-driver-550-cu130")
    seen = (ProviderSeen(Provider.VAST, "VAST_CONTAINERLABEL"),)
    ranked = _ranked(replace(facts, container=replace(facts.container, providers=seen)), CU130)
    assert _of(ranked, Kind.MACHINE)[0].brings[0] == "vastai search offers 'cuda_max_good>=13.0 compute_cap>=900'"


def test_with_a_speed_and_a_rate_an_option_has_minutes_and_a_price() -> None:
    request = Request(rate=Known(2.69, "--rate"), download_rate=Known(100e6, "measured"))
    first = _ranked(facts_of("h100-driver-570"), request=request).options[0]
    assert isinstance(first.cost.minutes, Known)
    assert first.cost.minutes.value == pytest.approx(65.4e6 / 100e6 / 60)
    assert isinstance(first.cost.money, Known)
    assert first.cost.money.value == pytest.approx(first.cost.minutes.value / 60 * 2.69)


def test_every_kind_that_was_thought_of_is_an_option_or_is_rejected_with_a_reason() -> None:
    ranked = _ranked(facts_of("h100-driver-570"))
    kinds = {option.kind for option in (*ranked.options, *ranked.rejected)}
    assert kinds >= {Kind.COMPAT, Kind.WHEEL, Kind.DRIVER, Kind.MACHINE, Kind.CONTAINER, Kind.SOURCE}
