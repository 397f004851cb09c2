"""A way out stands behind what must be so for it to help, and says it of this text."""

from __future__ import annotations

import json
import pkgutil
import re
from typing import Any

import pytest

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.explain_case import CASES
from firstlight.diagnosis.signatures import Decode, Signature, decoded, signatures

OPEN = [row for row in signatures() if row.one_of]


def _cases() -> list[dict[str, Any]]:
    text = pkgutil.get_data("firstlight.diagnosis", CASES)
    assert text is not None
    cases: list[dict[str, Any]] = json.loads(text)["rows"]
    return cases


def _first(text: str) -> Signature:
    return explain_text(text).explanations[0].signature


@pytest.mark.parametrize("row", OPEN, ids=lambda row: row.code)
def test_a_row_that_leaves_the_cause_open_has_no_way_for_one_of_them_alone(row: Signature) -> None:
    assert len(row.ways_out) > 1 or not row.ways_out[0].when, row.ways_out


def test_nor_has_a_case_that_leaves_it_open() -> None:
    for case in _cases():
        only = case["ways_out"][0] if len(case["ways_out"]) == 1 else {}
        assert not (case.get("one_of") and only.get("when")), case["of"]


def test_a_condition_has_the_values_of_the_text() -> None:
    ways = _first("ImportError: libcudart.so.10.2: cannot open shared object file: No such file").ways_out
    assert "find shows libcudart.so.10.2" in [way.when for way in ways]
    assert not [way for way in ways if re.search(r"\{[a-z]+\}", way.when)]


def test_words_that_stand_in_for_a_value_do_not_get_into_a_command() -> None:
    ways = _first("ImportError: undefined symbol: MagickCoreGenesis").prove.run
    assert ways[0] == "ldd FILE"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("You are using ptxas 10.1.243", "You are using ptxas 10.1.243"),
        ("11.1.", "11.1"),
        ('no cuda-capable device is detected\\\\n\\\\\\"\\"', "no cuda-capable device is detected"),
        ("libcublas.so.12", "libcublas.so.12"),
    ],
)
def test_the_end_of_a_sentence_or_of_a_quoted_text_is_no_part_of_a_value(text: str, value: str) -> None:
    assert decoded(Decode.TEXT, text) == value


def test_a_build_finds_no_toolkit_because_torch_has_no_cuda() -> None:
    failed = "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."
    assert "ls shows one with bin/nvcc" in [way.when for way in _first(failed).ways_out]
    beside = _first(f"{failed}\n$ nvcc -V\nCuda compilation tools, release 11.4, V11.4.315")
    assert beside.ways_out[0].when == "torch's CUDA is None"


@pytest.mark.parametrize(
    ("listed", "title"),
    [
        ("1.8.0, 1.12.1, 2.1.0", "A torch with this suffix is not on the index that was asked"),
        ("2.0.0, 2.0.1, 2.1.0", "This Python is newer than that release of torch"),
        ("0.1.2, 0.1.2.post1, 0.1.2.post2", "This Python is newer than that release of torch"),
        ("none", "There is no torch at all for this Python or platform here"),
    ],
)
def test_the_versions_that_pip_lists_say_why_a_torch_is_not_found(listed: str, title: str) -> None:
    found = _first(
        f"ERROR: Could not find a version that satisfies the requirement torch==1.12.1+cu113 (from versions: {listed})"
    )
    assert found.title == title
