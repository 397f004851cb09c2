"""What --fix is about to do, and what came of it."""

from __future__ import annotations

from firstlight.apply.account import State
from firstlight.apply.outcome import Ending
from firstlight.libraries.closing import ComesFrom, Need
from firstlight.libraries.fixing import Fix
from firstlight.libraries.steps import bytes_of
from firstlight.numerals import counted
from firstlight.plan.request import NO_RATE
from firstlight.report.apply_text import taken_text
from firstlight.report.layout import labelled
from firstlight.report.libs_json import Fixed
from firstlight.report.libs_text import amount, shown
from firstlight.report.plan_text import steps_text
from firstlight.ways.step import Step

_LABEL = 11


def fix_text(fix: Fix, steps: tuple[Step, ...], *, title: str) -> str:
    """The steps, with how much is fetched in all, before it is asked."""
    out = labelled("PLAN", (f"install the missing libraries of {title}: {_size(fix)}",), label_width=_LABEL)
    later = [need for need in fix.needs if need.missing.name not in {n.missing.name for n in fix.closing.needs}]
    if later:
        names = ", ".join(f"{need.missing.name} (for {_asker(need)})" for need in later)
        out += labelled("  also", (f"what the new libraries need in turn: {names}",), label_width=_LABEL)
    return shown(out + steps_text(steps) + left_text(fix.left))


def _asker(need: Need) -> str:
    return need.missing.requested_by[0].rpartition("/")[2]


def _size(fix: Fix) -> str:
    parts = [f"{counted(len(fix.picks), 'package')}, {amount(bytes_of(fix.picks))}"] if fix.picks else []
    parts += [counted(len(fix.links), "link")] if fix.links else []
    parts += [f"{len(fix.preloads)} opened at Python's start"] if fix.preloads else []
    return ", ".join((*parts, "no root"))


def left_text(left: tuple[Need, ...]) -> str:
    """What no package can bring, with who has to act."""
    lines = []
    for need in left:
        if need.way is ComesFrom.DRIVER:
            lines.append(f"{need.missing.name}: the NVIDIA driver's, never a package's; `firstlight doctor` says more")
        elif need.way is ComesFrom.SYSTEM:
            lines.append(f"{need.missing.name}: of the system, in {need.package}")
        else:
            lines.append(f"{need.missing.name}: {need.reason}")
    return "\n" + labelled("not here", lines, label_width=_LABEL) if lines else ""


def fixed_text(fixed: Fixed) -> str:
    """The end of a call: each step with what it took, the proof, and how to take it back."""
    out = "".join(taken_text(taken, NO_RATE) for taken in fixed.taken)
    for proof in fixed.proofs:
        files = tuple(f"{name} from {path}" for name, path in proof.loaded)
        label, says = ("proved", "works in a child process") if proof.ok else ("FAILED", f"ended with: {proof.error}")
        out += labelled(label, (f"{proof.what} {says}", *files), label_width=_LABEL)
    if fixed.left:
        out += labelled("left", (f"missing still: {', '.join(fixed.left)}",), label_width=_LABEL)
    return shown(out + labelled("", (_sentence(fixed),), label_width=0))


def _sentence(fixed: Fixed) -> str:
    did = [taken for taken in fixed.taken if taken.state is State.DONE]
    if fixed.ending is Ending.DONE:
        runs = " and ".join(f"run {number}" for number in fixed.runs)
        seconds = sum(taken.seconds for taken in did)
        back = "`firstlight undo` takes it back"
        if len(fixed.runs) > 1:
            back = f"`firstlight undo`, {len(fixed.runs)} times, takes it back"
        return f"{runs}: {counted(len(did), 'step')} done in {seconds:.1f} s; {back}"
    if fixed.ending is Ending.NOTHING:
        return "nothing to do: the loader finds everything"
    if fixed.ending is Ending.SHOWN:
        return "--dry-run: nothing was changed"
    if fixed.ending is Ending.BY_A_PERSON:
        return "firstlight can do none of this"
    return "nothing was changed"
