"""What `apply` did: each step with what was expected and what it took, what is left for a person, what failed."""

from __future__ import annotations

import shlex

from firstlight.apply.account import State, Taken
from firstlight.apply.outcome import Applied, Ending, Failure
from firstlight.apply.parts import Parts
from firstlight.apply.runs import Run
from firstlight.diagnosis.explain import Explained
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.numerals import counted
from firstlight.report.explain_text import printable
from firstlight.report.layout import labelled
from firstlight.report.steps_lines import commands_of
from firstlight.visible import one_line
from firstlight.ways.step import Step

_LABEL = 11
_TAIL_SHOWN = 12
_DEPTH = 2  # explanations shown with a failure; `firstlight explain LOG` shows all


def parts_text(parts: Parts) -> str:
    """Who does what of the plan above: '2 steps are done by firstlight, 1 by you'."""
    out = f"{counted(len(parts.ours), 'step')} to be done by firstlight"
    for steps, words in (
        (parts.persons, "by you"),
        (parts.waiting, "after you have done yours"),
        (parts.left_out, "left out as optional (--with ID, or --with all)"),
    ):
        if steps:
            out += f"; {words}: {', '.join(step.id for step in steps)}"
    return labelled("", (out,), label_width=0)


def interrupted_text(run: Run) -> str:
    """A run that was stopped half-way: what is done of it and what is left."""
    if run.undoing:
        left = [step for step in run.steps if step.id in run.begun and step.id not in run.taken_back]
        out = f"UNFINISHED  the undo of run {run.number} ({one_line(run.at)}) was interrupted: {one_line(run.title)}\n"
        return out + labelled("  to take back", tuple(step.title for step in reversed(left)), label_width=16)
    left = [step for step in run.steps if step.id not in run.finished]
    out = f"UNFINISHED  run {run.number} ({one_line(run.at)}) was interrupted: {one_line(run.title)}\n"
    done = len(run.steps) - len(left)
    out += labelled("  done", (f"{done} of {counted(len(run.steps), 'step')}",), label_width=16)
    out += labelled("  left", tuple(step.title for step in left), label_width=16)
    return out + "".join(commands_of(step, 16) for step in left)


def taken_text(taken: Taken, rate: Fact[float]) -> str:
    """One step: what it is, then seconds, room and money, expected against actual."""
    word = {State.DONE: "done", State.HELD: "held", State.FAILED: "FAILED", State.NOT_REACHED: "not done"}[taken.state]
    if taken.state is State.HELD:
        return labelled(word, (taken.step.title, f"nothing was run: {taken.saw}"), label_width=_LABEL)
    if taken.state is State.NOT_REACHED:
        return labelled(word, (taken.step.title,), label_width=_LABEL)
    return labelled(word, (taken.step.title,), label_width=_LABEL) + f"{'':<{_LABEL}}{_figures(taken, rate)}\n"


def _figures(taken: Taken, rate: Fact[float]) -> str:
    """'3.2 s (expected unknown), 0.9 GB of disk (expected 0.7 GB to download), 0.00 of money (expected unknown)'."""
    step = taken.step
    parts = [
        f"{taken.seconds:.1f} s (expected {_seconds(step.seconds)})",
        f"{_size(taken.disk_bytes)} of disk (expected {_size(step.bytes)} to download)",
    ]
    if isinstance(rate, Known):
        expected = Unknown("") if isinstance(step.seconds, Unknown) else Known(step.seconds.value, "")
        parts.append(f"cost {money(taken.seconds, rate)} (expected {_expected_money(expected, rate)})")
    return ", ".join(parts)


def money(seconds: float, rate: Known[float]) -> str:
    """What the machine costs for that long, e.g. 0.03."""
    return f"{seconds / 3600 * rate.value:.2f}"


def _expected_money(seconds: Fact[float], rate: Known[float]) -> str:
    return "unknown" if isinstance(seconds, Unknown) else money(seconds.value, rate)


def _seconds(fact: Fact[float]) -> str:
    return "unknown" if isinstance(fact, Unknown) else f"{fact.value:.1f} s"


