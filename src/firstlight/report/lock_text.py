"""What was locked, on a screen."""

from __future__ import annotations

from firstlight.lock.stack import LockedClass, Part
from firstlight.lock.writing import counts
from firstlight.numerals import counted
from firstlight.report.layout import labelled
from firstlight.visible import one_line

_LABEL = 11
_ALONE = (Part.GPU, Part.DRIVER, Part.PYTHON, Part.COMPILER, Part.TOOLKIT)
_ONE = {
    Part.COMPAT: "compat library", Part.PACKAGES: "package", Part.STARTUP: "start-up file", Part.LIBRARIES: "library",
    Part.SETTINGS: "setting", Part.CHECKOUTS: "checkout", Part.FILES: "lock file of the project",
}  # fmt: skip
_MANY = {Part.COMPAT: "compat libraries", Part.LIBRARIES: "libraries", Part.FILES: "lock files of the project"}


def locked_text(locked: LockedClass, *, file: str, writes: bool) -> str:
    """The class, what it holds, how it was proved and what comes next."""
    where = one_line(file)
    head = f"class {locked.name} in {where}" if writes else f"class {locked.name}: {where} would be written"
    out = labelled("LOCKED" if writes else "TO LOCK", (head,), label_width=_LABEL)
    out += labelled("  stack", _stack(locked), label_width=_LABEL)
    numbers = [_counted(part, number) for part, number in counts(locked) if part in _ONE]
    out += labelled("  holds", (", ".join(numbers),), label_width=_LABEL) if numbers else ""
    proof = "by verify, on this machine" if locked.verified else "no: the facts of another machine, not verified"
    out += labelled("  verified", (proof,), label_width=_LABEL)
    if locked.findings:
        codes = ", ".join(each.code for each in locked.findings)
        out += labelled(
            "  known", (f"{codes} (`firstlight doctor` says more); check does not repeat it",), label_width=_LABEL
        )
    return (
        out
        + "\ncompare this machine with it at any time\n  firstlight check"
        + ("\n" if where == "firstlight.lock" else f" --lock {where}\n")
    )


def _counted(part: Part, number: int) -> str:
    return f"{number} {_MANY[part]}" if number != 1 and part in _MANY else counted(number, _ONE[part])


def _stack(locked: LockedClass) -> tuple[str, ...]:
    """GPU, driver, torch and Python in one line, toolkit and compiler in another."""

    def value(part: Part, name: str) -> str:
        return next((each.value for each in locked.held if each.part is part and each.name == name), "")

    named = (
        (value(Part.GPU, "name"), "{}"), (value(Part.DRIVER, "version"), "driver {}"),
        (value(Part.PACKAGES, "torch"), "torch {}"), (value(Part.PYTHON, "version"), "Python {}"),
        (value(Part.TOOLKIT, "nvcc"), "toolkit {}"), (value(Part.COMPILER, "gcc"), "gcc {}"),
    )  # fmt: skip
    return (", ".join(words.format(one_line(each)) for each, words in named if each) or "nothing was found",)
