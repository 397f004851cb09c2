"""The GPUs of many hosts to look at: the slow ones with their causes, then one small chart a host, all to one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firstlight.bench.slow_gpus import LEAST_EQUAL, MADS, SLOWER_BY, GpuClass, JudgedGpu, JudgedGpus, State
from firstlight.fleet.folding import folded
from firstlight.frozen import dataclass
from firstlight.numerals import counted
from firstlight.report.fleet_gpus_json import gpus_document
from firstlight.report.fleet_gpus_text import alike, class_line, low_sentence, lowest_sentence
from firstlight.report.host_names import HostNames
from firstlight.report.html.markup import Markup, el, joined, mark, section
from firstlight.report.html.page import Page, lead, page_text, sections_of, table
from firstlight.report.html.scales import Axis, drawing, fitted, label, line

WIDTH, ROW, TOP, LEFT, RIGHT = 320, 22, 8, 62, 308
DOT = 3.6
MOST_PANELS = 60  # a page with more hosts than these shows those with a slow GPU first
LOWEST_SHARE, HIGHEST_SHARE = 0.5, 1.2  # what lies outside is drawn at the edge, and says its number


@dataclass(frozen=True, slots=True)
class FleetBenchPage:
    """The file and what it says first."""

    text: str
    sentence: str
    tone: str  # good, warn or bad


def fleet_bench_page(judged: JudgedGpus, names: HostNames, *, made: str) -> FleetBenchPage:
    """The page of a run of `fleet bench`; `names` says what each host is called in it."""
    sentence, tone = _verdict(judged)
    hosts = _hosts(judged)
    sections = sections_of(
        section("slow", "Slow GPUs", *(_slow(gpu, names) for gpu in judged.slow)) if judged.slow else Markup(""),
        section("hosts", "By host", *_multiples(hosts, names)),
        section("gpus", "Every GPU", *(_table(each, names) for each in judged.classes)),
        section("rule", "How a GPU is called slow", *_rule()),
    )
    menu = (("slow", "Slow GPUs"), ("hosts", "By host"), ("gpus", "Every GPU"), ("rule", "The rule"))
    there = "".join(sections)
    page = Page(
        title=sentence,
        header=lead("fleet bench", sentence, [f"{class_line(each)}." for each in judged.classes], tone=tone),
        sections=sections,
        menu=tuple((anchor, name) for anchor, name in menu if f'<section id="{anchor}"' in there),
        documents=(gpus_document(judged, names),),
        made=made,
    )
    return FleetBenchPage(page_text(page), sentence, tone)


def _verdict(judged: JudgedGpus) -> tuple[str, str]:
    """E.g. "1 of 20 GPUs on 5 hosts is slow.", bad."""
    whole = f"{counted(len(judged.gpus), 'GPU')} on {counted(len(_hosts(judged)), 'host')}"
    if judged.slow:
        count = len(judged.slow)
        return f"{count} of {whole} {'is' if count == 1 else 'are'} slow.", "bad"
    if missing := judged.of(State.NOT_JUDGED):
        return f"{whole}: none is slow, {len(missing)} could not be judged.", "warn"
    return f"{whole}: none is slow.", "good"


def _hosts(judged: JudgedGpus) -> dict[str, list[JudgedGpu]]:
    """The GPUs of each host; hosts with a slow one first, the slowest of them in front."""
    found: dict[str, list[JudgedGpu]] = {}
    for gpu in judged.gpus:
        found.setdefault(gpu.host, []).append(gpu)
    worst = {host: max(gpu.by for gpu in gpus) for host, gpus in found.items()}
    slow = {host: any(gpu.state is State.SLOW for gpu in gpus) for host, gpus in found.items()}
    order = sorted(found, key=lambda host: (not slow[host], -worst[host], host))
    return {host: sorted(found[host], key=_place) for host in order}


def _place(gpu: JudgedGpu) -> tuple[int, str]:
    digits = gpu.device.rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0, gpu.device)


def _slow(gpu: JudgedGpu, names: HostNames) -> Markup:
    causes = [el("li", el("strong", each.why.value), f": {each.saw}") for each in gpu.causes]
    lowest = [el("p", f"{each[:1].upper()}{each[1:]}.") for each in map(lowest_sentence, gpu.low[:1])]
    return el(
        "article",
        el("h3", f"{names[gpu.host]} {gpu.device}"),
        el("p", f"{low_sentence(gpu)}."),
        *((el("ul", *causes),) if causes else ()),
        *lowest,
        class_="blocks",
    )


def _multiples(hosts: dict[str, list[JudgedGpu]], names: HostNames) -> Iterator[Markup]:
    """One small chart a host, all with the same axis."""
    shown = list(hosts.items())[:MOST_PANELS]
    shares = [share for _, gpus in shown for gpu in gpus for _, share in gpu.shares]
    low = max(LOWEST_SHARE, min([0.92, *(share - 0.01 for share in shares)]))
    high = min(HIGHEST_SHARE, max([1.03, *(share + 0.01 for share in shares)]))
    axis = Axis(100 * low, 100 * high, LEFT, RIGHT)
    yield el(
        "p",
        "Each mark is a family of cases: its rate beside the median of equal GPUs, which is 100 %. The dashed line "
        f"is {100 * (1 - SLOWER_BY):.0f} %. Every chart has the same scale; hosts with a slow GPU come first.",
    )
    yield el("div", *(_panel(names[host], gpus, axis) for host, gpus in shown), class_="multiples", data_rove="")
    if len(hosts) > len(shown):
        yield el("p", f"{len(hosts) - len(shown)} more hosts without a slow GPU are in the table below alone.")


def _panel(host: str, gpus: Sequence[JudgedGpu], axis: Axis) -> Markup:
    bottom = TOP + ROW * len(gpus)
    parts = [
        el("rect", x=LEFT - 4.0, y=float(TOP), width=RIGHT - LEFT + 8.0, height=float(ROW * len(gpus)), class_="rail"),
        line(axis.at(100), TOP, axis.at(100), bottom, class_="leader"),
        line(axis.at(100 * (1 - SLOWER_BY)), TOP, axis.at(100 * (1 - SLOWER_BY)), bottom, class_="zero"),
    ]
    for place, gpu in enumerate(gpus):
        parts += _row(gpu, TOP + ROW * (place + 0.5), axis)
    for tick in _ticks(axis):
        parts.append(label(axis.at(tick), bottom + 16, f"{tick} %", class_="tick", text_anchor="middle"))
    slow = sum(gpu.state is State.SLOW for gpu in gpus)
    says = f"{host}: {counted(len(gpus), 'GPU')}, {f'{slow} slow' if slow else 'none slow'}"
    head = el("figcaption", el("strong", host), *((" ", el("span", f"{slow} slow", class_="word bad")) if slow else ()))
    return el("figure", head, drawing(WIDTH, bottom + 24, *parts, name=says, class_="small"))


def _row(gpu: JudgedGpu, y: float, axis: Axis) -> Iterator[Markup]:
    style = {State.SLOW: "name gone", State.NOT_JUDGED: "name odd"}.get(gpu.state, "name")
    yield label(LEFT - 10, y + 4, fitted(gpu.device, LEFT - 12), class_=style, text_anchor="end")
    colour = "p5" if gpu.state is State.SLOW else "p0"
    for family, share in gpu.shares:
        dot = el("circle", cx=axis.at(100 * share), cy=y, r=DOT, class_=f"filled {colour}")
        yield mark(f"{gpu.device}, {family}: {100 * share:.1f} % of the median of equal GPUs", dot)


def _ticks(axis: Axis) -> tuple[int, ...]:
    step = 5 if axis.high - axis.low <= 25 else 10
    return tuple(tick for tick in range(0, 201, step) if axis.low <= tick <= axis.high)


def _table(each: GpuClass, names: HostNames) -> Markup:
    """Each slow GPU in a row, the others together."""
    rows = []
    for gpu in (gpu for gpu in each.gpus if gpu.state is State.SLOW):
        low = f"{100 * gpu.by:.1f} % in {len(gpu.low)} of {gpu.figures}" if gpu.low else ""
        causes = ", ".join(cause.why.value for cause in gpu.causes)
        rows.append((f"{names[gpu.host]} {gpu.device}", gpu.state.value, low, causes, _against(gpu), gpu.reason))
    for gpus in alike(each):
        hosts = folded(dict.fromkeys(names[gpu.host] for gpu in gpus))
        first = gpus[0]
        rows.append(
            (f"{counted(len(gpus), 'GPU')} of {hosts}", first.state.value, "", "", _against(first), first.reason)
        )
    head = ("GPU", "Verdict", "Low by", "Why", "Held against", "Seen")
    note = el("p", f"{each.note[:1].upper()}{each.note[1:]}.") if each.note else Markup("")
    return joined((note, table(head, rows, caption=f"{each.sort}")))


def _against(gpu: JudgedGpu) -> str:
    return " and ".join(measure.value for measure in gpu.against)


def _rule() -> Iterator[Markup]:
    yield el(
        "p",
        f"A GPU is called slow when it is more than {100 * SLOWER_BY:.0f} % and more than {MADS:.0f} median absolute "
        "deviations below the median of equal GPUs, in the same figure in every run, two at least. Equal are "
        "GPUs of the same model and settings that were measured with the same torch. Figures in which the processor "
        "is in the time, and those that were not steady, are left out.",
    )
    yield el(
        "p",
        f"Where fewer than {LEAST_EQUAL} are equal, each is compared with what healthy cards of its model reach and "
        "against the baseline of the lock, where one was given.",
    )
    yield el(
        "p",
        "How much healthy chips of one model differ from each other was not measured: a GPU that is called slow may be "
        "a sound one at the lower end.",
    )
