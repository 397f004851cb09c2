"""A diagnosis as text: the primary cause in full, the rest in a line each; a healthy machine in three lines."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from firstlight.diagnosis.finding import Diagnosis, Finding, Rule, Severity, with_other_ways
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.report.facts_text import every_fact
from firstlight.report.layout import WIDTH, counted, labelled
from firstlight.report.summary import is_wanted, machine_summary

_HEADS = {Severity.BLOCKS: "BLOCKED", Severity.DEGRADES: "WORKS, BUT", Severity.NOTE: "NOTE"}


class Length(enum.Enum):
    """How much of a diagnosis is printed."""

    SCREEN = "screen"
    ALL = "all"


def doctor_text(facts: Facts, diagnosis: Diagnosis, length: Length, options: str = "") -> str:
    """The diagnosis for a person to read; `options`: the best ways out, in lines of their own."""
    what, where = machine_summary(facts)
    if not diagnosis.primary and length is Length.SCREEN:
        return f"{what}\n{_healthy(facts)}\n{_notes(diagnosis)}\n{options}"
    out = f"{what}\n{where}\n\n"
    if length is Length.ALL:
        out += "\n".join(finding_text(finding) for finding in diagnosis.findings)
        return out + options if diagnosis.findings else f"{out}{_healthy(facts)}\n"
    primary = diagnosis.of(diagnosis.primary)
    assert primary is not None, diagnosis.primary
    rest = [finding for finding in diagnosis.findings if finding.code != diagnosis.primary]
    return out + finding_text(primary) + options + _others(rest) + _where_next(rest)


def _healthy(facts: Facts) -> str:
    if not facts.gpus.devices and not isinstance(facts.driver.kernel_version, Known):
        return "nothing to repair: no NVIDIA GPU was found, and none was asked for (--want)"
    seen = []
    if isinstance(facts.libcuda.init_code, Known) and facts.libcuda.init_code.value == 0:
        seen.append("cuInit works")
    if isinstance(facts.libcuda.device_count, Known):
        seen.append(f"sees {counted(facts.libcuda.device_count.value, 'device')}")
    if isinstance(facts.torch_libraries, Known) and not facts.torch_libraries.value.missing:
        seen.append("torch's libraries are all there")
    word = "nothing keeps it from working" if is_wanted(facts) else "healthy"
    return f"{word}: {', '.join(seen) or 'nothing wrong was found'} (looked at, not proved: no kernel was run)"


def _notes(diagnosis: Diagnosis) -> str:
    if not diagnosis.findings:
        return "no notes"
    codes = ", ".join(finding.code for finding in diagnosis.findings)
    return f"{counted(len(diagnosis.findings), 'note')}: {codes} (firstlight doctor --all)"


def finding_text(finding: Finding) -> str:
    """One finding in full: what was seen, what it means, the error it leads to, what to do."""
    head = f"{_HEADS[finding.severity]}: {finding.title}"
    code = f"[{finding.code}]"
    gap = WIDTH - len(head) - len(code)
    out = f"{head}{' ' * gap}{code}\n" if gap > 1 else f"{head}\n  {code}\n"
    out += _indented("saw", finding.saw)
    out += _indented("means", (finding.means,))
    if finding.error:
        out += _indented("error", tuple(finding.error.splitlines()))
    out += _indented("do", _numbered(finding.do))
    if finding.caused_by:
        out += _indented("cause", (f"a symptom of {finding.caused_by}",))
    return out + _indented("source", (finding.source,))


def _numbered(steps: Sequence[str]) -> list[str]:
    """Steps with their numbers where there are several; other ways to do a step stand below it without one."""
    groups = with_other_ways(steps)
    if len(groups) < 2:
        return list(steps)
    lines: list[str] = []
    for number, (step, *others) in enumerate(groups, 1):
        lines += [f"{number}. {step}", *(f"   {other}" for other in others)]
    return lines


def _indented(label: str, lines: tuple[str, ...] | list[str]) -> str:
    return labelled(f"  {label}", [line for line in lines if line], label_width=10)


def _others(rest: list[Finding]) -> str:
    if not rest:
        return ""
    out = "\nalso\n"
    for finding in rest:
        more = f" (and {len(finding.saw) - 1} more)" if len(finding.saw) > 1 else ""
        symptom = f" (a symptom of {finding.caused_by})" if finding.caused_by else ""
        line = f"{finding.code}: {finding.saw[0]}{more}{symptom}"
        out += labelled(f"  {finding.severity.value}", (line,), label_width=12)
    return out


def _where_next(rest: list[Finding]) -> str:
    more = "`firstlight doctor --all` prints all of them in full; " if rest else ""
    return f"\n{more}`firstlight facts` shows what was looked at.\n"


def rule_text(rule: Rule) -> str:
    """A rule for a person to read: what it looks at, when it fires, what then."""
    goals = ", ".join(f"{severity.value} for the goal {goal.value}" for goal, severity in rule.for_goals)
    out = f"{rule.code} ({rule.severity.value}{'; ' + goals if goals else ''})\n{rule.title}\n"
    out += _indented("fires", (rule.fires_when,))
    out += _indented("means", (rule.means,))
    out += _indented("error", tuple(rule.error.splitlines()))
    out += _indented("facts", (", ".join(rule.looks_at),))
    out += _indented("ways", (", ".join(rule.remedies),))
    return out + _indented("source", (rule.source,))


def why_not_text(rule: Rule, facts: Facts, diagnosis: Diagnosis) -> str:
    """Why a rule did not fire: its condition beside what this machine has."""
    fired = diagnosis.of(rule.code)
    if fired is not None:
        return f"{rule.code} did fire:\n{finding_text(fired)}"
    out = f"{rule.code} did not fire.\n" + _indented("fires", (rule.fires_when,))
    for place, found in facts_of_rule(rule, facts).items():
        out += _indented("here", found[:6] or (f"{place}: nothing",))
    return out


def facts_of_rule(rule: Rule, facts: Facts) -> dict[str, list[str]]:
    """What this machine has at each place that a rule looks at, one line a fact."""
    lines = list(every_fact(facts, ""))
    return {place: [line for line in lines if line.startswith((f"{place}:", f"{place}."))] for place in rule.looks_at}
