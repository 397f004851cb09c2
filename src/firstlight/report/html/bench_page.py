"""The report of a benchmark: verdict, things to look at, charts, every case, the machine; the runs are inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from firstlight.bench.bests import Best
from firstlight.bench.compare import compare_runs
from firstlight.bench.judgement import RunJudgement, judged
from firstlight.bench.limits import limit_of_interest
from firstlight.bench.peaks import peaks_of
from firstlight.bench.results import CaseResult, RunResult, Verdict, to_json
from firstlight.frozen import dataclass
from firstlight.numerals import percent_text, significant
from firstlight.report.bench_cells import environment_rows, gbps_text
from firstlight.report.html.cases import cases_section, not_measured_section
from firstlight.report.html.comparison import comparison_section, comparison_sentence
from firstlight.report.html.families import families_section
from firstlight.report.html.formulas import rate_formula, share_formula
from firstlight.report.html.markup import Markup, code, el, number, section
from firstlight.report.html.page import Page, lead, page_text, sections_of, table
from firstlight.report.html.roofline import roofline_section
from firstlight.report.html.trace import trace_section
from firstlight.report.html.transfers import transfers_section
from firstlight.tables import Tables

MENU = (
    ("look", "To look at"), ("comparison", "Compared"), ("roofline", "Roofline"), ("families", "By family"),
    ("cases", "Every case"), ("trace", "Clock and power"), ("transfers", "Transfers"),
    ("not-measured", "Not measured"), ("machine", "Machine"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The file and what it says first."""

    text: str
    judgement: RunJudgement
    compared: tuple[str, ...]  # a sentence for each earlier run


def bench_report(runs: Sequence[RunResult], tables: Tables) -> BenchReport:
    """The report of the last run, compared with each earlier one; all runs are embedded."""
    run, earlier = runs[-1], runs[:-1]
    comparisons = [(base, compare_runs(base, run)) for base in earlier]
    judgement = judged(run, tables, tuple(each for _, each in comparisons))
    sections = sections_of(
        _things(judgement),
        *(comparison_section(each, base, run, place=place) for place, (base, each) in enumerate(comparisons)),
        roofline_section(run, tables),
        families_section(run),
        cases_section(run),
        trace_section(run),
        transfers_section(run),
        not_measured_section(run),
        _machine(run),
    )
    there = "".join(sections)
    page = Page(
        title=judgement.sentence,
        header=_header(run, judgement, tables),
        sections=sections,
        menu=tuple((anchor, name) for anchor, name in MENU if f'<section id="{anchor}"' in there),
        documents=(*(to_json(without_samples(each)) for each in earlier), to_json(run)),
        made=run.run.started,
        held=_held(len(runs)),
    )
    return BenchReport(page_text(page), judgement, tuple(comparison_sentence(each) for _, each in comparisons))


def _held(count: int) -> str:
    if count == 1:
        return "the data is in this file"
    return f"the data of {count} runs is in this file, single samples of the last one alone"


def without_samples(run: RunResult) -> RunResult:
    """An earlier run without single samples: comparisons need the medians of passes, and the file stays small."""
    cases = (
        replace(
            case,
            figures=tuple(
                replace(each, passes=tuple(replace(part, samples=()) for part in each.passes)) for each in case.figures
            ),
        )
        for case in run.cases
    )
    return replace(run, cases=tuple(cases))


def _header(run: RunResult, judgement: RunJudgement, tables: Tables) -> Markup:
    rows = dict(environment_rows(run))
    software = ", ".join(
        f"{word} {rows[name]}"
        for name, word in (("PyTorch", "torch"), ("CUDA", "CUDA"), ("Driver", "driver"))
        if name in rows
    )
    count = sum(case.verdict is Verdict.OK for case in run.cases)
    seconds = "" if run.run.wall_seconds is None else f" in {run.run.wall_seconds:.0f} s"
    return lead(
        "bench report",
        judgement.sentence,
        (
            f"{', '.join(dict.fromkeys(gpu.name for gpu in run.gpus)) or run.host.cpu or 'processor'}; {software}.",
            f"{count} cases measured{seconds}, {run.run.profile} effort, {run.run.passes} passes, {run.run.started}.",
            tiles(run, judgement, tables),
        ),
        tone=judgement.tone.value,
    )


def tiles(run: RunResult, judgement: RunJudgement, tables: Tables) -> Markup:
    """Numbers at a glance: the best products, memory, links; nothing where none was measured."""
    found = [
        *(_best_tile(best, run) for best in _slowest(judgement.bests)),
        *_memory_tiles(run, tables),
        *_link_tiles(run),
    ]
    return el("ul", *found[:6], class_="tiles", data_rove="", aria_label="Numbers at a glance") if found else Markup("")


def _slowest(bests: Sequence[Best]) -> Iterator[Best]:
    """Of each precision the GPU that comes least near to healthy ones: the one a reader has to know."""
    for precision in dict.fromkeys(best.precision for best in bests):
        yield min(
            (best for best in bests if best.precision == precision), key=lambda best: best.tflops / best.healthy_tflops
        )


