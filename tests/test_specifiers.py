"""Requirements are judged as pip judges them; `packaging` is the referee."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from firstlight.specifiers import newest, satisfies

_NUMBER = st.integers(0, 12).map(str)
_RELEASE = st.lists(_NUMBER, min_size=1, max_size=4).map(".".join)
_STAGE = st.sampled_from(("", "", "", "a0", "b2", "rc1", ".alpha1", "-pre2", "c3"))
_POST = st.sampled_from(("", "", "", ".post0", ".post1", "-1", ".rev2"))
_DEV = st.sampled_from(("", "", "", ".dev0", ".dev20251015"))
_LOCAL = st.sampled_from(("", "", "+cu130", "+cpu", "+git12.d3", "+5"))
_EPOCH = st.sampled_from(("", "", "", "", "1!"))
VERSIONS = st.builds(lambda *parts: "".join(parts), _EPOCH, _RELEASE, _STAGE, _POST, _DEV, _LOCAL)
PUBLIC = st.builds(lambda *parts: "".join(parts), _EPOCH, _RELEASE, _STAGE, _POST, _DEV)
CLAUSES = st.one_of(
    st.builds(lambda operator, version: operator + version, st.sampled_from(("==", "!=")), VERSIONS),
    st.builds(lambda operator, version: operator + version, st.sampled_from((">=", "<=", "<", ">", "~=")), PUBLIC),
    st.builds(lambda operator, release: f"{operator}{release}.*", st.sampled_from(("==", "!=")), _RELEASE),
)


@settings(max_examples=1500, deadline=None)
@given(VERSIONS, st.lists(CLAUSES, min_size=1, max_size=3).map(",".join))
def test_a_version_meets_a_specifier_where_packaging_says_so(version: str, specifier: str) -> None:
    try:
        wanted = SpecifierSet(specifier)
    except InvalidSpecifier:
        assert satisfies(version, specifier) in (None, False)
        return
    assert satisfies(version, specifier) is wanted.contains(version, prereleases=True)


@settings(max_examples=500, deadline=None)
@given(st.lists(VERSIONS, min_size=1, max_size=5))
def test_the_newest_version_is_the_one_packaging_sorts_last(versions: list[str]) -> None:
    assert Version(newest(tuple(versions))) == max(Version(version) for version in versions)


@pytest.mark.parametrize(
    ("version", "specifier", "answer"),
    [
        ("2.9.0+cu130", "==2.8.0", False),
        ("2.9.0+cu130", "==2.9.0", True),
        ("2.9.0+cu130", "==2.9.0+cu128", False),
        ("3.4.0", "==3.5.0", False),
        ("2.9.1", "==2.9.*", True),
        ("3.8.2", "~=3.8.0", True),
        ("3.9.0", "~=3.8.0", False),
        ("13.1.0.3", "<=13.1.1.3,>=13.1.0.3", True),
        ("2.12.0a0+gita58677f", ">=2.12", False),
        ("anything", "", True),
    ],
)
def test_the_requirements_of_the_field_reports_are_judged_right(version: str, specifier: str, *, answer: bool) -> None:
    assert satisfies(version, specifier) is answer


@pytest.mark.parametrize(("version", "specifier"), [("unknown", "==2.8.0"), ("2.8.0", "~~2"), ("2.8.0", "==two")])
def test_what_cannot_be_read_is_neither_yes_nor_no(version: str, specifier: str) -> None:
    assert satisfies(version, specifier) is None


def test_one_clause_that_fails_decides_although_another_cannot_be_read() -> None:
    assert satisfies("2.9.0", "==2.8.0,~~2") is False
