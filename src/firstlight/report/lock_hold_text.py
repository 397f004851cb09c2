"""What `lock --hold` is about to do, what it does not stop, and what came of it."""

from __future__ import annotations

from typing import Any

from firstlight.apply.account import Taken
from firstlight.apply.outcome import Ending
from firstlight.frozen import dataclass
from firstlight.numerals import counted
from firstlight.plan.request import NO_RATE
from firstlight.records import encode
from firstlight.report.apply_text import taken_text
from firstlight.report.layout import labelled
from firstlight.report.plan_text import steps_text
from firstlight.report.steps_lines import command_lines
from firstlight.ways.step import Step

_LABEL = 11


@dataclass(frozen=True, slots=True)
class Held:
    """One call of --hold: the class, the steps, those that only root can do, and what was done."""

    name: str
    ending: Ending
    steps: tuple[Step, ...]
    for_root: tuple[Step, ...]
    ours: tuple[Step, ...]
    taken: tuple[Taken, ...]
    run: int


def hold_text(held: Held, does_not_stop: tuple[str, ...]) -> str:
    """The steps before it is asked, and what gets past them."""
    head = f"hold the stack of class {held.name}: {counted(len(held.steps), 'step')}"
    out = "\n" + labelled("PLAN", (head,), label_width=_LABEL) + steps_text(held.steps)
    out += "\n" + labelled("gets past", does_not_stop, label_width=_LABEL)
    if held.for_root:
        out += "\nleft out, because it takes root; run it as root, or the same command with sudo\n"
        out += "".join(command_lines(argv, 2) for step in held.for_root for argv in step.commands)
    return f"{out}\n"


def held_text(held: Held) -> str:
    """What came of it."""
    out = "".join(taken_text(each, NO_RATE) for each in held.taken)
    return out + labelled("", (_sentence(held),), label_width=0)


def _sentence(held: Held) -> str:
    if held.ending is Ending.DONE:
        return f"run {held.run}: the stack of class {held.name} is held; `firstlight undo` takes it back"
    if held.ending is Ending.SHOWN:
        return "--dry-run: nothing was changed"
    return "nothing was changed" if held.ending is Ending.DECLINED else "nothing to do: it is held already"


@dataclass(frozen=True, slots=True)
class HoldShown:
    """What came of --hold, for a program: done, shown, declined or nothing to do; the run in the journal; the steps."""

    held: str
    run: int
    steps: tuple[str, ...]


def hold_json(held: Held) -> dict[str, Any]:
    """The end of a call, as the part `hold` of the document of the class."""
    shown: dict[str, Any] = encode(HoldShown(held.ending.value, held.run, tuple(step.id for step in held.steps)))
    return shown
