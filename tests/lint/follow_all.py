"""What is left of the blocks of every judged file when all answers are followed: `python -m tests.lint.follow_all`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

from benchmarks.lint_corpus import MACHINES, question, reader_of

from firstlight.diagnosis.finding import Severity
from firstlight.errors import BadInput
from firstlight.lint.judge import Given, lint
from tests.lint.hands import followed
from tests.lint.surviving import outcomes

ROUNDS = 6
ABOUT = (
    "Every judged file on six machines: findings whose first answer can be followed, and what is left of the blocks "
    "of a report after each run of lint whose answers were all followed."
)


def after_following(given: Given, folder: Path, machine: str) -> str:
    """'no block', or in which run of lint the last one was gone, or that a person is needed."""
    text = given.text
    for number in range(ROUNDS):
        try:
            report = lint(replace(given, text=text), question(machine), read=reader_of(folder))
        except BadInput:
            return "not readable"
        own = [each for each in report.findings if each.file == given.file]
        if not any(each.severity is Severity.BLOCKS for each in own):
            return "no block" if number == 0 else f"none after run {number}"
        before = text
        for finding in sorted(own, key=lambda each: -each.line):
            changed = (followed(text, report, finding, answer, machine) for answer in finding.answers)
            text = next((each for each in changed if each is not None), text)
        if text == before:
            return "a person"
    return "without end"


def main() -> None:
    from tests.lint.test_advice_survives import GIVEN

    cases = [(given, folder, machine) for folder, given in GIVEN for machine in MACHINES]
    ends = Counter(after_following(*each) for each in cases)
    found = [outcome for given, folder, machine in cases for outcome in outcomes(given, folder, machine)]
    by_hand = sum(each.by_hand for each in found)
    document = {
        "made_by": "python -m tests.lint.follow_all > results/lint-followed.json",
        "about": ABOUT,
        "findings": len(found),
        "followed": len(found) - by_hand,
        "reports": dict(ends),
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
