"""Our quick dataclass behaves as the standard one."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight import frozen

T = TypeVar("T")


@frozen.dataclass(frozen=True, slots=True, order=True)
class Quick:
    """A quick one."""

    a: int
    b: tuple[int, ...] = ()
    c: str = dataclasses.field(default="x", compare=False)

    @property
    def twice(self) -> int:
        return self.a * 2


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Standard:
    """The standard one."""

    a: int
    b: tuple[int, ...] = ()
    c: str = dataclasses.field(default="x", compare=False)


@frozen.dataclass(slots=True)
class Changing:
    names: list[str] = dataclasses.field(default_factory=list)


@frozen.dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    value: T


values = st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), max_size=2).map(tuple), st.sampled_from("xy"))


@given(values, values)
def test_comparison_order_and_hash_agree_with_the_standard_decorator(one: Any, two: Any) -> None:
    ours, theirs = (Quick(*one), Quick(*two)), (Standard(*one), Standard(*two))
    assert (ours[0] == ours[1]) == (theirs[0] == theirs[1])
    assert (ours[0] < ours[1]) == (theirs[0] < theirs[1])
    assert (ours[0] >= ours[1]) == (theirs[0] >= theirs[1])
    assert (hash(ours[0]) == hash(ours[1])) == (hash(theirs[0]) == hash(theirs[1]))
    assert repr(ours[0]) == repr(theirs[0]).replace("Standard", "Quick")


def test_the_tools_for_dataclasses_work_on_it() -> None:
    one = Quick(1, (2,))
    assert dataclasses.is_dataclass(Quick)
    assert [field.name for field in dataclasses.fields(Quick)] == ["a", "b", "c"]
    assert dataclasses.replace(one, a=5) == Quick(5, (2,))
    assert dataclasses.asdict(one) == {"a": 1, "b": (2,), "c": "x"}
    assert one.twice == 2
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one) == one


def test_a_frozen_one_refuses_every_change() -> None:
    one = Quick(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.a
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        one.other = 2  # type: ignore[attr-defined]
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, (), "x", 4), {}), ((1,), {"a": 1}), ((1,), {"z": 1})])
def test_wrong_arguments_are_refused_as_usual(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for kind in (Quick, Standard):
        with pytest.raises(TypeError):
            kind(*args, **kwargs)


def test_a_mutable_one_gets_its_own_default_and_cannot_be_hashed() -> None:
    one, two = Changing(), Changing()
    one.names.append("x")
    assert two.names == []
    two.names = ["y"]
    assert one != two
    with pytest.raises(TypeError):
        hash(one)


def test_generic_classes_and_pattern_matching_work() -> None:
    box: Box[int] = Box(3)
    match box:
        case Box(value):
            assert value == 3
    assert Box[int].__args__ == (int,)  # type: ignore[attr-defined]
