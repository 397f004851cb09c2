"""A diagnosis as text: the primary cause in full, the options once, the rest in a line each."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

from firstlight.diagnosis.agreement import doubts, set_aside
from firstlight.diagnosis.finding import Diagnosis, Finding, Rule, Severity
from firstlight.diagnosis.log_lines import not_explained
from firstlight.diagnosis.observed import has_nvidia_gpu
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.numerals import counted
from firstlight.report.facts_text import every_fact
from firstlight.report.layout import Painted, Part, Style, headed, labelled
from firstlight.report.steps_lines import Argv, command_lines
from firstlight.report.summary import is_wanted, machine_summary
from firstlight.ways.platform import Platform, platform_of
from firstlight.ways.way import Chain, first_ways, type_name
from firstlight.ways.words import title_of

_HEADS = {
    Severity.BLOCKS: Painted("BLOCKED", Style.BAD),
    Severity.DEGRADES: Painted("WORKS, BUT", Style.WARN),
    Severity.NOTE: Painted("NOTE", Style.HEAD),
}
_STYLES = {Severity.BLOCKS: Style.BAD, Severity.DEGRADES: Style.WARN}
_HEALTHY, _AS_WANTED = "healthy", "nothing keeps it from working"
_LABEL = 10
_MOST_LINES = 4  # of a log, on a screen


@dataclass(frozen=True, slots=True)
class WaysOut:
    """The ways out as they are shown: the list, what option 1 makes go away, and what to type next."""

    options: tuple[Part, ...] = ()
    answered: tuple[str, ...] = ()  # codes of findings
    next_calls: tuple[Argv, ...] = ()


class Length(enum.Enum):
    """How much of a diagnosis is printed."""

    SCREEN = "screen"
    ALL = "all"


def doctor_text(facts: Facts, diagnosis: Diagnosis, length: Length, out: WaysOut) -> Iterator[Part]:
    """The diagnosis for a person to read, with the ways out once."""
    what, where = machine_summary(facts)
    primary = diagnosis.of(diagnosis.primary) if diagnosis.primary else None
    if primary is None and length is Length.SCREEN:
        yield labelled("", (what,), label_width=0)
        yield from _healthy(facts, diagnosis)
        yield labelled("", (_notes(diagnosis),), label_width=0)
        yield from _not_explained(facts, diagnosis, length)
        yield from out.options
        yield from _next(out.next_calls)
        return
    yield labelled("", (what, where), label_width=0) + "\n"
    if length is Length.ALL:
        yield from _everything(facts, diagnosis, out.answered)
        yield from _not_explained(facts, diagnosis, length)
        yield from out.options
    elif primary is not None:
        yield from finding_text(primary)
        yield from out.options
        yield from _others([finding for finding in diagnosis.findings if finding is not primary], out.answered)
        yield from _not_explained(facts, diagnosis, length)
    yield from _next(out.next_calls)


def _everything(facts: Facts, diagnosis: Diagnosis, answered: tuple[str, ...]) -> Iterator[Part]:
    platform = platform_of(facts)
    for number, finding in enumerate(diagnosis.findings):
        yield "\n" if number else ""
        yield from finding_text(finding)
        yield (
            _indented("do", ("option 1, below",))
            if finding.code in answered
            else answers_text(finding.answers, platform)
        )
    if not diagnosis.findings:
        yield from _healthy(facts, diagnosis)


def _healthy(facts: Facts, diagnosis: Diagnosis) -> Iterator[Part]:
    said = healthy_sentence(facts, diagnosis)
    word, _, seen = said.partition(": ")
    if word not in (_HEALTHY, _AS_WANTED):
        yield labelled("", (said,), label_width=0)
        return
    yield Painted(word, Style.GOOD)
    yield labelled("", (f"{word}: {seen}",), label_width=0).removeprefix(word)


def healthy_sentence(facts: Facts, diagnosis: Diagnosis) -> str:
    """Where nothing was found: the word healthy if all that was seen agrees; else what does not agree."""
    if not has_nvidia_gpu(facts) and not isinstance(facts.driver.kernel_version, Known):
        return "nothing to repair: no NVIDIA GPU was found, and none was asked for (--want)"
    if against := doubts(facts, diagnosis):
        reasons = "; ".join(each.text for each in against)
        return f"nothing was found that keeps it from working, but {reasons}"
    seen = []
    if isinstance(facts.libcuda.init_code, Known) and facts.libcuda.init_code.value == 0:
        seen.append("cuInit works")
    if isinstance(facts.libcuda.device_count, Known):
        seen.append(f"sees {counted(facts.libcuda.device_count.value, 'device')}")
    if isinstance(facts.torch_libraries, Known) and not facts.torch_libraries.value.missing:
        seen.append("torch's libraries are all there")
    if left := set_aside(facts):
        seen.append(left)
    word = _AS_WANTED if is_wanted(facts) else _HEALTHY
    return f"{word}: {', '.join(seen) or 'nothing wrong was found'} (looked at, not proved: no kernel ran)"


def _not_explained(facts: Facts, diagnosis: Diagnosis, length: Length) -> Iterator[Part]:
    """Lines of the log that no finding accounts for; a screen has the newest of them."""
    left = not_explained(facts, diagnosis)
    if not left:
        return
    shown = left if length is Length.ALL else left[-_MOST_LINES:]
    yield "\n"
    yield Painted("seen and not explained", Style.WARN)
    yield "\n"
    for each in shown:
        times = f" ({each.count} times)" if each.count > 1 else ""
        yield labelled(f"  {each.line.seen_in}", (f"{each.line.text}{times}",), label_width=12)
    if len(shown) < len(left):
        yield f"  and {counted(len(left) - len(shown), 'older line')}: firstlight doctor --all\n"


def _notes(diagnosis: Diagnosis) -> str:
    if not diagnosis.findings:
        return "no notes"
    codes = ", ".join(finding.code for finding in diagnosis.findings)
    return f"{counted(len(diagnosis.findings), 'note')}: {codes} (firstlight doctor --all)"


def finding_text(finding: Finding) -> Iterator[Part]:
    """One finding in full: what was seen, what it means, the error it leads to."""
    head = _HEADS[finding.severity]
    yield head
    yield headed(f"{head.text}: {finding.title}", f"[{finding.code}]").removeprefix(head.text)
    yield _indented("saw", finding.saw)
    yield _indented("means", (finding.means,))
    yield _indented("error", finding.error.splitlines())
    yield _indented("cause", (f"a symptom of {finding.caused_by}",) if finding.caused_by else ())
    yield _indented("source", (finding.source,))


def answers_text(answers: tuple[Chain, ...], platform: Platform) -> str:
    """What the first answer does, way by way, with its commands where that is all there is to it, and what cannot."""
    from firstlight.ways.argv import commands  # a healthy machine has no need of it

    ways = {title_of(way, platform): way for way in first_ways(answers)}
    typed = [commands(way, platform) for way in ways.values()]
    done = ""
    for number, (title, argvs) in enumerate(zip(ways, typed, strict=True), 1):
        done += labelled("" if done else "  do", [f"{number}. {title}" if len(ways) > 1 else title], label_width=_LABEL)
        done += "".join(command_lines(argv, _LABEL) for argv in argvs) if all(typed) else ""
    refused = [f"{each.title}: {each.why_not}" for each in answers if each.why_not]
    return done + _indented("not", refused)


def _indented(label: str, lines: Iterable[str]) -> str:
    return labelled(f"  {label}", [line for line in lines if line], label_width=_LABEL)


def _others(rest: list[Finding], answered: tuple[str, ...]) -> Iterator[Part]:
    if not rest:
        return
    yield "\n"
    yield Painted("also", Style.HEAD)
    yield "\n"
    for finding in rest:
        more = f" (and {len(finding.saw) - 1} more)" if len(finding.saw) > 1 else ""
        symptom = f" (a symptom of {finding.caused_by})" if finding.caused_by else ""
        gone = " (gone with option 1)" if finding.code in answered else ""
        line = f"{finding.code}: {finding.saw[0]}{more}{symptom}{gone}"
        word = f"  {finding.severity.value}"
        if finding.severity in _STYLES:
            yield Painted(word, _STYLES[finding.severity])
            yield labelled(word, (line,), label_width=12).removeprefix(word)
        else:
            yield labelled(word, (line,), label_width=12)


def _next(calls: tuple[Argv, ...]) -> Iterator[Part]:
    if calls:
        yield "\n"
        yield Painted("next", Style.HEAD)
        yield "\n"
        yield "".join(command_lines(argv, 2) for argv in calls)


def rule_text(rule: Rule) -> str:
    """A rule for a person to read: what it looks at, when it fires, what then."""
    goals = ", ".join(f"{severity.value} for the goal {goal.value}" for goal, severity in rule.for_goals)
    out = f"{rule.code} ({rule.severity.value}{'; ' + goals if goals else ''})\n{rule.title}\n"
    out += _indented("fires", (rule.fires_when,))
    out += _indented("means", (rule.means,))
    out += _indented("error", rule.error.splitlines())
    out += _indented("facts", (", ".join(rule.looks_at),))
    out += _indented("ways", (", ".join(dict.fromkeys(map(type_name, rule.ways))),))
    return out + _indented("source", (rule.source,))


def why_not_text(rule: Rule, facts: Facts, diagnosis: Diagnosis) -> Iterator[Part]:
    """Why a rule did not fire: its condition beside what this machine has."""
    fired = diagnosis.of(rule.code)
    if fired is not None:
        yield f"{rule.code} did fire:\n"
        yield from finding_text(fired)
        return
    yield f"{rule.code} did not fire.\n" + _indented("fires", (rule.fires_when,))
    for place, found in facts_of_rule(rule, facts).items():
        yield _indented("here", found[:6] or (f"{place}: nothing",))


def facts_of_rule(rule: Rule, facts: Facts) -> dict[str, list[str]]:
    """What this machine has at each place that a rule looks at, one line a fact."""
    lines = list(every_fact(facts, ""))
    return {place: [line for line in lines if line.startswith((f"{place}:", f"{place}."))] for place in rule.looks_at}
