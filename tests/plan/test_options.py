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
from firstlight.facts.known import Known
from firstlight.facts.override import override
from firstlight.plan.option import Keeps, Kind, Option
from firstlight.plan.options import Ranked, Request, rank_options
from firstlight.plan.plan import choose, plan_for
from firstlight.plan.want import parse_wants
from firstlight.report.layout import plain
from firstlight.report.options_text import options_list, options_text
from firstlight.tables import load
from firstlight.ways import kinds
from firstlight.ways.asks import words_asked
from firstlight.ways.extras import Extras
from firstlight.ways.platform import platform_of
from firstlight.ways.way import Proof, Reversible, Risk, Way
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


def _why_not(ranked: Ranked, title: str) -> str:
    """Why the option that is called so cannot work here; '' where none is rejected."""
    return "; ".join(option.why_not for option in ranked.rejected if title in option.title)


def _packages(option: Option) -> tuple[str, ...]:
    """What pip is told to install, e.g. ('torch==2.9.0+cu128',)."""
    installs = (way.packages for way in option.ways if isinstance(way, kinds.InstallWheels))
    return tuple(package.requirement for packages in installs for package in packages)


def _way(option: Option, kind: type[Way]) -> Way:
    [found] = [way for way in option.ways if type(way) is kind]
    return found


@pytest.mark.parametrize("wants", [(), (CU130,)])
def test_field_report_000_gets_forward_compat_first(wants: tuple[str, ...]) -> None:
    ranked = _ranked(facts_of("h100-driver-570"), *wants)
    first = ranked.options[0]
    assert first.kind is Kind.COMPAT
    assert first.keeps is Keeps.ALL
    packaged = next(option for option in ranked.options if option.id == "forward-compat:cuda-compat-13-0")
    if not wants:  # of a wheel that is wanted the proof is the weaker one
        assert packaged.proof is Proof.DOCUMENTED
        assert "lists branch 570" in packaged.proof_by
        assert "NVML brand 14" in packaged.proof_by
    assert packaged.leaves_out == ()
    wire = _way(packaged, kinds.WireCompat)
    assert isinstance(wire, kinds.WireCompat)
    assert wire.folder == "/usr/local/cuda-13.0/compat"
    assert isinstance(packaged.cost.download_bytes, Known)
    assert isinstance(first.cost.download_bytes, Known)


@pytest.mark.parametrize(
    ("want", "first"),
    [("torch<=2.9.1", "torch==2.9.1"), ("torch>=2.12,<2.14", "torch==2.13.0"), ("torch<2.6", "torch==2.5.1")],
)
def test_bounds_give_the_newest_release_that_they_admit(want: str, first: str) -> None:
    assert _packages(_ranked(facts_of("h200-no-torch"), want).options[0])[0] == first


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
    fetched = _way(ranked.options[0], kinds.FetchCompat)
    assert isinstance(fetched, kinds.FetchCompat)
    assert fetched.file == "cuda_compat-linux-x86_64-590.48.01_cuda13.1-archive.tar.xz"
    assert "neither root nor sudo" in _why_not(ranked, "cuda-compat-13-0")


def test_a_compat_library_that_is_here_is_wired_and_nothing_is_fetched() -> None:
    ranked = _ranked(facts_of("h100-driver-570-compat-unused"))
    assert ranked.options[0].id == "forward-compat:/usr/local/cuda-13.0/compat"
    assert isinstance(ranked.options[0].cost.download_bytes, Known)
    assert ranked.options[0].cost.download_bytes.value == 0
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
    machine = next(option for option in ranked.options if option.kind is Kind.MACHINE)
    assert ranked.options.index(machine) > ranked.options.index(compat)
    other = _way(machine, kinds.OtherMachine)
    assert isinstance(other, kinds.OtherMachine)
    assert other.command[-4:] == ("--gpu-id", "NVIDIA H100 80GB HBM3", "--min-cuda-version", "13.0")


def test_no_release_of_conda_that_leaves_550_out_is_offered_there() -> None:
    assert "does not list driver branch 550" in _why_not(_ranked(facts_of("h100-driver-550-cu130")), "conda-forge")


def test_the_hybrid_of_field_report_001_is_named_unsound_with_the_reason() -> None:
    for goal in (Goal.BUILD_EXTENSIONS, Goal.KERNELS):
        ranked = _ranked(facts_of("h100-nvcc-13-torch-cu128"), goal=goal)
        hybrid = next(option for option in ranked.rejected if option.title.startswith("compile with nvcc 13.0, run"))
        assert "unsound" in hybrid.why_not
        assert "error 35" in hybrid.why_not
        assert "LD_LIBRARY_PATH does not change" in hybrid.why_not


