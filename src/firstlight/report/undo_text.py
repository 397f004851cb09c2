"""What `undo` would take back and what it took back, newest step first."""

from __future__ import annotations

from firstlight.apply.outcome import Ending, Undone
from firstlight.apply.runs import Run
from firstlight.apply.set_records import environments_of
from firstlight.numerals import counted
from firstlight.report.layout import labelled
from firstlight.report.steps_lines import command_lines
from firstlight.ways.step import Step, StepKind


def run_text(run: Run) -> str:
    """One run and what taking it back does: 'run 3, 2026-11-15T02:38:25Z: take /usr/local/cuda/compat out of ...'."""
    out = labelled(f"run {run.number}", (f"{run.title}  [{run.option}]",), label_width=9)
    out += labelled("  when", (f"{run.at}; {state_of(run)}",), label_width=9)
    for step in reversed([each for each in run.steps if each.id in run.begun and each.id not in run.taken_back]):
        out += labelled("  step", (step.title,), label_width=9)
        out += "".join(labelled("", (line,), label_width=13) for line in back_lines(step))
        if step.kind not in (StepKind.APT, StepKind.PIP, StepKind.UV, StepKind.BUILD):
            out += "".join(command_lines(argv, 13) for argv in step.undo)
    return out


def back_lines(step: Step) -> tuple[str, ...]:
    """What taking a step back does, in words."""
    lines = [f"{change.path} is {'put back as it was' if change.before else 'removed again'}" for change in step.files]
    if step.kind is StepKind.APT:
        lines.append("the system's packages: those that this step changed come back to their earlier versions")
    lines += [f"the packages of {python}: back to the earlier versions" for python in environments_of(step)]
    return tuple(lines)


def state_of(run: Run) -> str:
    """One word or two: done, interrupted, taken back."""
    if run.undone:
        return "taken back"
    if run.undoing:
        return "being taken back, interrupted"
    return "done" if run.done else "interrupted"


def list_text(runs: tuple[Run, ...]) -> str:
    """Every run, newest first, one line each."""
    if not runs:
        return "nothing was applied on this machine by this user\n"
    lines = [f"{run.at}  {state_of(run):<12} {run.title}  [{run.option}]" for run in reversed(runs)]
    numbers = [f"run {run.number}" for run in reversed(runs)]
    return "".join(labelled(number, (line,), label_width=9) for number, line in zip(numbers, lines, strict=True))


def undone_text(undone: Undone) -> str:
    """The end of a call: one sentence and how many runs are left."""
    if undone.ending is Ending.NOTHING:
        return "nothing to undo: no run of `firstlight apply` on this machine is in place\n"
    if undone.ending is not Ending.DONE:
        return "nothing was changed\n"
    left = f"{counted(undone.left, 'run')} left to take back" if undone.left else "nothing is left to take back"
    return f"run {undone.run[0].number} is taken back; {left}\n"
