"""What becomes of a finding when its advice is followed: the file or the machine with it applied, linted again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.lint_corpus import question, reader_of

from firstlight.diagnosis.finding import WORST_FIRST, Question, Severity
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.lint.edits import apply
from firstlight.lint.host import floor_of
from firstlight.lint.judge import Given, lint
from firstlight.lint.rule import LintFinding, LintReport
from firstlight.versions import DriverVersion
from firstlight.ways.kinds import AskPerson, Why, WireCompat
from firstlight.ways.way import Chain
from tests.lint.hands import followed as as_advised

MILDER = {each: WORST_FIRST[index + 1 :] for index, each in enumerate(WORST_FIRST)}

OF_TORCH = {"torch-needs-newer-driver", "torch-has-no-code-for-gpu", "torch-is-cpu-only"}


@dataclass(frozen=True)
class Outcome:
    """An answer followed: wrong '' where the finding is gone and nothing as bad came; by_hand: words alone."""

    code: str
    wrong: str
    by_hand: bool = False


@cache
def outcomes(given: Given, folder: Path, machine: str) -> tuple[Outcome, ...]:
    """Every finding of a file on a machine, with its first answer that can be applied; then all of them at once."""
    asked = question(machine)
    before = lint(given, asked, read=reader_of(folder))
    own = [finding for finding in before.findings if finding.file == given.file]
    return (
        *(_outcome(given, folder, machine, before, finding) for finding in own),
        *_together(given, folder, machine, before),
    )


def _together(given: Given, folder: Path, name: str, before: LintReport) -> list[Outcome]:
    """What still blocks, by code, where the first answer of every finding is followed, from the last line up."""
    asked = question(name)
    text, machine, by_hand, followed = given.text, asked, Counter[str](), 0
    for finding in sorted(before.findings, key=lambda each: -each.line):
        if finding.file != given.file:
            continue
        for answer in finding.answers:
            newer = _newer_driver(answer, finding, asked)
            changed = text if newer is not None else apply(text, finding, answer)
            if changed is not None:
                text, machine, followed = changed, newer or machine, followed + 1
                break
        else:
            by_hand[finding.code] += 1
    if followed < 2:
        return []  # one alone is tried by itself
    after = lint(replace(given, text=text), machine, read=reader_of(folder)).findings
    blocks = [each for each in after if each.severity is Severity.BLOCKS and each.file == given.file]
    count = Counter(each.code for each in blocks)
    left = [each for each in blocks if count[each.code] > by_hand[each.code]]
    return [
        Outcome(each.code, f"with all answers followed, {each.line}: {each.code}: {each.saw}\n{text}") for each in left
    ]


def _outcome(given: Given, folder: Path, machine: str, before: LintReport, finding: LintFinding) -> Outcome:
    asked = question(machine)
    codes = {each.code for each in before.findings}
    if finding.code == "framework-libraries-differ" and codes & OF_TORCH:
        return Outcome(finding.code, "")  # it goes with the torch that is advised beside it: tried together
    for answer in finding.answers:
        newer = _newer_driver(answer, finding, asked)
        text = given.text if newer is not None else as_advised(given.text, before, finding, answer, machine)
        if text is None:
            continue
        try:
            after = lint(replace(given, text=text), newer or asked, read=reader_of(folder)).findings
        except BadInput as error:
            return Outcome(finding.code, f"{finding.line}: {error}\n{text}")
        worse = _worse(finding, before, after, answer)
        return Outcome(finding.code, _told(finding, answer, after, text) if worse else "")
    return Outcome(finding.code, "", by_hand=True)


def _newer_driver(answer: Chain, finding: LintFinding, asked: Question) -> Question | None:
    """The machine with the newest driver of the tables, where the answer is to get one."""
    if not any(isinstance(way, AskPerson) and way.why is Why.HOST for way in answer.ways):
        return None
    newest = DriverVersion.parse(floor_of(asked, max(row.major for row in asked.tables.cuda_majors)))
    facts = asked.facts
    driver = replace(facts.driver, kernel_version=Known(newest, "advice"))
    return Question(replace(facts, driver=driver), asked.tables)


def _worse(finding: LintFinding, report: LintReport, after: tuple[LintFinding, ...], answer: Chain) -> bool:
    """Whether the finding is still there, or one as bad has come."""
    before, idle = report.findings, Counter(each.code for each in report.idle)
    had, has = Counter(each.code for each in before), Counter(each.code for each in after)
    at_start = any(isinstance(way, WireCompat) for way in answer.ways)
    same = [each for each in after if each.code == finding.code and each.severity not in MILDER[finding.severity]]
    stays = (
        len(same) >= sum(each.code == finding.code for each in before)
        if at_start
        else has[finding.code] >= had[finding.code]
    )
    milder = (*MILDER[finding.severity], Severity.NOTE)
    come = [each for each in after if has[each.code] > had[each.code] + idle[each.code] and each.severity not in milder]
    return stays or bool(come)


def _told(finding: LintFinding, answer: Chain, after: tuple[LintFinding, ...], text: str) -> str:
    left = "\n".join(f"    {each.line}: {each.severity.value} {each.code}: {each.saw}" for each in after)
    return f"{finding.line}: {finding.code}: {finding.saw}\n  answer {answer}\n  leaves\n{left}\n{text}"
