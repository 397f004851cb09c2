"""What doctor, plan and plan --options print of every recorded machine fits; titles say what is done."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.plan.plan import plan_for
from firstlight.report.doctor_text import Length, WaysOut, doctor_text
from firstlight.report.layout import drawn_for, plain
from firstlight.report.options_text import options_list, options_text
from firstlight.report.plan_text import plan_text
from firstlight.ways.extras import Extras
from firstlight.ways.platform import platform_of
from tests.plan.planning import NAMES, question_of, ranked_of

# The order that is given: install it, take it out. A new one belongs here once a person would say it so.
_VERBS = (
    "allow", "attest", "bring", "build", "cut", "empty", "enrol", "give", "have", "install", "keep", "leave", "let",
    "link", "load", "look", "make", "move", "power", "purge", "put", "reload", "remove", "reset", "restart", "run",
    "see", "set", "start", "take", "use", "check", "find", "delete", "turn", "unset", "wire",
)  # fmt: skip


def _screens(name: str) -> str:
    question, ranked = question_of(name), ranked_of(name)
    diagnosis, first = judge(question, RULES), ranked.options[:1]
    plans = [plan_for(question, option, extras=Extras()) for option in first]
    ways = WaysOut(tuple(options_list(ranked, plans[0].steps, most=9)), first[0].because) if first else WaysOut()
    shown = ways if diagnosis.primary else WaysOut()
    screens = [doctor_text(question.facts, diagnosis, Length.SCREEN, shown)]
    screens += [
        options_text(ranked, platform_of(question.facts)),
        *(plan_text(question, each, ranked) for each in plans),
    ]
    return "".join(map(plain, screens))


@pytest.mark.parametrize("columns", [80, 110])
@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_wider_than_the_terminal(name: str, columns: int) -> None:
    """But for one word of a shell, a path or an address, which is not cut: it could not be pasted."""
    with drawn_for(columns):
        wide = [line for line in _screens(name).splitlines() if len(line) > columns]
    assert [line for line in wide if "'" not in line and '"' not in line and len(line.split()) > 2] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_title_begins_with_what_is_done(name: str) -> None:
    titles = [option.title for option in ranked_of(name).options]
    assert [title for title in titles if title.split()[0] not in _VERBS] == []
