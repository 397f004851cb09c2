"""An option that is given as nothing, and two that exclude each other, are refused: no gate passes by a slip."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from firstlight.cli.bench import SUBCOMMANDS
from firstlight.cli.main import VERBS, run
from tests.diagnosis.rule_case import MACHINES
from tests.schemas import fits

SCHEMAS = Path(__file__).parents[2] / "src/firstlight/schemas"


def commands() -> Iterator[tuple[list[str], click.Command]]:
    for verb, (module, _) in VERBS.items():
        command = importlib.import_module(f"firstlight.cli.{module}").command
        yield [verb], command
        for name, (file, _) in SUBCOMMANDS.items() if verb == "bench" else ():
            yield [verb, name], importlib.import_module(f"firstlight.cli.{file}").command
        for name, each in command.commands.items() if isinstance(command, click.Group) else ():
            yield [verb, name], each


def options() -> Iterator[tuple[list[str], str]]:
    for words, command in commands():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.default == "":
                yield words, max(parameter.opts, key=len)


OPTIONS = [pytest.param(words, name, id=" ".join([*words, name])) for words, name in options()]


@pytest.mark.parametrize(("words", "name"), OPTIONS)
def test_an_empty_value_is_not_an_option_left_out(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, name, ""]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"firstlight: {name} is empty: give ")
    assert error.rstrip().endswith(f", or leave {name} out.")


def test_there_are_such_options_in_most_verbs() -> None:
    assert len(OPTIONS) > 40


@pytest.mark.parametrize(
    "line",
    [
        "plan --facts example:h100-driver-570 --options --option 2",
        "plan --facts example:h100-driver-570 --options --diff",
        "doctor --explain-rule A --why-not B",
    ],
)
def test_two_questions_at_once_are_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert "were both given" in capsys.readouterr().err


def test_a_rule_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--explain-rule", "compat-stale", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    fits(document, json.loads((SCHEMAS / "rule-2.json").read_text()))
    assert (next(iter(document)), document["code"]) == ("schema", "compat-stale")


@pytest.mark.parametrize(("machine", "fired"), [("h100-driver-570", False), ("h200-compat-first", True)])
def test_why_a_rule_did_not_fire_is_a_document_too(
    machine: str, fired: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--facts", str(MACHINES / machine), "--why-not", "compat-stale", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    fits(document, json.loads((SCHEMAS / "why-not-2.json").read_text()))
    assert next(iter(document)) == "schema"
    assert document["fired"] is fired
    assert (document["finding"] is not None) is fired
    assert set(document["here"]) == set(document["rule"]["looks_at"])
