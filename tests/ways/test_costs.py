"""How long ways take: bytes over a rate, and the work besides, each with what it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.apply.stored_steps import steps_from_json, steps_to_json
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.costs import cost_of
from firstlight.plan.request import Request
from firstlight.tables import load
from firstlight.tables.cost_rows import FetchedBy, Work
from firstlight.versions import CudaVersion
from firstlight.ways import kinds
from firstlight.ways.at import At
from firstlight.ways.costs import ASSUMED_SPEED, AT_ONCE, NOTHING, bytes_of, bytes_of_all, seconds_of
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import InstallWheels, Package
from firstlight.ways.platform import platform_of
from firstlight.ways.steps import steps_of
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import facts_of
from tests.ways.samples import SAMPLES, VARIANTS

TABLES = load()
FACTS = facts_of("h100-driver-570")
EVERY = pytest.mark.parametrize("way", [*SAMPLES, *VARIANTS], ids=lambda way: type(way).__name__)
_FETCH = (
    kinds.InstallWheels, kinds.CloseLibraries, kinds.InstallConda, kinds.BuildFromSource, kinds.InstallPackages,
    kinds.InstallDriver, kinds.FetchCompat, kinds.UseImage,
)  # fmt: skip
_BUILD_OR_WAIT = (
    kinds.MakeEnvironment, kinds.BuildModules, kinds.LoadModules, kinds.ReloadModules, kinds.Restart, kinds.ResetGpu,
    kinds.StartContainer, kinds.SetUpRepository, kinds.StartService, kinds.TurnOffMig, kinds.KeepInProject,
    kinds.ForbidModule, kinds.SetModuleOption,
)  # fmt: skip


@EVERY
def test_every_way_has_bytes_and_seconds_with_what_they_rest_on(way: Way) -> None:
    size, seconds = bytes_of(way, FACTS, TABLES), seconds_of(way, FACTS, TABLES, ASSUMED_SPEED)
    for amount in (size, seconds):
        assert amount.reason if isinstance(amount, Unknown) else amount.seen_in
        assert isinstance(amount, Unknown) or amount.value >= 0
    if isinstance(size, Known) and size.value:
        assert isinstance(seconds, Unknown) or seconds.value >= size.value / 50e6


@EVERY
def test_nothing_that_fetches_builds_or_waits_takes_no_time(way: Way) -> None:
    seconds = seconds_of(way, FACTS, TABLES, ASSUMED_SPEED)
    if isinstance(way, (*_FETCH, *_BUILD_OR_WAIT)):
        assert isinstance(seconds, Unknown) or seconds.value > 0, seconds
    of_image = isinstance(way, kinds.Unwire) and way.by is kinds.WiredBy.CONTAINER_RUNTIME
    if of_image:
        assert isinstance(seconds, Unknown), "the image is built anew"
        return
    if isinstance(way, kinds.SetVariables | kinds.Unwire | kinds.LinkFile | kinds.RemoveFiles | kinds.WireCompat):
        assert (bytes_of(way, FACTS, TABLES), seconds) == (NOTHING, AT_ONCE)


def test_minutes_are_known_for_nine_of_ten_ways_that_fetch() -> None:
    fetching = [way for way in (*SAMPLES, *VARIANTS) if isinstance(way, _FETCH)]
    known = [way for way in fetching if isinstance(seconds_of(way, FACTS, TABLES, ASSUMED_SPEED), Known)]
    assert len(known) / len(fetching) >= 0.9, [way for way in fetching if way not in known]


def test_the_rate_and_that_it_is_assumed_stand_in_the_basis() -> None:
    found = seconds_of(_torch(), FACTS, TABLES, ASSUMED_SPEED)
    assert isinstance(found, Known)
    assert found.seen_in == "at 50 MB/s (assumed) 81 s, pip 59 s"
    stated = seconds_of(_torch(), FACTS, TABLES, Known(200e6, "--download-rate"))
    assert isinstance(stated, Known)
    assert "at 200 MB/s (--download-rate)" in stated.seen_in
    assert found.value - stated.value == pytest.approx(4057767342 / 50e6 - 4057767342 / 200e6)


def test_a_build_takes_the_share_of_the_processors_that_there_are() -> None:
    build = kinds.BuildFromSource("torch", "2.9.0", ())
    seconds = [_seconds(build, processors=count) for count in (10.0, 20.0)]
    compiled = TABLES.duration(Work.COMPILE_TORCH).seconds
    assert seconds[0] - seconds[1] == pytest.approx(compiled / 10 - compiled / 20)
    guessed = seconds_of(build, FACTS, TABLES, ASSUMED_SPEED)
    assert isinstance(guessed, Known)
    assert "torch compiled by 8 processors (assumed) 6000 s" in guessed.seen_in


def test_a_restart_of_bare_metal_takes_longer_than_that_of_a_guest() -> None:
    metal, guest = (
        replace(FACTS, place=replace(FACTS.place, hypervisor=Known(v, "test"))) for v in ("none", "present")
    )
    slow, fast = (seconds_of(kinds.Restart(), each, TABLES, ASSUMED_SPEED) for each in (metal, guest))
    assert isinstance(slow, Known)
    assert isinstance(fast, Known)
    assert slow.value > 500 > 60 > fast.value


def test_what_only_a_person_or_another_machine_takes_is_not_known() -> None:
    person = kinds.AskPerson("edit-by-hand", kinds.Why.HARDWARE, of=("power the machine off and on",))
    assert seconds_of(person, FACTS, TABLES, ASSUMED_SPEED) == Unknown("how long it takes you is not known")
    other = seconds_of(kinds.OtherMachine(580, CudaVersion(13, 0), None), FACTS, TABLES, ASSUMED_SPEED)
    assert isinstance(other, Unknown)


def test_the_money_of_an_option_is_its_minutes_at_the_rate() -> None:
    request = Request(rate=Known(2.69, "--rate"))
    cost = cost_of((_torch(), kinds.WireCompat("~/x", CudaVersion(13, 0), (570,))), FACTS, TABLES, request)
    assert isinstance(cost.minutes, Known)
    assert isinstance(cost.money, Known)
    assert cost.money.value == pytest.approx(cost.minutes.value / 60 * 2.69)
    assert cost.download_rate == ASSUMED_SPEED


def test_an_option_that_fetches_builds_and_waits_for_nothing_costs_nothing() -> None:
    cost = cost_of((), FACTS, TABLES, Request())
    assert (cost.minutes, cost.download_bytes, cost.disk_bytes) == (AT_ONCE, NOTHING, NOTHING)
    assert isinstance(cost.money, Unknown), "without --rate nothing is said of money"
    assert cost_of((), FACTS, TABLES, Request(rate=Known(2.69, "--rate"))).money == Known(0.0, AT_ONCE.seen_in)
    assert isinstance(cost.download_rate, Unknown)


def test_what_is_unknown_of_one_way_is_unknown_of_the_chain() -> None:
    person = kinds.AskPerson("edit-by-hand", kinds.Why.DECISION, (("firstlight", "plan"),), of=("choose one",))
    cost = cost_of((_torch(), person), FACTS, TABLES, Request(rate=Known(2.69, "--rate")))
    assert isinstance(cost.download_bytes, Known)
    assert cost.minutes == Unknown("how long it takes you is not known")
    assert cost.money == Unknown("the minutes are not known")


def test_what_a_person_fetches_is_not_known_unless_commands_tell_or_hands_do_it() -> None:
    portal = kinds.AskPerson("install-guest-driver", kinds.Why.HYPERVISOR)
    assert bytes_of_all((portal,), FACTS, TABLES) == Unknown("what you fetch for it is not known")
    for fetches_nothing in (
        kinds.AskPerson("edit-by-hand", kinds.Why.HARDWARE, of=("power the machine off and on",)),
        kinds.AskPerson("move-aside", kinds.Why.DECISION, (("mv", "/tmp/a", "/tmp/b"),), of=("the pipes",)),
        replace(portal, cures=False),
    ):
        assert bytes_of_all((fetches_nothing,), FACTS, TABLES) == Known(0, "nothing is fetched")


def test_the_closest_row_of_the_downloads_counts() -> None:
    found = TABLES.download(FetchedBy.SYSTEM, "g++-13", machine="x86_64")
    assert found is not None
    assert found.name == "g++*"
    assert TABLES.download(FetchedBy.SYSTEM, "no-such-package", machine="x86_64") is None


def test_the_step_of_a_way_says_what_the_way_takes_and_survives_the_journal() -> None:
    at = At(FACTS, TABLES, platform_of(FACTS), Extras(), "driver-too-old-for-wheel")
    [step] = steps_of(_torch(), at)
    assert step.bytes == bytes_of(_torch(), FACTS, TABLES)
    assert step.seconds == Known(*_pair(seconds_of(_torch(), FACTS, TABLES, ASSUMED_SPEED)))
    assert steps_from_json(steps_to_json((step,))) == (step,)


def _pair(amount: Fact[float]) -> tuple[float, str]:
    assert isinstance(amount, Known)
    return amount.value, amount.seen_in


def _torch() -> InstallWheels:
    return InstallWheels((Package("torch", "2.9.0"),))


def _seconds(way: Way, *, processors: float) -> float:
    resources = replace(FACTS.resources, processors=Known(processors, "test"))
    found = seconds_of(way, replace(FACTS, resources=resources), TABLES, ASSUMED_SPEED)
    assert isinstance(found, Known)
    return found.value


def test_what_a_project_keeps_is_locked_and_synchronised_and_not_fetched_again() -> None:
    facts = facts_of("uv-lock-would-undo")
    keep = kinds.KeepInProject((Package("torch", "2.9.0+cu130"),), "https://download.pytorch.org/whl/cu130")
    size, seconds = bytes_of(keep, facts, TABLES), seconds_of(keep, facts, TABLES, ASSUMED_SPEED)
    assert isinstance(size, Known)
    assert (size.value, "lock" in size.seen_in) == (0, True)
    assert isinstance(seconds, Known)
    assert "uv" in seconds.seen_in
    other = kinds.KeepInProject((Package("torch", "2.8.0+cu128"),), "https://download.pytorch.org/whl/cu128")
    assert isinstance(fetched := bytes_of(other, facts, TABLES), Known)
    assert fetched.value > 500e6


def test_what_a_kernel_starts_from_is_made_anew_in_half_a_minute() -> None:
    image = TABLES.duration(Work.EARLY_IMAGE).seconds
    facts = facts_of("l20-hmm")
    option = kinds.SetModuleOption("nvidia_uvm", "uvm_disable_hmm=1", "/etc/modprobe.d/nvidia-uvm.conf")
    for way in (option, kinds.ForbidModule("nouveau")):
        seconds = seconds_of(way, facts, TABLES, ASSUMED_SPEED)
        assert isinstance(seconds, Known)
        assert seconds.value == image
