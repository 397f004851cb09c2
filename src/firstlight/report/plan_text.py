"""A plan as text: every command as a shell takes it, every file in a line or as a diff, and how each is known done."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.numerals import counted
from firstlight.plan.option import Kind, Option
from firstlight.plan.plan import Plan
from firstlight.plan.request import Ranked
from firstlight.report.layout import Painted, Part, Style, headed, labelled
from firstlight.report.options_text import reservations, takes
from firstlight.report.steps_lines import Argv, command_lines, commands_of, folded, sentence
from firstlight.report.summary import machine_summary
from firstlight.visible import one_line
from firstlight.ways.diffs import unified_diff
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind

_CHECKS = {
    CheckKind.FILE_EXISTS: "{target} exists",
    CheckKind.FILE_HOLDS: "{target} holds exactly that text",
    CheckKind.FILE_ABSENT: "{target} is gone",
    CheckKind.FILE_HAS_LINE: "{target} has {expected}",
    CheckKind.FILE_LACKS_LINE: "{target} has no line {expected}",
    CheckKind.LINK: "{target} is that link",
    CheckKind.DISTRIBUTIONS: "{target} has {expected}",
    CheckKind.DISTRIBUTIONS_ABSENT: "{target} has no {expected}",
    CheckKind.APT_PACKAGE: "the package {target} is installed",
    CheckKind.APT_ABSENT: "the package {target} is not installed",
    CheckKind.GIT_COMMIT: "{target} stands at {expected}",
    CheckKind.COMMAND: "this succeeds:",
    CheckKind.ONCE: "its commands end without an error ({target})",
    CheckKind.PERSON: "{target} (you see that yourself)",
}
_DIFF: Argv = ("firstlight", "plan", "--diff")
_INDENT = 3
_LABEL = 11


class Files(enum.Enum):
    """How a file that is written is shown."""

    FOLDED = "folded"  # wire.sh, 84 lines, new
    DIFF = "diff"


def plan_text(
    question: Question, plan: Plan, ranked: Ranked, *, files: Files = Files.FOLDED, diff: Argv = _DIFF
) -> Iterator[Part]:
    """The plan for a person to read and, line by line, to paste; `diff` is what shows the files of this machine."""
    yield from option_text(question, plan, ranked)
    if plan.option.kind is Kind.NOTHING and not plan.steps:
        yield "\nnothing to do\n"
        return
    yield steps_text(plan.steps, files=files)
    optional = sum(step.optional for step in plan.steps)
    extra = f", {optional} of them optional" if optional else ""
    yield f"\n{counted(len(plan.steps), 'step')}{extra}; nothing is changed yet\ndigest {plan.digest}\n"
    if files is Files.FOLDED and any(step.files for step in plan.steps):
        if diff == _DIFF:
            yield "`firstlight plan --diff` shows what is written into each file\n"
        else:
            yield "what is written into each file is shown by\n" + command_lines(diff, 2)


def option_text(question: Question, plan: Plan, ranked: Ranked) -> Iterator[Part]:
    """The head of a plan: the machine and the option that is meant, without its steps."""
    yield f"{_machine(question)}\n{_refused(ranked)}"
    yield from _option(plan.option, ranked)


def steps_text(steps: tuple[Step, ...], *, files: Files = Files.FOLDED) -> str:
    """Every step with its commands, files and conditions, an empty line before each."""
    return "".join(f"\n{_shown(_step(number, step, files))}" for number, step in enumerate(steps, 1))


def _shown(text: str) -> str:
    """Bytes of a file that are not UTF-8, as a terminal can show them."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def no_plan_text(question: Question, ranked: Ranked) -> str:
    """What is printed where no option can work: each with the reason."""
    out = f"{_machine(question)}\n{_refused(ranked)}no option can work here\n"
    for option in ranked.rejected:
        out += labelled("  not", (f"{option.title}: {option.why_not}",), label_width=8)
    return out


def _machine(question: Question) -> str:
    return labelled("", machine_summary(question.facts), label_width=0)