def _size(fact: Fact[int]) -> str:
    if isinstance(fact, Unknown):
        return "unknown"
    size = abs(fact.value)
    sign = "-" if fact.value < 0 else ""
    return f"{sign}{size / 1e9:.2f} GB" if size >= 1e8 else f"{sign}{size / 1e6:.1f} MB"


def outcome_text(outcome: Applied) -> str:
    """The end of a call: one sentence, what it took in all, and what is left for a person."""
    out = "".join(taken_text(taken, outcome.rate) for taken in outcome.taken)
    out += "\n" if out else ""
    out += labelled("", (_sentence(outcome),), label_width=0)
    return out + persons_text(outcome.parts)


def _sentence(outcome: Applied) -> str:
    did = [taken for taken in outcome.taken if taken.state is State.DONE]
    seconds = sum(taken.seconds for taken in did)
    if outcome.ending is Ending.DONE:
        spent = f", cost {money(seconds, outcome.rate)}" if isinstance(outcome.rate, Known) else ""
        took = f"{counted(len(did), 'step')} done in {seconds:.1f} s{spent}"
        return f"run {outcome.run}: {took}; `firstlight undo` takes it back"
    if outcome.ending is Ending.NOTHING:
        if not outcome.run and not outcome.parts.ours:
            return "nothing to do"
        by = f"run {outcome.run} did this" if outcome.run else "every step is done already"
        shell = "; this shell still has the old environment" if outcome.run and outcome.parts.persons else ""
        return f"nothing to do: {by}{shell}"
    if outcome.ending is Ending.BY_A_PERSON and outcome.parts.waiting:
        return "nothing was changed: what firstlight can do waits for what you have to do first"
    if outcome.ending is Ending.BY_A_PERSON:
        return "firstlight can do none of this: it is left to you"
    if outcome.ending is Ending.SHOWN:
        not_here = "" if outcome.journal else "; which of the steps are done there already is not known here"
        return f"--dry-run: nothing was changed{not_here}"
    return "nothing was changed"


def persons_text(parts: Parts) -> str:
    """What a person has to do, each with its commands, and what waits for it."""
    if not parts.persons and not parts.waiting:
        return ""
    out = "\nleft for you\n" + "".join(_person(step) for step in parts.persons)
    if parts.waiting:
        titles = tuple(step.title for step in parts.waiting)
        out += "then run `firstlight apply` again, for what waits for it\n" + labelled("  -", titles, label_width=4)
    return out


def _person(step: Step) -> str:
    out = labelled("  -", (step.title,), label_width=4)
    out += commands_of(step, 6)
    return out + (labelled("", (step.note,), label_width=4) if step.note else "")


def failure_text(failure: Failure, explained: Explained, *, resume: str, back: str) -> str:
    """Where it stopped: the command, its last lines, what is known of them, and the two ways on."""
    command = shlex.join(failure.argv)
    out = labelled("FAILED", (printable(failure.message.removesuffix(command).rstrip(": ")),), label_width=_LABEL)
    if command:
        out += f"{'  command':<{_LABEL}}{printable(command)}\n"
    for number, line in enumerate(failure.tail[-_TAIL_SHOWN:]):
        out += f"{'' if number else '  said':<{_LABEL}}{printable(line)[:400]}".rstrip() + "\n"
    for explanation in explained.explanations[:_DEPTH]:
        known = explanation.signature
        out += labelled("  explain", (f"{known.cause} [{known.code}]",), label_width=_LABEL)
        for way in known.ways_out[:2]:
            out += labelled("", (f"way out: {way.say}",), label_width=_LABEL)
            out += "".join(f"{'':<{_LABEL}}  {line}\n" for line in way.run)
    if failure.tail and not explained.explanations:
        out += labelled("  explain", ("firstlight knows nothing in these lines",), label_width=_LABEL)
    if failure.log:
        out += f"{'  log':<{_LABEL}}{failure.log}\n"
    out += labelled("  go on", (resume,), label_width=_LABEL)
    return out + labelled("  back", (back,), label_width=_LABEL)
