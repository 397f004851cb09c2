"""Options as text: one list with the commands of the first for doctor, everything for `plan --options`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.known import Fact, Known, Origin, Unknown
from firstlight.numerals import counted
from firstlight.plan.option import Cost, Option
from firstlight.plan.ranking import RULE_IN_SHORT
from firstlight.plan.request import Ranked
from firstlight.report.layout import Painted, Part, Style, labelled, width, wrapped
from firstlight.report.steps_lines import command_lines, sentence, steps_in_short
from firstlight.visible import one_line
from firstlight.ways.kinds import AskPerson
from firstlight.ways.platform import Platform
from firstlight.ways.step import Step
from firstlight.ways.words import title_of

TOP = 5
_ALL = ("firstlight", "plan", "--options")
_COLUMNS = (("proof", 11), ("min", 5), ("GB", 6), ("root", 4))
_FIGURES = sum(2 + columns for _, columns in _COLUMNS)
_OPEN = (
    ("driver.", "whether the driver answers"),
    ("libcuda.", "whether cuInit works"),
    ("gpus.count", "whether the driver answers"),
    ("gpus.", "what the driver then shows of the GPUs"),
    ("health.gpus.", "whether the GPUs are ready"),
    ("health.", "what the driver logs"),
    ("fleet.vgpu.", "whether a licence is given"),
    ("fleet.fabric.", "whether the other nodes answer"),
    ("torch_libraries", "which libraries torch finds"),
    ("torch.", "what the new torch is built for"),
    ("everything there", "what that machine or image has"),
)
_INDENT = 5  # under the title of an option: '  1. '


def options_list(ranked: Ranked, first: tuple[Step, ...], *, most: int) -> Iterator[Part]:
    """The options with their numbers, best first, and under the first the commands that `plan --option 1` has."""
    if ranked.impossible:
        yield "\n" + labelled("impossible", (ranked.impossible,), label_width=12)
    if ranked.refused:
        yield "\n" + labelled("refused", [each.sentence for each in ranked.refused], label_width=9)
    if not ranked.options:
        yield "\nno option is known to work here; this says why not:\n" + command_lines(_ALL, 2)
        return
    head = "".join(f"  {name:<{columns}}" for name, columns in _COLUMNS)
    looking = all(map(_only_looks, ranked.options))
    title = "no way out is known; to find out more" if looking else "options, best first"
    yield "\n"
    yield Painted(f"{title:<{_room()}}{head}".rstrip(), Style.HEAD)
    yield "\n"
    for number, option in enumerate(ranked.options[:most], 1):
        yield _row(number, option)
        if number == 1:
            yield steps_in_short(first, indent=_INDENT)
    yield _rate_in_words(ranked.options[:most])
    more = len(ranked.options) - most
    if more > 0:
        yield f"  and {more} more, which `plan --options` shows\n"


def _rate_in_words(options: tuple[Option, ...]) -> str:
    """What the minutes rest on, once for all: at 50 MB/s, which was assumed; '' where nothing is fetched."""
    known = (each.cost for each in options if isinstance(each.cost.minutes, Known))
    rate = next((cost.download_rate for cost in known if isinstance(cost.download_rate, Known)), None)
    if not isinstance(rate, Known):
        return ""
    basis = "assumed; --download-rate changes it" if rate.origin is Origin.ASSUMED else rate.seen_in
    return sentence(f"min: minutes at a download rate of {rate.value / 1e6:.0f} MB/s ({basis})", 2)


def _room() -> int:
    return width() - _FIGURES


def _row(number: int, option: Option) -> str:
    """The title beside its figures, wrapped in its own column where the screen is narrow, and what is open of it."""
    first, *rest = wrapped(one_line(option.title), _room() - _INDENT)
    cells = (option.proof.value, short_minutes(option.cost.minutes), short_gigabytes(option.cost.download_bytes))
    figures = (*cells, "yes" if option.needs_root else "no")
    shown = "".join(f"  {cell:<{columns}}" for cell, (_, columns) in zip(figures, _COLUMNS, strict=True))
    out = f"{f'{number:>3}. {first}':<{_room()}}{shown}".rstrip() + "\n"
    out += "".join(f"{'':<{_INDENT}}{line}\n" for line in rest)
    said = (
        reservations(option) if number == 1 else reservations(replace(option, unsure=(), only_for=""))
    )  # the others are short
    return out + "".join(sentence(line, _INDENT) for line in said)


def reservations(option: Option) -> Iterator[str]:
    """What an option does not do, or does not promise."""
    if option.stays:
        yield f"left afterwards: {', '.join(option.stays)}{' (it only looks)' if _only_looks(option) else ''}"
    if option.brings:
        yield f"found then, and not before: {', '.join(option.brings)}"
    if option.only_for:
        yield f"what it sets is for {option.only_for}"
    if option.unsure:
        open_ = dict.fromkeys(_in_words(path) for path in option.unsure)
        yield f"not known until it is done: {', '.join(open_)}"


def _only_looks(option: Option) -> bool:
    return bool(option.ways) and all(isinstance(way, AskPerson) and not way.cures for way in option.ways)


def _in_words(path: str) -> str:
    """What is open about a fact, e.g. whether cuInit works for libcuda.init_code."""
    return next((words for start, words in _OPEN if path.startswith(start)), path)


def short_minutes(amount: Fact[float]) -> str:
    """'4', '~4' where a speed was assumed, '<1' for a part of a minute, '?' where it is not known."""
    if isinstance(amount, Unknown):
        return "?"
    about = "" if amount.origin is Origin.SEEN else "~"
    return "<1" if 0 < amount.value < 1 else f"{about if amount.value else ''}{amount.value:.0f}"


def short_gigabytes(amount: Fact[int]) -> str:
    """'0.07', '0', or '?' where it is not known."""
    if isinstance(amount, Unknown):
        return "?"
    about = "" if amount.origin is Origin.SEEN else "~"
    return "0" if amount.value == 0 else f"{about}{max(amount.value / 1e9, 0.01):.2f}"


def minutes(amount: Fact[float]) -> str:
    """'0 min', '<1 min', '~4 min', or 'unknown minutes'."""
    return "unknown minutes" if isinstance(amount, Unknown) else f"{short_minutes(amount)} min"


def gigabytes(amount: Fact[int]) -> str:
    """'0.07 GB' (10^9 bytes), or 'unknown GB'."""
    return "unknown GB" if isinstance(amount, Unknown) else f"{short_gigabytes(amount)} GB"


def options_text(ranked: Ranked, platform: Platform) -> Iterator[Part]:
    """Every option in full, those that were rejected with the reason, and the rule of the order in a line."""
    if ranked.impossible:
        yield labelled("impossible", (ranked.impossible,), label_width=12) + "\n"
    for clash in ranked.refused:
        yield labelled("refused", (f"{clash.sentence} ({clash.said_by})",), label_width=9)
    yield "\n" if ranked.refused else ""
    if not ranked.options:
        yield "no option is known to work\n\n"
    for number, option in enumerate(ranked.options, 1):
        yield from _full(number, option, platform)
        yield "\n"
    if ranked.rejected:
        yield Painted("cannot work here", Style.HEAD)
        yield "\n"
        for option in ranked.rejected:
            yield labelled("  -", (f"{option.title}: {option.why_not}",), label_width=4)
        yield "\n"
    if len(ranked.options) > 1:
        yield labelled("order", (RULE_IN_SHORT,), label_width=9)
    if ranked.untried:
        yield f"not tried on paper, because the limit was reached: {counted(ranked.untried, 'more chain')} of ways\n"


def _full(number: int, option: Option, platform: Platform) -> Iterator[Part]:
    yield Painted(f"{number}. {one_line(option.title)}", Style.HEAD)
    yield f"\n    [{option.id}]\n"
    titles = list(dict.fromkeys(title_of(way, platform) for way in option.ways))
    yield _lines("does", titles if titles != [option.title] else [])
    yield _lines("proof", [f"{option.proof.value}: {option.proof_by}"])
    yield _lines("", reservations(option))
    yield _lines("for", [", ".join(option.satisfies)])
    yield _lines("not", option.leaves_out)
    yield _lines("keeps", [option.keeps.value])
    yield _lines("takes", [takes(option.cost)])
    root = "needs root" if option.needs_root else "no root"
    yield _lines("risk", [f"{root}; risk {option.risk.value}; can be taken back: {option.reversible.value}"])
    yield _lines("answers", [", ".join(option.because)])


def takes(cost: Cost) -> str:
    """'~4 min, 0.90 GB to download, 2.10 GB on disk, money 0.18', then what that rests on or why it is not known."""
    parts = [minutes(cost.minutes), f"{gigabytes(cost.download_bytes)} to download"]
    if isinstance(cost.disk_bytes, Known):
        parts.append(f"{gigabytes(cost.disk_bytes)} on disk")
    if isinstance(cost.money, Known):
        parts.append(f"money {cost.money.value:.2f}")
    bases = filter(None, dict.fromkeys((_basis(cost.minutes), _basis(cost.download_bytes))))
    return ", ".join(parts) + "".join(f"; {basis}" for basis in bases)


def _basis(amount: Fact[float] | Fact[int]) -> str:
    """What a figure rests on, where it is not a plain number of a table."""
    if isinstance(amount, Unknown):
        return amount.reason
    return "" if amount.origin is Origin.SEEN else amount.seen_in


def _lines(label: str, texts: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    there = [text for text in texts if text]
    return labelled(f"    {label}", there, label_width=12) if there else ""
