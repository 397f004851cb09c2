"""One list on the screen: doctor's commands are the steps of `plan --option 1`, read back by a real shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from firstlight.cli.main import run
from firstlight.report.steps_lines import APPLY_WRITES
from tests.diagnosis.rule_case import MACHINES
from tests.shell_words import SHELLS, words_of

NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
MARKS = (
    "what it sets is for ",
    "you: ",
    "file: ",
    "optional: ",
    "optional, you: ",
    "left afterwards: ",
    "not known until it is done: ",
    APPLY_WRITES,
)


HEADS = ("\noptions, best first", "\nno way out is known; to find out more")


def _printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    run(list(words))
    return capsys.readouterr().out


def under_the_first(screen: str) -> Iterator[str]:
    """The lines under the first option, as far as the second, or the end of the list."""
    lines = iter(screen.split("\n"))
    for line in lines:
        if line.startswith("  1. "):
            break
    for line in lines:
        if not line.startswith("     "):
            return
        yield line.removeprefix("     ")


def commands_in(lines: Iterator[str]) -> list[str]:
    """The commands among them: what has no mark in front; a line that ends with a backslash goes on."""
    found: list[str] = []
    sentence = False
    for line in lines:
        if line.startswith(MARKS):
            sentence = True
        elif found and found[-1].endswith(" \\"):
            found[-1] += f"\n{line}"
        elif not (sentence and line.startswith("  ")):
            sentence = False
            found.append(line)
    return found


def _typed(step: dict[str, Any]) -> Iterator[tuple[str, ...] | str]:
    """What a step's commands are to a shell: its words; what you type into your own shell is the text of `sh -c`."""
    for argv in step["commands"]:
        own = step["kind"] == "manual" and len(argv) == 3 and argv[:2] == ["sh", "-c"]
        yield argv[2] if own else tuple(argv)
    yield from step["lines"]


@pytest.mark.parametrize("name", NAMES)
def test_doctors_commands_are_the_steps_of_the_first_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = ("--facts", str(MACHINES / name))
    screen = _printed(capsys, "doctor", *facts)
    if not any(head in screen for head in HEADS):
        assert "\n  1. " not in screen
        return
    plan = json.loads(_printed(capsys, "plan", "--option", "1", "--json", *facts))
    expected = [argv for step in plan["steps"] for argv in _typed(step)]
    commands = commands_in(under_the_first(screen))
    assert len(commands) == len(expected)
    assert [command for command, what in zip(commands, expected, strict=True) if isinstance(what, str)] == [
        what for what in expected if isinstance(what, str)
    ]
    plain = [(command, what) for command, what in zip(commands, expected, strict=True) if not isinstance(what, str)]
    for shell in SHELLS:
        assert words_of(shell, [command for command, _ in plain]) == [what for _, what in plain]
    optional = [step["optional"] for step in plan["steps"]]
    assert optional == sorted(optional), "what is optional comes last"


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_the_number_and_the_title_that_plan_knows_it_by(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = ("--facts", str(MACHINES / name))
    screen = _printed(capsys, "doctor", "--all", *facts)
    options = json.loads(_printed(capsys, "plan", "--options", "--json", *facts))["options"]
    if not any(head in screen for head in HEADS):
        assert [option["kind"] for option in options] in ([], ["nothing-to-do"])
        return
    for number, option in enumerate(options, 1):
        assert f"\n{number:>3}. {option['title']}  " in screen
        assert len(option["title"]) <= 70
        for code in option["stays"]:
            assert code in screen
