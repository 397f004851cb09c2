"""Files with one fault that blocks or degrades, and files that differ from them by the little that mends it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lint.linting import found

PAIRS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "pairs.json").read_text())
NEAR = [(pair, near) for pair in PAIRS for near in pair["near"]]


def _said(lines: list[str], pair: dict[str, Any]) -> list[tuple[str, int, str]]:
    text = "\n".join((*lines, ""))
    findings = found(text, pair["on"], file=pair["file"], beside=pair.get("beside"))
    return [(each.code, each.line, each.severity.value) for each in findings]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["what"])
def test_the_fault_is_said_on_its_line(pair: dict[str, Any]) -> None:
    severity = "degrades" if pair["code"] == "small-shared-memory" else "blocks"
    assert (pair["code"], pair["line"], severity) in _said(pair["fires"], pair)


@pytest.mark.parametrize(("pair", "near"), NEAR, ids=[f"{pair['what']}: {near[-2:]}"[:90] for pair, near in NEAR])
def test_a_file_without_it_is_left_alone(pair: dict[str, Any], near: list[str]) -> None:
    assert pair["code"] not in {code for code, _, _ in _said(near, pair)}


def test_of_a_wheel_that_does_not_exist_nothing_else_is_said() -> None:
    pair = next(each for each in PAIRS if each["what"].startswith("what does not exist"))
    assert [code for code, _, _ in _said(pair["fires"], pair)] == ["torch-wheel-does-not-exist"]


def test_uv_sync_takes_the_lock_before_the_project() -> None:
    pair = next(each for each in PAIRS if each["what"].startswith("uv sync"))
    lock = (
        'version = 1\nrequires-python = ">=3.12"\n\n[[package]]\nname = "torch"\nversion = "2.6.0"\n'
        'source = { registry = "https://pypi.org/simple" }\n'
    )
    assert pair["code"] not in {code for code, _, _ in _said(pair["fires"], {**pair, "beside": {"uv.lock": lock}})}


def test_what_uv_sync_installs_is_to_be_changed_in_the_project() -> None:
    pair = next(each for each in PAIRS if each["what"].startswith("uv sync"))
    (finding,) = found("\n".join(pair["fires"]), pair["on"], beside=pair["beside"])
    titles = [answer.title for answer in finding.answers]
    assert any(re.fullmatch(r"name torch==\S+ in pyproject\.toml, from \S+", title) for title in titles)