def test_the_sound_form_of_the_hybrid_is_a_toolkit_of_torchs_own_major() -> None:
    ranked = _ranked(facts_of("h100-nvcc-13-torch-cu128"), goal=Goal.BUILD_EXTENSIONS)
    assert ranked.options[0].kind is Kind.TOOLKIT
    assert [option.id for option in _of(ranked, Kind.TOOLKIT)] == ["toolkit:install-packages-cuda-toolkit-12-8"]
    # The wheels of CUDA 12 carry ptxas alone; only from 13 on there is an nvcc among them.
    assert "no nvcc" in _why_not(ranked, "toolkit from wheels")


def test_for_cuda_13_the_toolkit_comes_from_wheels_without_root() -> None:
    first = _ranked(facts_of("no-toolkit"), goal=Goal.BUILD_EXTENSIONS).options[0]
    assert first.kind is Kind.TOOLKIT
    system = [each for way in first.ways if isinstance(way, kinds.InstallPackages) for each in way.packages]
    assert not [each for each in system if "cuda" in each]
    assert "cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==13.0.3.0" in _packages(first)


def test_the_toolkit_behind_a_wrapper_is_named_and_no_other_is_fetched_before_it() -> None:
    ranked = _ranked(facts_of("nvcc-wrapper"), goal=Goal.BUILD_EXTENSIONS)
    first = ranked.options[0]
    variables = [each for way in first.ways if isinstance(way, kinds.SetVariables) for each in way.variables]
    assert kinds.Variable("CUDA_HOME", "/usr/local/cuda-13.0") in variables
    assert isinstance(first.cost.download_bytes, Known)
    assert first.cost.download_bytes.value == 0
    # No nvcc 13 compiles for 7.0, which TORCH_CUDA_ARCH_LIST names: an option answers that too, or it does not say so.
    for option in ranked.options:
        assert {"nvcc-is-wrapper", "arch-unknown-to-toolkit"} <= {*option.because, *option.stays}


def test_an_rtx_5090_with_driver_570_may_not_use_compat() -> None:
    facts = override(facts_of("flash-attn-cu12"), ("driver=570.133.20",))
    ranked = _ranked(facts, CU130)
    assert _of(ranked, Kind.COMPAT) == []
    assert "804" in _why_not(ranked, "a forward-compat library")
    assert ranked.options[0].kind is Kind.DRIVER


def test_a_v100_gets_cu126() -> None:
    for wants in ((), ("torch",)):
        first = _ranked(facts_of("v100-torch-cu130"), *wants).options[0]
        assert first.kind is Kind.WHEEL
        wheels = _way(first, kinds.InstallWheels)
        assert isinstance(wheels, kinds.InstallWheels)
        assert wheels.packages[0].version.endswith("+cu126")
        assert wheels.index.endswith("/cu126")


@pytest.mark.parametrize("name", ["h200-compat-first", "h200-compat-stale", "h100-driver-595-compat-580"])
def test_a_stale_compat_path_is_removed_and_nothing_else(name: str) -> None:
    ranked = _ranked(facts_of(name))
    assert [option.kind for option in ranked.options] == [Kind.REMOVE]
    assert [type(way) for way in ranked.options[0].ways] == [kinds.Unwire]
    assert "compat" in ranked.options[0].title


def test_the_stale_path_goes_with_what_is_wanted_too() -> None:
    ranked = _ranked(facts_of("h200-compat-first"), CU130)
    for option in ranked.options:
        assert any(isinstance(way, kinds.Unwire) for way in option.ways)
        assert _packages(option) == (CU130,)
        assert "compat-stale" in option.because


def test_removing_a_spoofed_version_alone_does_not_make_the_driver_newer() -> None:
    ranked = _ranked(facts_of("h100-spoofed-version"))
    assert _of(ranked, Kind.REMOVE) == []
    assert ranked.options[0].kind is Kind.COMPAT
    for option in ranked.options:
        gone = [way for way in option.ways if isinstance(way, kinds.Unwire) and way.by is kinds.WiredBy.PRELOAD]
        assert gone or option.kind is Kind.MACHINE, "the library that says it goes, whatever else is done"


