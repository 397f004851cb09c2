"""An option tried again, apart from the planner: its ways on paper, one judgement, and what it should have said."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Diagnosis, Question, Severity
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.plan.option import Option
from firstlight.ways.effects import after_all
from firstlight.ways.kinds import AskPerson, OtherMachine, UseImage


def judged_after(question: Question, option: Option) -> Diagnosis | None:
    """What is found once the ways of an option are carried out; None for a place that is not this one."""
    if any(isinstance(way, OtherMachine | UseImage) for way in option.ways):
        return None
    return judge(replace(question, facts=after_all(option.ways, question.facts, question.tables)), RULES)


def faults_of_option(question: Question, option: Option) -> tuple[str, ...]:
    """Where an option says other than what its ways lead to."""
    before, then = judge(question, RULES), judged_after(question, option)
    if then is None:
        return ()
    settled = _by_a_person(option, (before, then))
    left = {each.code: each for each in then.findings if each.code not in settled}
    blocking = {code for code, each in left.items() if each.severity is Severity.BLOCKS and not each.caused_by}
    faults = [f"claims {code}, which is found afterwards" for code in option.because if code in left]
    faults += [f"claims {code}, which was not found before" for code in option.because if before.of(code) is None]
    if missing := blocking - set(option.stays):
        faults.append(f"keeps quiet about {sorted(missing)}")
    if set(option.after) != set(left):
        faults.append(f"says {sorted(option.after)} is left, and it is {sorted(left)}")
    return tuple(faults)


def _by_a_person(option: Option, looked: tuple[Diagnosis, ...]) -> set[str]:
    """The findings that a person of this option takes care of, and their symptoms: no fact is foretold for those."""
    asked = {way for way in option.ways if isinstance(way, AskPerson) and way.cures}
    findings = [each for diagnosis in looked for each in diagnosis.findings]
    answered = {each.code for each in findings if any(asked & set(chain.ways) for chain in each.answers)}
    return answered | {each.code for each in findings if each.caused_by in answered}
