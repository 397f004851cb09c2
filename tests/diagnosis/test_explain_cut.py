"""A line that a terminal or a log cut at its end is known as long as what is left can be only one thing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.explain_cut import completions, fixed_words
from tests.diagnosis.test_explain_signatures import EXAMPLES
from tests.diagnosis.test_product_errors import ROWS

# Codes of rows whose line tells nothing, or another thing, without its end: a number, a name or a bracket stands there.
EXCEPTIONS: dict[str, list[str]] = json.loads(Path(__file__).with_name("cut_exceptions.json").read_text())
TEXTS = [(row["code"], row["text"].rstrip()) for row in ROWS]
TEXTS += [(code, text.rstrip()) for code, texts in EXAMPLES.items() for text in texts["is"]]
LINES = [(code, text) for code, text in TEXTS if "\n" not in text]


def _codes(text: str) -> list[str]:
    return [each.signature.code for each in explain_text(text).explanations]


def _without_end(text: str) -> str:
    return text[:-3]


def _without_word(text: str) -> str:
    return text.rpartition(" ")[0]


@pytest.mark.parametrize(
    ("name", "cut"), [("three letters", _without_end), ("the last word", _without_word)], ids=("letters", "word")
)
def test_a_line_without_its_end_has_the_same_answer(name: str, cut: Callable[[str], str]) -> None:
    others = {code: codes for code, text in LINES if code not in (codes := _codes(cut(text)))}
    assert sorted(code for code, codes in others.items() if not codes) == EXCEPTIONS[f"nothing, without {name}"]
    assert sorted(code for code, codes in others.items() if codes) == EXCEPTIONS[f"another, without {name}"]


def test_a_cut_line_is_shown_as_it_stands_and_may_be_any_of_a_short_text() -> None:
    cut = "RuntimeError: CUDA error: uncorrectable ECC error encoun"
    [found] = explain_text(f"step 1\n{cut}\nstep 2\n").explanations
    assert found.signature.code == "ecc-uncorrectable-214"
    assert [(each.line, each.text) for each in found.sightings] == [(2, cut)]


def test_what_may_go_on_in_several_ways_or_is_whole_is_left_as_it_is() -> None:
    assert _codes("Failed to initialize NVML: ") == []
    assert _codes("ModuleNotFoundError: No module named") == []
    assert completions("your driver on your system is too old") == ()


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        (r"cuda\.h: (?P<why>\w+) not found", ["cuda.h: ", " not found"]),
        (r"(?i)some\s+words", ["some words"]),
        (r"ab{2}c[\]x]+de?", ["a", "c", "d"]),
        (r"\bnvcc\b fatal", ["nvcc fatal"]),
    ],
)
def test_fixed_words_are_read_out_of_a_pattern(regex: str, words: list[str]) -> None:
    assert fixed_words(regex) == words