def _best_tile(best: Best, run: RunResult) -> Markup:
    share = 100 * best.tflops / best.healthy_tflops
    where = f" on GPU {best.gpu}, the slowest" if len(run.gpus) > 1 else ""
    formula = (
        f"the best {best.precision} product: {best.case.id} ({best.figure.regime.value}), "
        f"{rate_formula(best.case, best.figure)}"
    )
    compared = (
        f"{significant(best.tflops)} / {significant(best.healthy_tflops)} TFLOPS, what healthy cards of this model "
        f"reach in large products (table gpu_peaks); from 95 % on it is normal"
    )
    return _tile(
        f"{best.precision} products{where}",
        number(f"{significant(best.tflops)} TFLOPS", formula),
        (number(f"{share:.0f} %", compared), f" of healthy cards: {best.band.value}"),
    )


def _memory_tiles(run: RunResult, tables: Tables) -> Iterator[Markup]:
    for place, gpu in enumerate(run.gpus[:1]):
        best = _fastest(
            case for case in run.cases if case.family == "bandwidth" and case.gpu == place and case.cache == "n/a"
        ) or _fastest(case for case in run.cases if case.family == "bandwidth" and case.gpu == place)
        spec = peaks_of(gpu, tables).bandwidth_gbps
        if best is None or best.shown is None or best.shown.rate.gbps is None:
            continue
        rate = best.shown.rate.gbps
        words: tuple[str, ...] = ()
        if spec is not None:
            formula = f"{gbps_text(rate)} / {gbps_text(spec)} GB/s of the datasheet"
            words = (number(f"{100 * rate / spec:.0f} %", formula), " of the datasheet")
        yield _tile("memory", number(f"{gbps_text(rate)} GB/s", f"{best.id}: {rate_formula(best, best.shown)}"), words)


def _link_tiles(run: RunResult) -> Iterator[Markup]:
    for direction, name in (("h2d", "host to GPU"), ("d2h", "GPU to host")):
        best = _fastest(case for case in run.cases if dict(case.params).get("direction") == direction)
        if best is None or best.shown is None or best.shown.rate.gbps is None:
            continue
        share = limit_of_interest(best.shown.limit)[1]
        words = () if share is None else (number(percent_text(share), share_formula(best.shown)), " of the link")
        value = number(f"{gbps_text(best.shown.rate.gbps)} GB/s", f"{best.id}: {rate_formula(best, best.shown)}")
        yield _tile(name, value, words)


def _tile(name: str, value: Markup, words: Sequence[str]) -> Markup:
    return el("li", el("span", name, class_="label"), el("strong", value), el("span", *words, class_="label"))


def _fastest(cases: Iterator[CaseResult]) -> CaseResult | None:
    rated = [case for case in cases if case.verdict is Verdict.OK and case.shown and case.shown.rate.gbps is not None]
    return max(rated, key=lambda case: (case.shown.rate.gbps or 0.0) if case.shown else 0.0, default=None)


def _things(judgement: RunJudgement) -> Markup:
    if not judgement.things:
        return section("look", "To look at", el("p", "Nothing stands out."))
    items = [
        el(
            "li",
            el("a", f"{thing.title[:1].upper()}{thing.title[1:]}", href=f"#{thing.anchor}"),
            f": {thing.saw}." + (f" {thing.means[:1].upper()}{thing.means[1:]}." if thing.means else ""),
            class_=thing.weight.value,
        )
        for thing in judgement.things
    ]
    return section("look", "To look at", el("ol", *items, class_="things"))


def _machine(run: RunResult) -> Markup:
    rows = [row for row in environment_rows(run) if run.gpus or row[0] != "GPU"]
    rows += [(name, value) for name, value in (("NCCL", run.software.nccl), ("Container", run.host.container)) if value]
    for gpu in run.gpus[:1]:
        link = f"PCIe {gpu.pcie_gen}.0 x{gpu.pcie_width}" if gpu.pcie_gen and gpu.pcie_width else ""
        ecc = {True: "on", False: "off", None: ""}[gpu.ecc]
        power = f"{gpu.power_limit_w:.0f} W, default {gpu.power_default_w:.0f} W" if gpu.power_limit_w and gpu.power_default_w else ""  # fmt: skip  # noqa: E501
        rows += [(name, value) for name, value in (
            ("Link", link), ("ECC", ecc), ("Power limit", power), ("VBIOS", gpu.vbios or "")) if value]  # fmt: skip
    commit = "" if run.run.commit is None else run.run.commit + (", with uncommitted changes" if run.run.dirty else "")
    command = code(f"firstlight {' '.join(run.run.argv)}")
    made = (("Made by", run.tool), ("Commit", commit), ("Command", command), ("Run", run.run.id))
    rows += [(name, value) for name, value in made if value]
    body = table(("What", "Value"), rows, caption="The machine and its software", class_="pairs")
    return section("machine", "Machine and stack", body)
