"""The order of options: properties that hold for any options, and the parts of the rule one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.option import Cost, Keeps, Kind, Option
from firstlight.plan.ranking import RULE, order
from firstlight.ways.kinds import RegisterFolder, Scope, SetVariables, Variable
from firstlight.ways.way import Proof, Reversible, Risk, Way
from tests.plan.planning import NAMES, ranked_of


def ranked(options: list[Option]) -> list[Option]:
    return sorted(options, key=order)


def _amounts(most: int) -> st.SearchStrategy[Fact[int]]:
    return st.one_of(st.integers(0, most).map(lambda n: Known(n, "a row")), st.just(Unknown("no row")))


_PLAIN = Option(
    id="another-wheel:torch-2.9.0+cu128",
    kind=Kind.WHEEL,
    title="t",
    ways=(),
    because=("a-finding",),
    stays=(),
    after=(),
    unsure=(),
    proof=Proof.DOCUMENTED,
    proof_by="s",
    keeps=Keeps.RELEASE,
    satisfies=(),
    leaves_out=(),
    cost=Cost(Known(4.0, "s"), Known(10**9, "s"), Unknown("no row"), Known(1.0, "s")),
    needs_root=False,
    reversible=Reversible.YES,
    risk=Risk.LOW,
    newest=(2, 9, 0),
)


@st.composite
def _options(draw: st.DrawFn) -> Option:
    kind = draw(st.sampled_from(Kind))
    minutes: Fact[float] = draw(_amounts(90))
    money: Fact[float] = draw(_amounts(9))
    return replace(
        _PLAIN,
        id=f"{kind.value}:{draw(st.integers(0, 99))}",
        kind=kind,
        stays=tuple(f"finding-{n}" for n in range(draw(st.integers(0, 2)))),
        proof=draw(st.sampled_from(Proof)),
        keeps=draw(st.sampled_from(Keeps)),
        leaves_out=tuple(f"want {n}" for n in range(draw(st.integers(0, 2)))),
        cost=Cost(minutes, draw(_amounts(10**10)), Unknown("no row"), money),
        needs_root=draw(st.booleans()),
        reversible=draw(st.sampled_from(Reversible)),
        risk=draw(st.sampled_from(Risk)),
        by_hand=draw(st.booleans()),
        wanted=draw(st.booleans()),
        newest=draw(st.sampled_from([(), (2, 9, 0), (2, 10, 0)])),
    )


_LISTS = st.lists(_options(), min_size=1, max_size=8, unique_by=lambda option: option.id)
_PROOFS, _KEPT = tuple(Proof), tuple(Keeps)


@given(_LISTS, st.data())
def test_the_order_does_not_depend_on_the_order_of_generation(options: list[Option], data: st.DataObject) -> None:
    assert ranked(data.draw(st.permutations(options))) == ranked(options)


@given(_LISTS)
def test_whoever_leaves_fewer_blockers_is_before_whoever_leaves_more(options: list[Option]) -> None:
    left = [len(option.stays) for option in ranked(options)]
    assert left == sorted(left)


def _place(options: list[Option], identity: str) -> int:
    return [each.id for each in ranked(options)].index(identity)


@given(_LISTS, st.data())
def test_more_proof_never_ranks_lower(options: list[Option], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(options))
    better = data.draw(st.sampled_from(_PROOFS[: _PROOFS.index(chosen.proof) + 1]))
    improved = [replace(each, proof=better) if each is chosen else each for each in options]
    assert _place(improved, chosen.id) <= _place(options, chosen.id)


@given(_LISTS, st.data())
def test_keeping_more_never_ranks_lower(options: list[Option], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(options))
    better = data.draw(st.sampled_from(_KEPT[: _KEPT.index(chosen.keeps) + 1]))
    improved = [replace(each, keeps=better) if each is chosen else each for each in options]
    assert _place(improved, chosen.id) <= _place(options, chosen.id)


@given(_LISTS, st.data())
def test_learning_that_an_option_costs_nothing_never_ranks_it_lower(options: list[Option], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(options))
    free = Cost(Known(0.0, "s"), Known(0, "s"), Known(0, "s"), Known(0.0, "s"))
    improved = [replace(each, cost=free) if each is chosen else each for each in options]
    assert _place(improved, chosen.id) <= _place(options, chosen.id)


@pytest.mark.parametrize(
    "worse",
    [
        replace(_PLAIN, stays=("driver-too-old-for-wheel",)),
        replace(_PLAIN, by_hand=True),
        replace(_PLAIN, keeps=Keeps.MINOR),
        replace(_PLAIN, proof=Proof.REPORTED),
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
        replace(_PLAIN, id="another-wheel:torch-2.8.0+cu128", newest=(2, 8, 0)),
    ],
)
def test_each_part_of_the_rule_decides_where_all_before_it_is_equal(worse: Option) -> None:
    other = replace(worse, id=f"{worse.id}-b") if worse.id == _PLAIN.id else worse
    assert ranked([other, _PLAIN]) == [_PLAIN, other]


_ASKED = replace(_PLAIN, wanted=True, keeps=Keeps.ALL)


def test_of_what_was_asked_for_whoever_leaves_out_less_is_first() -> None:
    leaves_out = replace(_ASKED, id="b", leaves_out=("torch==2.9.0+cu130: it becomes cu128",), proof=Proof.PROVED_HERE)
    assert ranked([leaves_out, _ASKED]) == [_ASKED, leaves_out]


def test_of_releases_asked_for_that_are_equal_in_proof_the_newer_is_first_though_it_is_larger() -> None:
    larger = replace(_ASKED.cost, minutes=Known(9.0, "s"), download_bytes=Known(9 * 10**9, "s"))
    newer = replace(_ASKED, id="another-wheel:torch-2.10.0", cost=larger, newest=(2, 10, 0))
    assert ranked([_ASKED, newer]) == [newer, _ASKED]
    less_sure = replace(newer, proof=Proof.REPORTED)
    assert ranked([less_sure, _ASKED]) == [_ASKED, less_sure]
    leaves_out = replace(newer, leaves_out=("torch 2.9.0: it becomes 2.10.0",))
    assert ranked([leaves_out, _ASKED]) == [_ASKED, leaves_out]


def test_what_keeps_more_is_before_what_is_better_proved_unless_it_is_a_guess() -> None:
    newer = replace(_PLAIN, id="another-wheel:torch-2.10.0", keeps=Keeps.NEWER, proof=Proof.PROVED_HERE)
    kept = replace(_PLAIN, proof=Proof.REPORTED)
    assert ranked([newer, kept]) == [kept, newer]
    guessed = replace(_PLAIN, proof=Proof.GUESSED)
    assert ranked([guessed, newer]) == [newer, guessed]


def test_releases_are_kept_in_this_order() -> None:
    """The release, then its minor, then a newer one; an older one only where nothing else is there."""
    wheels = (Keeps.RELEASE, Keeps.MINOR, Keeps.NEWER, Keeps.OLDER, Keeps.NOTHING)
    options = [replace(_PLAIN, id=str(number), keeps=kept) for number, kept in enumerate(wheels)]
    assert ranked(options[::-1]) == options


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


def test_the_rule_is_said_in_words_with_its_parts_in_their_order() -> None:
    parts = ("block", "wants", "keeps", "proved here", "documented", "reported", "guessed", "minutes", "download",
             "money", "take back", "risk", "root")  # fmt: skip
    places = [RULE.index(part) for part in parts]
    assert places == sorted(places)
    assert "not known comes after" in " ".join(RULE.split())


def test_what_every_program_has_comes_before_what_login_shells_alone_have() -> None:
    first, second = ranked_of("gke-libcuda-out-of-reach").options
    assert isinstance(first.ways[0], RegisterFolder)
    assert second.ways == (SetVariables((Variable("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"),), Scope.PROGRAM),)
    (shells,) = [option for option in ranked_of("gb10-triton-3-5").options if option.only_for]
    assert shells.only_for == "login shells alone: a service, a job or a notebook needs it where that is started"
    assert ranked_of("small-pod").options[0].only_for.endswith(", and it goes with this container")
    assert order(shells) > order(replace(shells, only_for=""))


def test_no_option_sets_a_search_path_of_libraries_for_good() -> None:
    sets = [way for name in NAMES for option in ranked_of(name).options for way in option.ways if _sets_a_path(way)]
    assert {way.scope for way in sets} == {Scope.PROGRAM}


def _sets_a_path(way: Way) -> TypeGuard[SetVariables]:
    return isinstance(way, SetVariables) and any(each.name == "LD_LIBRARY_PATH" for each in way.variables)
