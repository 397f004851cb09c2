"""TOML is read alike whether this Python has a reader of its own or not, e.g. on a fleet's host with Python 3.10."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from firstlight import toml
from firstlight.toml import parse_toml

ROOT = Path(__file__).parents[1]
WRONG = {
    "a = \n": 1,
    "a = 1\nb = 'x\n": 2,
    "[one]\n[one\n": 2,
    "a = 1\na = 2\n": 2,
    "a = {x = 1, x = 2}\n": 0,  # tomlkit does not say where
}
FILES = [
    path
    for path in sorted(ROOT.rglob("*.toml"))
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]


@pytest.fixture
def without_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, toml._READER, None)


def _read(path: Path) -> object:
    try:
        return parse_toml(path.read_text())
    except ValueError:
        return "not TOML"


def test_every_file_here_has_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(FILES) > 5
    read = [_read(path) for path in FILES]
    assert read.count("not TOML") < len(read) / 2
    monkeypatch.setitem(sys.modules, toml._READER, None)
    assert [_read(path) for path in FILES] == read


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_toml_is_a_value_error_that_says_where(text: str) -> None:
    with pytest.raises(ValueError, match=r"\(at (line \d+, column \d+|end of document)\)"):
        parse_toml(text)


@pytest.mark.usefixtures("without_a_reader")
@pytest.mark.parametrize("text", WRONG)
def test_so_it_is_without_a_reader(text: str) -> None:
    where = f"line {WRONG[text]}, column \\d+" if WRONG[text] else "end of document"
    with pytest.raises(ValueError, match=rf"\(at {where}\)$"):
        parse_toml(text)
