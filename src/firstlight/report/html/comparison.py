"""Two runs side by side: what changed with its interval, family by family and figure by figure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from firstlight.bench.compare import CaseChange, Comparison, FamilyChange
from firstlight.bench.results import RunResult
from firstlight.bench.statistics import Change
from firstlight.numerals import DASH, counted
from firstlight.report.bench_cells import time_text
from firstlight.report.html.markup import Markup, el, figure, mark, number, section
from firstlight.report.html.page import table
from firstlight.report.html.scales import Axis, drawing, fitted, label, line, text_width

WIDTH, ROW, TOP = 880, 30, 26
LEAST_SPAN = 0.05
MOST_SPAN = 0.25
INLINE_WIDTH = 150
COLUMNS = (
    ("Figure", "c-case"), ("Before", "c-time"), ("After", "c-time"), ("Change", "c-change"),
    ("95 % interval", "c-interval"), ("Verdict", "c-verdict"), ("Why", "c-why"),
)  # fmt: skip
_TONES = {Change.SLOWER: "bad", Change.FASTER: "good", Change.SAME: "", Change.UNCLEAR: "warn"}


def comparison_section(comparison: Comparison, base: RunResult, new: RunResult, *, place: int) -> Markup:
    """The comparison of a run with an earlier one; `place` tells several apart."""
    title = f"Compared with the run of {base.run.started}"
    anchor = "comparison" if place == 0 else f"comparison-{place + 1}"
    labels = [el("li", f"{each.what}: {each.base} before, {each.new} after") for each in comparison.labels]
    differs = el("ul", *labels) if labels else Markup("")
    if comparison.refused:
        reasons = el("ul", *(el("li", reason) for reason in comparison.refused))
        return section(anchor, title, el("p", "The two runs cannot be compared:"), reasons, differs)
    names = f"From {base.run.id} to {new.run.id}. "
    parts = [el("p", names, el("strong", comparison_sentence(comparison)), " ", _margin(comparison)), differs]
    parts.append(_families(comparison.families))
    changed = [case for case in comparison.cases if case.change in (Change.SLOWER, Change.FASTER)]
    unclear = [case for case in comparison.cases if case.change is Change.UNCLEAR]
    same = [case for case in comparison.cases if case.change is Change.SAME]
    parts += [_figures(changed, "changed"), _folded(unclear, "unclear"), _folded(same, "the same"), _lost(comparison)]
    return section(anchor, title, *parts)


def comparison_sentence(comparison: Comparison) -> str:
    """'2 slower, 1 faster, 82 the same, 23 unclear of 108 figures.'"""
    if comparison.refused:
        return "Not comparable."
    words = {Change.SLOWER: "slower", Change.FASTER: "faster", Change.SAME: "the same", Change.UNCLEAR: "unclear"}
    told = ", ".join(f"{comparison.count(change)} {word}" for change, word in words.items())
    return f"{told} of {counted(len(comparison.cases), 'figure')}."


def _margin(comparison: Comparison) -> str:
    return (
        f"A change counts from {100 * comparison.margin:g} % on, when zero lies outside the 95 % interval and it "
        "holds over the whole suite. Burst and sustained figures are never mixed."
    )


def _families(families: Sequence[FamilyChange]) -> Markup:
    if not families:
        return Markup("")
    ends = [end for each in families for end in (each.ratio, *(each.ci95 or ()))]
    span = min(1.0, max(LEAST_SPAN, *(abs(math.log(end)) for end in ends)) * 1.1)
    names = [f"{fitted(each.family, WIDTH / 4)}, {each.regime.value}" for each in families]
    values = [_with_interval(each) for each in families]
    left = 20 + max(map(text_width, names))
    right = WIDTH - 20 - max(map(text_width, values))
    x = Axis(-span, span, left, right)
    bottom = TOP + ROW * len(families)
    parts = [
        line(x.at(0), TOP - 6, x.at(0), bottom, class_="zero"),
        label(x.at(0), bottom + 18, "no change", class_="tick", text_anchor="middle"),
        label(left, bottom + 18, f"{100 * (math.exp(-span) - 1):+.0f} % (faster)", class_="tick", text_anchor="start"),
        label(right, bottom + 18, f"{100 * (math.exp(span) - 1):+.0f} % (slower)", class_="tick", text_anchor="end"),
    ]
    for place, (each, name, value) in enumerate(zip(families, names, values, strict=True)):
        y = TOP + ROW * (place + 0.5)
        low, high = each.ci95 or (each.ratio, each.ratio)
        says = (
            f"{each.family}, {each.regime.value}: new time / base time = {each.ratio:.3f} as the geometric mean over "
            f"{counted(each.figures, 'figure')}; 95 % interval over passes {low:.3f} to {high:.3f}"
        )
        parts += [
            label(left - 12, y + 4, name, class_="name", text_anchor="end"),
            mark(says, *_interval(x, y, each.ratio, (low, high), "p1")),
            label(right + 12, y + 4, value, class_="value"),
        ]
    caption = "Change of time by family: the mark is the geometric mean, the line its 95 % interval over passes."
    return figure(drawing(WIDTH, bottom + 34, *parts, name="Change by family"), caption)


def _with_interval(change: FamilyChange) -> str:
    low, high = change.ci95 or (change.ratio, change.ratio)
    return f"{_percent(change.ratio)} ({_percent(low)} to {_percent(high)})"


def _interval(x: Axis, y: float, ratio: float, ci95: tuple[float, float], tone: str) -> tuple[Markup, Markup]:
    low, high = ci95
    return (
        line(x.at(math.log(low)), y, x.at(math.log(high)), y, class_=f"whisker {tone}"),
        el("circle", cx=x.at(math.log(ratio)), cy=y, r=4.0, class_=f"filled {tone}"),
    )


def _figures(cases: Sequence[CaseChange], what: str) -> Markup:
    if not cases:
        return el("p", f"No figure is {what}.")
    ordered = sorted(cases, key=lambda case: -abs(math.log(case.ratio)))
    span = _span(ordered)
    return table(
        [name for name, _ in COLUMNS],
        [_row(case, span) for case in ordered],
        caption=f"{counted(len(cases), 'figure')} {what}",
        class_="cases",
        widths=[width for _, width in COLUMNS],
    )


def _folded(cases: Sequence[CaseChange], what: str) -> Markup:
    if not cases:
        return Markup("")
    return el("details", el("summary", f"{counted(len(cases), 'figure')} {what}"), _figures(cases, what))


def _span(cases: Sequence[CaseChange]) -> float:
    """Half the width of the drawings of one table, as a logarithm: all of it, but no more than 25 %."""
    ends = [abs(math.log(end)) for case in cases if case.ci95 for end in (case.ratio, *case.ci95)]
    return min(MOST_SPAN, max((LEAST_SPAN, *ends)) * 1.1)


def _row(case: CaseChange, span: float) -> tuple[str, ...]:
    tone = _TONES[case.change]
    formula = (
        f"new / base - 1 = {time_text(case.new_s)} / {time_text(case.base_s)} - 1, over the medians of passes (Welch "
        "on logarithms)"
    )
    shaky = [
        f"{side}: {reason}" for side, reason in (("before", case.unsteady_base), ("after", case.unsteady_new)) if reason
    ]
    why = "; ".join(shaky) or case.note or (case.cause.value if case.cause is not None else "")
    if not why and case.change is Change.UNCLEAR and case.smallest is not None:
        why = f"could have found {100 * case.smallest:.1f} %"
    return (
        f"{case.id} ({case.regime.value})",
        number(time_text(case.base_s), f"median of {case.passes[0]} passes"),
        number(time_text(case.new_s), f"median of {case.passes[1]} passes"),
        DASH if case.is_unsteady else number(_percent(case.ratio), formula),
        _inline(case, span),
        el("span", case.change.value, class_=f"word {tone}".strip()),
        why,
    )


def _inline(case: CaseChange, span: float) -> Markup:
    if case.ci95 is None:
        return Markup("")
    low, high = case.ci95
    x = Axis(-span, span, 5, INLINE_WIDTH - 5)
    ends = f"{_percent(math.exp(-span))} to {_percent(math.exp(span))}"
    says = f"{_percent(low)} to {_percent(high)}; drawn from {ends}"
    parts = (line(x.at(0), 0, x.at(0), 18, class_="zero"), *_interval(x, 9, case.ratio, (low, high), "p1"))
    drawn = el(
        "svg",
        *parts,
        width=INLINE_WIDTH,
        height=18,
        viewBox=f"0 0 {INLINE_WIDTH} 18",
        class_="strip",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    return el("span", drawn, class_="n", title=says)


def _lost(comparison: Comparison) -> Markup:
    rows = [(lost.id, lost.base, lost.new, lost.reason) for lost in comparison.lost]
    rows += [(name, "measured", "not there", "") for name in comparison.only_in_base]
    rows += [(name, "not there", "measured", "") for name in comparison.only_in_new]
    if not rows:
        return Markup("")
    body = table(("Case", "Before", "After", "Why"), rows, caption=f"{counted(len(rows), 'case')} not compared")
    return el("details", el("summary", f"{counted(len(rows), 'case')} not compared"), body)


def _percent(ratio: float) -> str:
    """'+3.2 %'; from ten times on percent are hard to read: '165 times'."""
    return f"{ratio:.3g} times" if ratio >= 10 else f"{100 * (ratio - 1):+.1f} %".replace("-0.0 ", "+0.0 ")
