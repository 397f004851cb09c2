"""Copies over links as a heat map: from the row to the column, GB/s and the percent of what the link carries."""

from __future__ import annotations

from firstlight.bench.limits import limit_of_interest
from firstlight.bench.results import CaseResult, Figure, RunResult, Verdict
from firstlight.frozen import dataclass
from firstlight.numerals import percent_text
from firstlight.report.bench_cells import gbps_text, whole
from firstlight.report.html.formulas import rate_formula, share_formula
from firstlight.report.html.markup import Markup, el, number, section

STEPS = 5


@dataclass(frozen=True, slots=True)
class Copy:
    """A timed copy from one place to another, e.g. 'host, pinned' to 'GPU 0'."""

    source: str
    target: str
    case: CaseResult
    figure: Figure


def transfers_section(run: RunResult) -> Markup:
    """The heat map; nothing where no copy was timed."""
    copies = {(copy.source, copy.target): copy for copy in sorted(_copies(run), key=lambda copy: copy.case.bytes)}
    if not copies:
        return Markup("")
    places = sorted({place for pair in copies for place in pair}, key=_order)
    head = el("tr", el("th", "from \\ to", scope="col"), *(el("th", place, scope="col") for place in places))
    rows = [
        el("tr", el("th", source, scope="row"), *(_cell(copies.get((source, target))) for target in places))
        for source in places
        if any(source == pair[0] for pair in copies)
    ]
    grid = el("table", el("caption", "GB/s each way, and percent of what the link carries"), el("thead", head),
              el("tbody", *rows), class_="heat", data_rove="")  # fmt: skip
    steps = [el("li", el("span", class_=f"key h{step}", aria_hidden="true"), _range(step)) for step in range(STEPS)]
    legend = el("ul", *steps, class_="legend", aria_label="Shades, percent of the link")
    skipped = [case for case in run.cases if case.family == "transfer" and case.verdict is Verdict.SKIPPED]
    notes = [el("p", f"{case.id}: {case.reason}.", class_="notes") for case in skipped[:3]]
    frame = el("div", grid, class_="frame", tabindex="0", role="group", aria_label="Transfer heat map")
    return section("transfers", "Transfers", frame, legend, *notes)


def _copies(run: RunResult) -> list[Copy]:
    found = []
    for case in run.cases:
        shown, params = case.shown, dict(case.params)
        if case.family != "transfer" or case.verdict is not Verdict.OK or shown is None or shown.rate.gbps is None:
            continue
        if "host_memory" in params:
            host, gpu = f"host, {params['host_memory']}", f"GPU {max(case.gpu, 0)}"
            pair = (host, gpu) if params.get("direction") == "h2d" else (gpu, host)
        elif params.get("direction") == "one way":
            pair = (f"GPU {params.get('source', '?')}", f"GPU {params.get('target', '?')}")
        else:  # both ways at once has no cell of its own
            continue
        found.append(Copy(*pair, case, shown))
    return found


def _order(place: str) -> tuple[bool, int, str]:
    return place.startswith("GPU "), whole(place.removeprefix("GPU ")) or 0, place


def _cell(copy: Copy | None) -> Markup:
    if copy is None:
        return el("td", Markup('<span class="sr">not measured</span>'), class_="none")
    share = limit_of_interest(copy.figure.limit)[1]
    shade = "" if share is None else f"h{max(0, min(STEPS - 1, int(share // (100 / STEPS))))}"
    rate = number(gbps_text(copy.figure.rate.gbps or 0.0), rate_formula(copy.case, copy.figure))
    of_link = number(percent_text(share), share_formula(copy.figure))
    return el("td", rate, Markup(" "), el("small", of_link), class_=f"heatcell {shade}".strip())


def _range(step: int) -> str:
    width = 100 // STEPS
    return f"{step * width} to {(step + 1) * width} %"
