"""A plan as text: every command as a shell takes it, every file as a diff, and how each step is known to be done."""

from __future__ import annotations

import shlex

from firstlight.diagnosis.finding import Question
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.diffs import unified_diff
from firstlight.plan.option import Kind, Option
from firstlight.plan.plan import Plan
from firstlight.plan.request import Ranked
from firstlight.plan.step import CheckKind, Condition, Step, StepKind
from firstlight.report.layout import WIDTH, counted, labelled
from firstlight.report.summary import machine_summary
from firstlight.visible import one_line

_CHECKS = {
    CheckKind.FILE_EXISTS: "{target} exists",
    CheckKind.FILE_HOLDS: "{target} holds exactly that text",
    CheckKind.FILE_ABSENT: "{target} is gone",
    CheckKind.FILE_HAS_LINE: "{target} has that line",
    CheckKind.FILE_LACKS_LINE: "{target} has no line {expected}",
    CheckKind.LINK: "{target} is that link",
    CheckKind.DISTRIBUTIONS: "{target} has {expected}",
    CheckKind.APT_PACKAGE: "the package {target} is installed",
    CheckKind.GIT_COMMIT: "{target} stands at {expected}",
    CheckKind.COMMAND: "this succeeds: {argv}",
    CheckKind.PERSON: "{target} (a person tells)",
}


def plan_text(question: Question, plan: Plan, ranked: Ranked) -> str:
    """The plan for a person to read and, line by line, to paste."""
    out = option_text(question, plan, ranked)
    if plan.option.kind is Kind.NOTHING and not plan.steps:
        return f"{out}\nnothing to do\n"
    out += steps_text(plan.steps)
    optional = sum(step.optional for step in plan.steps)
    extra = f", {optional} of them optional" if optional else ""
    return f"{out}\n{counted(len(plan.steps), 'step')}{extra}; nothing is changed yet. digest {plan.digest}\n"


def option_text(question: Question, plan: Plan, ranked: Ranked) -> str:
    """The head of a plan: the machine and the option that is meant, without its steps."""
    what, where = machine_summary(question.facts)
    return f"{what}\n{where}\n\n{_refused(ranked)}{_option(plan.option, ranked)}"


def steps_text(steps: tuple[Step, ...]) -> str:
    """Every step with its commands, diffs and conditions, an empty line before each."""
    return "".join(f"\n{_shown(_step(number, step))}" for number, step in enumerate(steps, 1))


def _shown(text: str) -> str:
    """Bytes of a file that are not UTF-8, as a terminal can show them."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def no_plan_text(question: Question, ranked: Ranked) -> str:
    """What is printed where no option can work: each with the reason."""
    what, where = machine_summary(question.facts)
    out = f"{what}\n{where}\n\n{_refused(ranked)}no option can work here\n"
    for option in ranked.rejected:
        out += labelled("  not", (f"{option.title}: {option.why_not} [{option.id}]",), label_width=8)
    return out


def _refused(ranked: Ranked) -> str:
    lines = [clash.sentence for clash in ranked.refused]
    return labelled("refused", lines, label_width=10) + "\n" if lines else ""


def _option(option: Option, ranked: Ranked) -> str:
    place = next(
        (f"{number} of {len(ranked.options)}" for number, each in enumerate(ranked.options, 1) if each.id == option.id),
        "",
    )
    out = labelled("PLAN", (option.title,), label_width=10)
    out += labelled("  option", (f"{option.id} ({place}; `firstlight plan --options` shows all)",), label_width=10)
    out += labelled("  proof", (f"{option.proof.value}: {option.proof_by}",), label_width=10)
    out += labelled("  takes", (_takes(option),), label_width=10)
    if option.leaves_out:
        out += labelled("  not", option.leaves_out, label_width=10)
    return out


def _takes(option: Option) -> str:
    cost = option.cost
    parts = [
        _amount(cost.minutes, "{:.1f} minutes", "minutes unknown"),
        _bytes(cost.download_bytes, "to download"),
        _amount(cost.money, "{:.2f} in money", ""),
        "root" if option.needs_root else "no root",
        f"risk {option.risk.value}",
        f"reversible: {option.reversible.value}",
    ]
    return ", ".join(part for part in parts if part)


def _amount(fact: Fact[float], form: str, unknown: str) -> str:
    if isinstance(fact, Unknown):
        return unknown
    return form.format(fact.value) if fact.value else ""


def _bytes(fact: Fact[int], what: str) -> str:
    if isinstance(fact, Unknown):
        return f"unknown size {what} ({fact.reason})"
    if fact.value == 0:
        return ""
    return f"{fact.value / 1e9:.2f} GB {what}" if fact.value >= 1e8 else f"{fact.value / 1e6:.1f} MB {what}"


def _step(number: int, step: Step) -> str:
    head = f"{number}. {one_line(step.title)}"
    marks = [word for word, holds in (("optional", step.optional), ("as root", step.needs_root)) if holds]
    marks += ["by a person"] if step.kind is StepKind.MANUAL else []
    tag = f"[{step.id}]"
    gap = WIDTH - len(head) - len(tag)
    out = f"{head}{' ' * gap}{tag}\n" if gap > 1 else f"{head}\n   {tag}\n"
    out += _lines("because", (f"{step.because}{'; ' + ', '.join(marks) if marks else ''}",))
    out += "".join(f"{_indented(unified_diff(change))}" for change in step.files)
    out += "".join(f"   $ {as_typed(argv, step)}\n" for argv in step.commands)
    out += _lines("done", tuple(_condition(each) for each in step.done_when))
    out += _lines("undo", _undo(step))
    if not isinstance(step.bytes, Known) or step.bytes.value:
        out += _lines("size", (_bytes(step.bytes, "to download"),))
    return out + _lines("note", (step.note,) if step.note else ())


def as_typed(argv: tuple[str, ...], step: Step) -> str:
    """A command for a shell; what a person types into one is not wrapped in `sh -c` and quoted a second time."""
    by_a_shell = step.kind is StepKind.MANUAL and len(argv) == 3 and argv[:2] == ("sh", "-c")
    return argv[2] if by_a_shell else shlex.join(argv)


def _lines(label: str, lines: tuple[str, ...]) -> str:
    return labelled(f"   {label}", lines, label_width=11)


def _indented(diff: str) -> str:
    return "".join(f"   {line}".rstrip() + "\n" if line.strip() else "\n" for line in diff.splitlines())


def _undo(step: Step) -> tuple[str, ...]:
    lines = [f"{change.path} is {'put back as it was' if change.before else 'removed again'}" for change in step.files]
    return (*lines, *(shlex.join(argv) for argv in step.undo))


def _condition(condition: Condition) -> str:
    return _CHECKS[condition.kind].format(
        target=condition.target,
        expected=condition.expected.replace("\n", ", "),
        argv=shlex.join(condition.argv),
    )