def test_field_report_000s_package_set_is_refused_with_the_pins_that_clash_and_the_nearest_set_offered() -> None:
    wants = (CU130, "torchaudio==2.9.0", "xformers==0.0.32.post1", "vllm==0.11.0", "triton==3.4.0")
    ranked = _ranked(facts_of("h100-driver-570"), *wants)
    sentences = " ".join(clash.sentence for clash in ranked.refused)
    assert "vllm 0.11.0 requires torch==2.8.0" in sentences
    assert "torch 2.9.0 requires triton==3.5.0" in sentences
    first = ranked.options[0]
    assert first.kind is Kind.WHEEL
    assert "vllm==0.11.0" in first.satisfies, "it is installed already"
    assert any(each.startswith("torch==2.8.0") for each in _packages(first))
    assert any(each.startswith(f"{CU130}:") for each in first.leaves_out)
    assert CU130 not in first.satisfies
    assert "vllm 0.11.0 requires torch==2.8.0" in plain(options_text(ranked, platform_of(facts_of("h100-driver-570"))))
    assert "vllm 0.11.0 requires torch==2.8.0" in plain(options_list(ranked, (), most=3))


def test_what_comes_near_only_with_another_driver_is_no_option_of_this_machine() -> None:
    ranked = _ranked(facts_of("orin-torch-pypi"), "torch==2.15.0")
    assert ranked.options == ()
    assert "Nothing close to it is known to run on this machine" in ranked.impossible
    with pytest.raises(BadInput, match=r"the nearest elsewhere is torch==2\.14\.1\+cu132: it takes driver 580\.65\.06"):
        choose(ranked, "")


def test_what_is_wanted_and_here_already_needs_nothing() -> None:
    ranked = _ranked(facts_of("h200"), "torch==2.11.0+cu130")
    assert [option.kind for option in ranked.options] == [Kind.NOTHING]


def test_what_is_wanted_and_runs_here_is_one_set_of_wheels() -> None:
    ranked = _ranked(facts_of("h200"), CU130)
    assert ranked.options[0].kind is Kind.WHEEL
    assert _packages(ranked.options[0]) == (CU130,)
    assert ranked.options[0].leaves_out == ()


def test_a_want_that_only_another_driver_runs_brings_compat_even_where_nothing_is_wrong_yet() -> None:
    ranked = _ranked(facts_of("h100-driver-550-cu128"), "torch>=2.15")
    kinds = [option.kind for option in ranked.options]
    assert Kind.MACHINE in kinds or Kind.COMPAT in kinds
    assert Kind.NOTHING not in kinds


def test_a_wheel_of_the_same_release_keeps_the_release_and_takes_its_companions_along() -> None:
    wheel = next(each for each in _ranked(facts_of("h100-driver-570")).options if each.kind is Kind.WHEEL)
    assert _packages(wheel) == ("torch==2.9.0+cu128", "torchvision==0.24.0+cu128", "torchaudio==2.9.0+cu128")
    assert wheel.leaves_out == ()


def test_no_wheel_is_offered_that_the_c_library_is_too_old_for() -> None:
    offered = [each for option in _of(_ranked(facts_of("centos-7")), Kind.WHEEL) for each in _packages(option)]
    assert offered
    assert not [each for each in offered if each.startswith(("torch==2.7", "torch==2.1", "torch==2.8", "torch==2.9"))]


@pytest.mark.parametrize("wants", [("torch",), ("torchvision",), ("torch", "torchvision", "python==3.10")])
def test_a_jetson_gets_its_own_torch_first(wants: tuple[str, ...]) -> None:
    first, unasked = (_ranked(facts_of("orin-torch-pypi"), *each).options[0] for each in (wants, ()))
    assert first.ways == unasked.ways
    assert first.satisfies == (*wants, "the goal infer")
    wheels = _way(first, kinds.InstallWheels)
    assert isinstance(wheels, kinds.InstallWheels)
    assert "jetson-ai-lab" in wheels.index


def test_what_goes_with_no_torch_of_this_jetson_takes_a_newer_jetpack_and_the_title_says_so() -> None:
    ranked = _ranked(facts_of("orin-torch-pypi"), "torch>=2.9", "vllm", "python==3.10")
    for option in ranked.options:
        asks = [way for way in option.ways if isinstance(way, kinds.AskPerson)]
        own = any("jetson-ai-lab" in way.index for way in option.ways if isinstance(way, kinds.InstallWheels))
        assert asks or own or option.kind is Kind.MACHINE, option.id
        assert not asks or option.title.startswith(words_asked(asks[0]))
    [own_torch] = [option for option in ranked.options if option.id == "another-wheel:torch"]
    assert not any("cu132" in each or "vllm" in each for each in _packages(own_torch))
    assert own_torch.satisfies == ("python==3.10", "the goal infer")
    assert [each.partition(":")[0] for each in own_torch.leaves_out] == ["torch>=2.9", "vllm"]


