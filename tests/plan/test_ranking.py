"""The order of options: properties that hold for any options, and the parts of the rule one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.costs import cost, summed
from firstlight.plan.option import Cost, Kind, Option, Proof, Reversible, Risk
from firstlight.plan.ranking import RULE, order, ranked, rejected
from firstlight.plan.request import Request


def _amounts(most: int) -> st.SearchStrategy[Fact[int]]:
    return st.one_of(st.integers(0, most).map(lambda n: Known(n, "a row")), st.just(Unknown("no row")))


@st.composite
def _options(draw: st.DrawFn) -> Option:
    number = draw(st.integers(0, 99))
    kind = draw(st.sampled_from(Kind))
    minutes: Fact[float] = draw(_amounts(90))
    money: Fact[float] = draw(_amounts(9))
    feasible = draw(st.booleans())
    return Option(
        id=f"{kind.value}:{number}",
        kind=kind,
        title="t",
        because=("a-finding",),
        proof=draw(st.sampled_from(Proof)),
        proof_by="s",
        satisfies=(),
        leaves_out=tuple(f"want {n}" for n in range(draw(st.integers(0, 2)))),
        cost=Cost(minutes, draw(_amounts(10**10)), Unknown("no row"), money),
        needs_root=draw(st.booleans()),
        reversible=draw(st.sampled_from(Reversible)),
        risk=draw(st.sampled_from(Risk)),
        feasible=feasible,
        why_not="" if feasible else "it cannot",
        brings=(),
        index="",
        folder="",
    )


_LISTS = st.lists(_options(), min_size=1, max_size=8, unique_by=lambda option: option.id)
_PROOFS = tuple(Proof)


@given(_LISTS, st.data())
def test_the_order_does_not_depend_on_the_order_of_generation(options: list[Option], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(options))
    assert ranked(shuffled) == ranked(options)
    assert rejected(shuffled) == rejected(options)


@given(_LISTS)
def test_an_infeasible_option_is_never_ranked_and_none_is_lost(options: list[Option]) -> None:
    assert all(option.feasible for option in ranked(options))
    assert not any(option.feasible for option in rejected(options))
    assert sorted(each.id for each in (*ranked(options), *rejected(options))) == sorted(each.id for each in options)


@given(_LISTS, st.data())
def test_more_proof_never_ranks_lower(options: list[Option], data: st.DataObject) -> None:
    feasible = [replace(option, feasible=True) for option in options]
    chosen = data.draw(st.sampled_from(feasible))
    better = data.draw(st.sampled_from(_PROOFS[: _PROOFS.index(chosen.proof) + 1]))
    improved = [replace(each, proof=better) if each is chosen else each for each in feasible]
    before = [each.id for each in ranked(feasible)].index(chosen.id)
    after = [each.id for each in ranked(improved)].index(chosen.id)
    assert after <= before


@given(_LISTS, st.data())
def test_learning_that_an_option_costs_nothing_never_ranks_it_lower(options: list[Option], data: st.DataObject) -> None:
    feasible = [replace(option, feasible=True) for option in options]
    chosen = data.draw(st.sampled_from(feasible))
    free = Cost(Known(0.0, "s"), Known(0, "s"), Known(0, "s"), Known(0.0, "s"))
    improved = [replace(each, cost=free) if each is chosen else each for each in feasible]
    places = [[each.id for each in ranked(each_list)].index(chosen.id) for each_list in (feasible, improved)]
    assert places[1] <= places[0]


_PLAIN = Option(
    id="another-wheel:torch-2.9.0+cu128",
    kind=Kind.WHEEL,
    title="t",
    because=(),
    proof=Proof.DOCUMENTED,
    proof_by="s",
    satisfies=(),
    leaves_out=(),
    cost=Cost(Known(4.0, "s"), Known(10**9, "s"), Unknown("no row"), Known(1.0, "s")),
    needs_root=False,
    reversible=Reversible.YES,
    risk=Risk.LOW,
    feasible=True,
    why_not="",
    brings=(),
    index="",
    folder="",
)


@pytest.mark.parametrize(
    "worse",
    [
        replace(_PLAIN, proof=Proof.REPORTED),
        replace(_PLAIN, leaves_out=("torch==2.9.0+cu130: it becomes cu128",)),
        replace(_PLAIN, cost=replace(_PLAIN.cost, minutes=Known(5.0, "s"))),
        replace(_PLAIN, cost=replace(_PLAIN.cost, minutes=Unknown("no speed"))),
        replace(_PLAIN, cost=replace(_PLAIN.cost, download_bytes=Known(2 * 10**9, "s"))),
        replace(_PLAIN, cost=replace(_PLAIN.cost, download_bytes=Unknown("no row"))),
        replace(_PLAIN, cost=replace(_PLAIN.cost, money=Known(2.0, "s"))),
        replace(_PLAIN, cost=replace(_PLAIN.cost, money=Unknown("no rate"))),
        replace(_PLAIN, reversible=Reversible.PARTLY),
        replace(_PLAIN, risk=Risk.HIGH),
        replace(_PLAIN, needs_root=True),
        replace(_PLAIN, kind=Kind.MACHINE),
        replace(_PLAIN, id="another-wheel:torch-2.8.0+cu128"),
    ],
)
def test_each_part_of_the_rule_decides_where_all_before_it_is_equal(worse: Option) -> None:
    other = replace(worse, id=f"{worse.id}-b") if worse.id == _PLAIN.id else worse
    assert ranked([other, _PLAIN]) == (_PLAIN, other)


def test_of_releases_that_are_equal_in_proof_and_fit_the_newer_is_first_though_it_is_larger() -> None:
    larger = replace(_PLAIN.cost, minutes=Known(9.0, "s"), download_bytes=Known(9 * 10**9, "s"))
    newer = replace(_PLAIN, id="another-wheel:torch-2.10.0", cost=larger)
    between = replace(
        _PLAIN, id="container-image:x", kind=Kind.CONTAINER, cost=replace(larger, minutes=Known(5.0, "s"))
    )
    assert ranked([_PLAIN, between, newer]) == (newer, between, _PLAIN)
    less_sure = replace(newer, proof=Proof.REPORTED)
    assert ranked([less_sure, _PLAIN]) == (_PLAIN, less_sure)
    leaves_out = replace(newer, leaves_out=("torch 2.9.0: it becomes 2.10.0",))
    assert ranked([leaves_out, _PLAIN]) == (_PLAIN, leaves_out)


def test_an_earlier_part_of_the_rule_outweighs_all_later_ones() -> None:
    dear_but_proved = replace(
        _PLAIN,
        id="driver-upgrade:580",
        proof=Proof.PROVED_HERE,
        cost=Cost(Unknown("?"), Unknown("?"), Unknown("?"), Unknown("?")),
        reversible=Reversible.NO,
        risk=Risk.HIGH,
        needs_root=True,
    )
    assert ranked([_PLAIN, dear_but_proved])[0] is dear_but_proved
    assert order(dear_but_proved) < order(_PLAIN)


def test_the_rule_is_said_in_words_with_its_parts_in_their_order() -> None:
    parts = ("proved here", "documented", "reported", "guessed", "wants", "minutes", "download", "money", "take back")
    places = [RULE.index(part) for part in parts]
    assert places == sorted(places)
    assert "not known comes after" in RULE


def test_minutes_follow_from_bytes_and_the_download_speed_and_money_from_minutes() -> None:
    request = Request(rate=Known(3.0, "--rate"), download_rate=Known(50e6, "measured"))
    paid = cost(request, download=Known(3 * 10**9, "PyPI"), disk=Unknown("?"))
    assert isinstance(paid.minutes, Known)
    assert paid.minutes.value == pytest.approx(1.0)
    assert "3.00 GB at 50 MB/s" in paid.minutes.seen_in
    assert isinstance(paid.money, Known)
    assert paid.money.value == pytest.approx(0.05)


def test_without_a_speed_a_size_or_a_rate_nothing_is_made_up() -> None:
    size = Known(3 * 10**9, "PyPI")
    assert isinstance(cost(Request(), download=size, disk=size).minutes, Unknown)
    fast = Request(download_rate=Known(50e6, "measured"))
    assert isinstance(cost(fast, download=Unknown("no row"), disk=size).minutes, Unknown)
    assert isinstance(cost(fast, download=size, disk=size).money, Unknown)
    assert isinstance(cost(fast, download=size, disk=size, waits="a reboot").minutes, Unknown)


def test_what_fetches_nothing_takes_no_minutes_whatever_the_speed() -> None:
    free = cost(Request(), download=Known(0, "nothing"), disk=Known(0, "nothing"))
    assert (free.minutes, free.money) == (Known(0.0, "nothing"), Known(0.0, "nothing"))


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert summed((Known(1, "a"), Known(2, "b"))) == Known(3, "a; b")
    assert isinstance(summed((Known(1, "a"), Unknown("no row"))), Unknown)
