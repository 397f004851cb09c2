"""What `check` found, on a screen: worst first, the lock beside the machine, what it leads to, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.numerals import counted
from firstlight.report.check import Check, DriftShown, Shown, ToDo
from firstlight.report.layout import Painted, Part, Style, headed, labelled
from firstlight.report.steps_lines import command_lines, sentence
from firstlight.visible import one_line

_ORDER = ("blocks", "abi", "performance", "harmless")
_STYLES = {"blocks": Style.BAD, "abi": Style.BAD, "performance": Style.WARN, "harmless": Style.GOOD}
_LABEL = 10
_MOST_FOLLOWING = 4
_MOST_HARMLESS = 6
_WHAT = {
    "gpu": "GPU", "driver": "driver", "compat": "compat library", "toolkit": "toolkit", "compiler": "compiler",
    "python": "Python", "packages": "package", "imports": "import of", "startup": "start-up file",
    "libraries": "library", "settings": "setting", "checkouts": "checkout", "files": "file",
}  # fmt: skip
_MEANS = {"abi": "ABI"}


def check_text(check: Check, *, of: tuple[str, ...] = ()) -> list[Part]:
    """The screen as parts, of which a terminal paints some words; `of` are the options that named another machine."""
    parts: list[Part] = []
    if not check.class_name:
        return parts
    loud = [each for each in check.drifts if check.strict or each.consequence != "harmless"]
    quiet = [each for each in check.drifts if each not in loud]
    parts += _head(check, loud, quiet)
    for each in sorted(loud, key=lambda drift: _ORDER.index(drift.consequence)):
        parts += ["\n", *_drift(each)]
    parts += _quiet(quiet)
    parts += _rest(check)
    parts += _anew(check, of)
    return parts


def _head(check: Check, loud: list[DriftShown], quiet: list[DriftShown]) -> Iterator[Part]:
    where = f"{one_line(check.lock)}, class {one_line(check.class_name)}"
    proof = "" if check.verified else "  what the lock has was never verified: it was made from facts alone\n"
    if loud:
        yield Painted("DRIFTED", Style.BAD)
        yield f"  {where}: {counted(len(loud), 'drift')}\n{proof}"
        return
    yield Painted("AS LOCKED", Style.GOOD)
    rest = f"{counted(len(quiet), 'harmless drift')}" if quiet else "no drift"
    yield f"  {where}: {rest}\n{proof}"


def _drift(each: DriftShown) -> Iterator[Part]:
    word = _MEANS.get(each.consequence, each.consequence.upper())
    codes = ", ".join(finding.code for finding in each.because)
    yield Painted(word, _STYLES[each.consequence])
    tag = f"[{codes}]" if codes else "[no rule objects]"
    yield headed(f"  {_named(each.drift)}", tag) if len(word) > 40 else _after(word, f"  {_named(each.drift)}", tag)
    rows = [("lock", one_line(each.drift.locked)), ("here", _here(each.drift))]
    rows += [("means", one_line(finding.means)) for finding in each.because[:1]]
    for label, text in rows:
        yield labelled(f"  {label}", (text,), label_width=_LABEL)
    if each.follows:
        names = [_following(other) for other in each.follows[:_MOST_FOLLOWING]]
        more = len(each.follows) - len(names)
        names += [f"and {more} more (--json lists them)"] if more else []
        yield labelled("  with it", tuple(names), label_width=_LABEL)


def _after(word: str, text: str, tag: str) -> str:
    """The rest of a head whose first word is painted, with the codes at the right edge where they fit."""
    return headed(f"{word}{text}", tag)[len(word) :]


def _named(drift: Shown) -> str:
    name = "" if drift.part == "driver" or (drift.part == "python" and drift.name == "version") else f" {drift.name}"
    return one_line(f"{_WHAT[drift.part]}{name}" + (f" ({drift.change})" if drift.change != "changed" else ""))


def _here(drift: Shown) -> str:
    seen = f"  ({one_line(drift.seen_in)})" if drift.seen_in else ""
    return f"{one_line(drift.here)}{seen}"


def _following(drift: Shown) -> str:
    return one_line(f"{_WHAT[drift.part]} {drift.name}: {drift.locked} -> {drift.here}")


def _quiet(quiet: list[DriftShown]) -> Iterator[Part]:
    if not quiet:
        return
    yield "\n"
    yield Painted("harmless", Style.GOOD)
    yield "  no rule of `firstlight doctor` objects; --locked counts these too\n"
    for each in quiet[:_MOST_HARMLESS]:
        told = f"{_named(each.drift)}: {one_line(each.drift.locked)} -> {one_line(each.drift.here)}"
        yield sentence(told, 2)
    if len(quiet) > _MOST_HARMLESS:
        yield f"  and {len(quiet) - _MOST_HARMLESS} more (--json lists them)\n"


def _rest(check: Check) -> Iterator[Part]:
    for deep in check.deep:
        yield "\n" + labelled("libraries", (f"verify: {deep.outcome}: {one_line(deep.says)}",), label_width=_LABEL + 2)
    for each in check.besides[:3]:
        yield "\n" + labelled("besides", (f"{one_line(each.title)} [{each.code}]",), label_width=_LABEL + 2)
    if check.besides:
        yield "  No drift caused that. Look at the machine itself:\n"
        yield "  firstlight doctor\n"
    if check.not_compared:
        yield "\n" + labelled("unseen", check.not_compared, label_width=_LABEL + 2)
    if check.to_do:
        yield "\nto bring back what the lock has\n"
        for each_order in check.to_do:
            yield from _order(each_order)


def _anew(check: Check, of: tuple[str, ...]) -> Iterator[Part]:
    """How to keep it as it is: proved on this machine, or from the facts of another one."""
    if not check.exit_code or any(each.consequence == "blocks" for each in check.drifts):
        return
    do = "lock these facts" if of else "prove it and lock it"
    yield f"or, if it should stay like this, {do}\n"
    yield command_lines(("firstlight", "lock", *of, "--out", check.lock, "--class", check.class_name), 2)


def _order(order: ToDo) -> Iterator[str]:
    yield sentence(one_line(order.title), 2)
    for argv in order.commands:
        yield command_lines(argv, 4)
