"""Options as text: three lines for doctor, everything for `plan --options`."""

from __future__ import annotations

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.option import Cost, Option
from firstlight.plan.request import Ranked
from firstlight.report.layout import WIDTH, counted, labelled

TOP = 3
_PLAN = "`firstlight plan --options`"
_ROOM = WIDTH - len("  documented   unknown  unknown  root")  # what is left for the title


def top_options(ranked: Ranked) -> str:
    """The best three, one line each: what, how it is known, minutes, gigabytes, root."""
    out = "".join(labelled("refused", (each.sentence,), label_width=9) for each in ranked.refused)
    out = f"\n{out}" if out else ""
    if not ranked.options:
        return f"{out}\nno option is known to work: {_PLAN} says why {counted(len(ranked.rejected), 'other')} do not\n"
    more = len(ranked.options) - TOP
    head = f"options, best first{f' ({more} more: {_PLAN})' if more > 0 else ''}"
    out += f"\n{head:<{_ROOM}}  {'proof':<11}  minutes  GB       root\n"
    for number, option in enumerate(ranked.options[:TOP], 1):
        out += _in_one_line(number, option) + "\n"
    return out


def _in_one_line(number: int, option: Option) -> str:
    """'  1. cuda-compat-13-0 from NVIDIA's repository, wired at each start   documented   unknown  0.07     yes'."""
    title = f"  {number}. {option.title}"
    title = title if len(title) <= _ROOM else f"{title[: _ROOM - 3].rstrip(' ,;')}..."
    cells = (amount_or_unknown(option.cost.minutes, "{:.0f}"), _gigabytes(option.cost.download_bytes))
    root = "yes" if option.needs_root else "no"
    return f"{title:<{_ROOM}}  {option.proof.value:<11}  {cells[0]:<7}  {cells[1]:<7}  {root}"


def amount_or_unknown(amount: Fact[float], shape: str) -> str:
    """'4', '<1' for a part of a minute, or 'unknown'."""
    if isinstance(amount, Unknown):
        return "unknown"
    return "<1" if 0 < amount.value < 1 else shape.format(amount.value)


def _gigabytes(amount: Fact[int]) -> str:
    if isinstance(amount, Unknown):
        return "unknown"
    return "0" if amount.value == 0 else f"{max(amount.value / 1e9, 0.01):.2f}"


def minutes(amount: Fact[float]) -> str:
    """'0 min', '<1 min', '4 min', or 'minutes unknown'."""
    shown = amount_or_unknown(amount, "{:.0f}")
    return "minutes unknown" if shown == "unknown" else f"{shown} min"


def gigabytes(amount: Fact[int]) -> str:
    """'0.07 GB' (10^9 bytes), or 'GB unknown'."""
    shown = _gigabytes(amount)
    return "GB unknown" if shown == "unknown" else f"{shown} GB"


def options_text(ranked: Ranked) -> str:
    """Every option in full, those that were rejected with the reason, and the rule of the order."""
    out = ""
    if ranked.impossible:
        out += labelled("impossible", (ranked.impossible,), label_width=12) + "\n"
    for clash in ranked.refused:
        out += labelled("refused", (f"{clash.sentence} ({clash.said_by})",), label_width=9)
    out += "\n" if ranked.refused else ""
    if not ranked.options:
        out += "no option is known to work\n\n"
    for number, option in enumerate(ranked.options, 1):
        out += f"{_full(number, option)}\n"
    if ranked.rejected:
        out += "rejected\n"
        for option in ranked.rejected:
            out += labelled("  -", (f"{option.title} [{option.id}]: {option.why_not}",), label_width=4)
        out += "\n"
    return out + labelled("order", (ranked.rule,), label_width=9)


def _full(number: int, option: Option) -> str:
    out = labelled(f"{number}.", (f"{option.title}  [{option.id}]",), label_width=4)
    out += _line("proof", f"{option.proof.value}: {option.proof_by}")
    out += _line("for", ", ".join(option.satisfies))
    out += "".join(_line("not", each) for each in option.leaves_out)
    out += _line("takes", _takes(option.cost))
    root = "needs root" if option.needs_root else "no root"
    out += _line("risk", f"{root}; risk {option.risk.value}; can be taken back: {option.reversible.value}")
    out += _line("answers", ", ".join(option.because))
    out += "".join(_line("brings" if first else "", each) for first, each in _firsts(option.brings))
    return out + _line("from", option.index)


def _takes(cost: Cost) -> str:
    parts = [minutes(cost.minutes), f"{gigabytes(cost.download_bytes)} to download"]
    if isinstance(cost.disk_bytes, Known):
        parts.append(f"{gigabytes(cost.disk_bytes)} on disk")
    parts.append("money unknown" if isinstance(cost.money, Unknown) else f"{cost.money.value:.2f} of money")
    reasons = dict.fromkeys(
        each.reason.removeprefix("the size is not known: ")
        for each in (cost.minutes, cost.download_bytes, cost.money)
        if isinstance(each, Unknown) and each.reason != "the minutes are not known"
    )
    return ", ".join(parts) + (f" ({'; '.join(reasons)})" if reasons else "")


def _line(label: str, text: str) -> str:
    return labelled(f"    {label}", (text,), label_width=12) if text else ""


def _firsts(pieces: tuple[str, ...]) -> list[tuple[bool, str]]:
    return [(place == 0, piece) for place, piece in enumerate(pieces)]