def test_a_driver_is_upgraded_only_where_it_can_be() -> None:
    facts = facts_of("h100-driver-570")
    assert "container" in _why_not(_ranked(facts, CU130), "driver >= 580")
    plain = replace(facts, container=replace(facts.container, kind=Known(ContainerKind.NONE, "no marker")))
    driver = _of(_ranked(plain, CU130), Kind.DRIVER)[0]
    installs = _way(driver, kinds.InstallDriver)
    assert isinstance(installs, kinds.InstallDriver)
    assert installs.packages == ("nvidia-driver-580-server-open",)
    assert isinstance(driver.ways[-1], kinds.Restart)
    assert driver.needs_root
    assert driver.reversible is not Reversible.YES


def test_another_machine_at_vast_is_asked_for_by_cuda_and_capability() -> None:
    facts = facts_of("h100-driver-550-cu130")
    seen = (ProviderSeen(Provider.VAST, "VAST_CONTAINERLABEL"),)
    ranked = _ranked(replace(facts, container=replace(facts.container, providers=seen)), CU130)
    other = _way(_of(ranked, Kind.MACHINE)[0], kinds.OtherMachine)
    assert isinstance(other, kinds.OtherMachine)
    assert other.command == ("vastai", "search", "offers", "cuda_max_good>=13.0 compute_cap>=900")


def test_with_a_speed_and_a_rate_an_option_has_minutes_and_a_price() -> None:
    request = Request(rate=Known(2.69, "--rate"), download_rate=Known(100e6, "measured"))
    first = _ranked(facts_of("h100-driver-570"), request=request).options[0]
    assert isinstance(first.cost.minutes, Known)
    assert isinstance(first.cost.download_bytes, Known)
    assert first.cost.minutes.value >= first.cost.download_bytes.value / 100e6 / 60
    assert isinstance(first.cost.money, Known)
    assert first.cost.money.value == pytest.approx(first.cost.minutes.value / 60 * 2.69)


def test_every_kind_that_was_thought_of_is_an_option_or_is_rejected_with_a_reason() -> None:
    ranked = _ranked(facts_of("h100-driver-570"))
    assert {option.kind for option in ranked.options} >= {Kind.COMPAT, Kind.WHEEL, Kind.MACHINE, Kind.SOURCE}
    assert _why_not(ranked, "driver >= 580")
    assert _why_not(ranked, "container image")


def test_what_a_program_can_do_is_before_what_only_a_person_can_and_that_is_not_taken_back_by_us() -> None:
    ranked = _ranked(facts_of("secure-boot"))
    assert any(isinstance(way, kinds.InstallPackages) for way in ranked.options[0].ways)
    asked = next(each for each in ranked.options if any(isinstance(way, kinds.AskPerson) for way in each.ways))
    assert asked.by_hand
    assert asked.reversible is Reversible.NO


@pytest.mark.parametrize("name", ["rtx5080-xids", "wsl2-healthy"])
def test_an_environment_of_our_own_gets_the_torch_that_was_there_and_the_toolkit_that_it_pins(name: str) -> None:
    first = _ranked(facts_of(name), goal=Goal.KERNELS).options[0]
    assert first.keeps is Keeps.RELEASE
    assert "torch==2.11.0+cu130" in _packages(first)
    assert any(each.startswith("cuda-toolkit") and each.endswith("==13.0.2") for each in _packages(first))


def test_a_torch_of_condas_that_pip_takes_the_place_of_is_a_risk_and_is_said() -> None:
    facts = facts_of("centos-7")
    assert isinstance(facts.torch, Known)
    by_conda = replace(facts.torch, value=replace(facts.torch.value, installer=Known("conda", "INSTALLER")))
    said = {}
    for name, torch in (("pip", facts.torch), ("conda", by_conda)):
        question = Question(replace(facts, torch=torch), TABLES)
        option = rank_options(question, judge(question, RULES), Request()).options[0]
        (step,) = plan_for(question, option, extras=Extras(home="/home/user")).steps
        said[name] = (option.risk, "its records keep naming that" in step.note)
    assert said == {"pip": (Risk.LOW, False), "conda": (Risk.MEDIUM, True)}