def _refused(ranked: Ranked) -> str:
    lines = [clash.sentence for clash in ranked.refused]
    return labelled("refused", lines, label_width=10) + "\n" if lines else ""


def _option(option: Option, ranked: Ranked) -> Iterator[Part]:
    place = next((number for number, each in enumerate(ranked.options, 1) if each.id == option.id), 0)
    yield Painted("PLAN", Style.HEAD)
    yield labelled("PLAN", (one_line(option.title),), label_width=10).removeprefix("PLAN")
    yield _about("option", (f"{option.id} ({place} of {len(ranked.options)}; `firstlight plan --options` shows all)",))
    yield _about("proof", (f"{option.proof.value}: {option.proof_by}",))
    yield _about("but", tuple(reservations(option)))
    root = "root" if option.needs_root else "no root"
    yield _about("takes", (takes(option.cost),))
    yield _about("risk", (f"{root}, risk {option.risk.value}, can be taken back: {option.reversible.value}",))
    yield _about("not", option.leaves_out)


def _about(label: str, lines: tuple[str, ...]) -> str:
    return labelled(f"  {label}", lines, label_width=10)


def _step(number: int, step: Step, files: Files) -> str:
    marks = [word for word, holds in (("optional", step.optional), ("as root", step.needs_root)) if holds]
    marks += ["you do this"] if step.kind is StepKind.MANUAL else []
    out = headed(f"{number}. {one_line(step.title)}", f"[{step.id}]")
    out += _lines("because", (f"{step.because}{'; ' + ', '.join(marks) if marks else ''}",))
    out += "".join(_file(change, files) for change in step.files)
    out += commands_of(step, _INDENT)
    out += "".join(_condition(number, says) for number, says in enumerate(_conditions(step.done_when)))
    out += _undo(step)
    fetches = step.bytes.value > 0 if isinstance(step.bytes, Known) else step.kind is not StepKind.MANUAL
    if fetches:
        out += _lines("size", (_bytes(step.bytes),))
    return out + _lines("note", (step.note,) if step.note else ())


def _bytes(fact: Fact[int]) -> str:
    if isinstance(fact, Unknown):
        return f"not known ({fact.reason})"
    return f"{fact.value / 1e9:.2f} GB to download" if fact.value >= 1e8 else f"{fact.value / 1e6:.1f} MB to download"


def _file(change: FileChange, files: Files) -> str:
    if files is Files.FOLDED:
        return sentence(f"file: {folded(change)}", _INDENT)
    return "".join(f"   {line}".rstrip() + "\n" if line.strip() else "\n" for line in unified_diff(change).splitlines())


def _lines(label: str, lines: tuple[str, ...]) -> str:
    return labelled(f"   {label}", lines, label_width=_LABEL)


def _undo(step: Step) -> str:
    lines = [
        f"{change.path} is {'put back as it was' if change.before or change.unread else 'removed again'}"
        for change in step.files
    ]
    told = _lines("undo", (*lines, *(("by this:",) if step.undo else ())))
    return told + "".join(command_lines(argv, _LABEL) for argv in step.undo)


def _conditions(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Each thing that is looked at once: the lines that one file should have are one thing to a reader."""
    lines: dict[str, int] = {}
    for each in conditions:
        if each.kind is CheckKind.FILE_HAS_LINE:
            lines[each.target] = lines.get(each.target, 0) + 1
    return tuple(
        dict.fromkeys(
            replace(each, expected=_how_many(lines[each.target])) if each.kind is CheckKind.FILE_HAS_LINE else each
            for each in conditions
        )
    )


def _how_many(lines: int) -> str:
    return "that line" if lines == 1 else f"those {lines} lines"


def _condition(number: int, condition: Condition) -> str:
    form = _CHECKS[condition.kind]
    if condition.kind is CheckKind.APT_PACKAGE and condition.expected:
        form += " in version {expected}"
    says = form.format(target=condition.folder or condition.target, expected=condition.expected.replace("\n", ", "))
    out = _lines("" if number else "done", (says,))
    return out + (command_lines(condition.argv, _LABEL) if condition.kind is CheckKind.COMMAND else "")
