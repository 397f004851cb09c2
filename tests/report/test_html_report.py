"""The report of a benchmark as one HTML file: its words, its marks, and the data that comes back out of it."""

from __future__ import annotations

import html.parser
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firstlight.bench.read_whole import FILE_LIMIT
from firstlight.bench.results import Health, HealthFinding, RunResult, Verdict, from_json, read_run, to_text
from firstlight.errors import BadInput
from firstlight.report.html.bench_page import BenchReport, bench_report
from firstlight.report.html.embedded import documents_in, embed
from firstlight.report.html.markup import Markup, el, number
from firstlight.tables import load
from tests.report.runs_to_show import H200, processor_run
from tests.schemas import fits

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/bench-report-1.json").read_text())
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Seen(html.parser.HTMLParser):
    """What a browser would build: elements with their attributes, in order, and the depth that is left at the end."""

    empty = ("meta", "input", "br", "link", "col")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.empty:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]


@pytest.fixture(scope="module")
def run() -> RunResult:
    return read_run(str(H200))


@pytest.fixture(scope="module")
def report(run: RunResult) -> BenchReport:
    return bench_report((run,), load())


def _command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firstlight", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_the_h200_report_begins_with_its_verdict_and_stays_below_500_kb(report: BenchReport) -> None:
    assert report.judgement.sentence == "This H200 runs as it should; 3 things to look at."
    assert "<h1>" in report.text
    assert report.judgement.sentence in report.text
    assert len(report.text.encode()) < 500_000


def test_every_element_is_closed_and_every_link_leads_somewhere(report: BenchReport) -> None:
    seen = Seen(report.text)
    assert seen.open == []
    ids = seen.ids()
    assert len(ids) == len(set(ids))
    links = [attributes["href"] or "" for tag, attributes in seen.elements if tag == "a"]
    assert links
    assert [link for link in links if link.removeprefix("#") not in ids] == []


def test_every_measured_figure_has_its_mark_in_the_roofline_its_bar_and_its_strip(
    run: RunResult, report: BenchReport
) -> None:
    measured = [case for case in run.cases if case.verdict is Verdict.OK]
    figures = sum(len(case.figures) for case in measured)
    assert report.text.count('class="strip"') == figures
    with_work = [case for case in measured if case.flops and case.bytes]
    roofline = _section(report, "roofline")
    assert roofline.count("<circle") == sum(len(case.figures) for case in with_work)
    families = _section(report, "families")
    assert families.count("<circle") == len(measured)
    assert families.count('class="bar"') == len({case.family for case in measured})
    assert _section(report, "transfers").count("heatcell") == 4
    assert _section(report, "trace").count("<circle") == 3 * len(run.health.soak) + figures


def test_the_columns_of_limits_are_not_there_where_no_case_has_one() -> None:
    made = bench_report((processor_run(),), load())
    heads = re.findall(r'<th scope="col">(.*?)</th>', _section(made, "cases"))
    assert set(heads) == {"Case", "Time", "±", "Rate", "Samples"}
    assert "GPU" not in re.sub(r"<[^>]*>|<script.*?</script>|<style.*?</style>", "", made.text, flags=re.S)


def test_a_strip_says_its_fastest_and_its_slowest_time(report: BenchReport) -> None:
    assert "<small>5.852 us</small><small>6.366 us</small>" in _section(report, "cases")


def test_every_number_of_the_table_says_its_formula(report: BenchReport) -> None:
    cases = _section(report, "cases")
    for cell in re.findall(r"<td[^>]*>(.*?)</td>", cases):
        shown = re.sub(r"<svg.*?</svg>|<span class=\"notes\">.*?</span>", "", cell)
        if re.search(r"\d", re.sub(r"<[^>]*>", "", shown)):
            assert 'title="' in cell, cell
    assert "least time / time = 2.027 us / 6.252 us = 32.4 %" in cases


def test_the_run_comes_back_out_of_the_report_exactly(run: RunResult, report: BenchReport) -> None:
    (document,) = documents_in(report.text, "report.html")
    assert from_json(document, "report.html") == run


def test_nothing_is_loaded_from_elsewhere_and_only_our_script_may_run(report: BenchReport) -> None:
    seen = Seen(report.text)
    policy = next(a["content"] for t, a in seen.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert [a for _, a in seen.elements if "src" in a or "style" in a or any(name.startswith("on") for name in a)] == []
    kinds = [attributes.get("type") for tag, attributes in seen.elements if tag == "script"]
    assert kinds.count(None) == 1
    assert re.search(r"https?://", re.sub(r"<script class=.*?</script>", "", report.text, flags=re.S)) is None


def test_hostile_names_in_a_result_file_stay_text(run: RunResult) -> None:
    case = replace(run.cases[0], id=HOSTILE, family=HOSTILE, params=((HOSTILE, HOSTILE),))
    skipped = replace(run.cases[11], id=f"{HOSTILE}2", reason=HOSTILE)
    transfer = replace(next(c for c in run.cases if "h2d/pinned" in c.id), params=(("host_memory", HOSTILE),))
    bad = replace(
        run,
        cases=(case, skipped, transfer),
        gpus=(replace(run.gpus[0], name=f"NVIDIA H200 {HOSTILE}"),),
        host=replace(run.host, cpu=HOSTILE, os=HOSTILE),
        run=replace(run.run, id=HOSTILE, started=HOSTILE, argv=(HOSTILE,)),
        health=replace(run.health, findings=(HealthFinding(HOSTILE, "warn", HOSTILE),), contention=(HOSTILE,)),
    )
    made = bench_report((bad, bad), load())
    seen = Seen(made.text)
    assert seen.open == []
    assert [tag for tag, _ in seen.elements if tag == "img"] == []
    assert sum(tag == "script" and "type" not in attributes for tag, attributes in seen.elements) == 1
    assert "alert(1)</script>" not in made.text
    assert from_json(documents_in(made.text, "x")[-1], "x") == bad


def test_a_card_below_healthy_ones_or_with_a_blocking_finding_is_said_not_to_run_as_it_should(run: RunResult) -> None:
    ill = replace(run, health=Health(findings=(HealthFinding("hw-thermal", "blocks", "too hot"),)))
    made = bench_report((ill,), load())
    assert made.judgement.sentence.startswith("This H200 does not run as it should; ")
    assert made.judgement.things[0].saw == "too hot"
    assert made.judgement.tone.value == "bad"
    slow = bench_report((_times(run, "gemm", 1.3),), load())
    assert slow.judgement.tone.value == "bad"
    little = bench_report((_times(run, "gemm", 1.07),), load())
    assert little.judgement.sentence.startswith("This H200 runs a little below what healthy cards of its model reach; ")


def test_a_run_without_a_gpu_or_without_figures_has_a_report_too(run: RunResult) -> None:
    cases = tuple(
        replace(c, gpu=-1, figures=(), headline=None, verdict=Verdict.SKIPPED, reason="no") for c in run.cases
    )
    made = bench_report((replace(run, gpus=(), cases=cases, health=Health()),), load())
    assert made.judgement.sentence.startswith(
        f"Nothing was measured: {len(cases)} of {len(cases)} cases were skipped (no)"
    )
    assert Seen(made.text).open == []
    assert 'id="roofline"' not in made.text
    assert "No case has a figure." in made.text


def test_a_run_in_which_every_case_was_skipped_is_not_said_to_have_been_measured(run: RunResult) -> None:
    skipped = tuple(case for case in run.cases if case.verdict is Verdict.SKIPPED)
    sentence = bench_report((replace(run, cases=skipped),), load()).judgement.sentence
    assert sentence.startswith(f"Nothing was measured: {len(skipped)} of {len(skipped)} cases were skipped (")
    assert "was measured;" not in sentence
    assert "nothing stands out" not in sentence


def test_two_runs_are_compared_with_intervals_and_what_became_slower_comes_first(run: RunResult) -> None:
    slower = replace(_times(run, "sdpa", 1.2), run=replace(run.run, id="second", started="2026-11-15T07:00:00Z"))
    made = bench_report((run, slower), load())
    assert made.judgement.things[0].title.endswith("slower than in run 20261115T061544Z-d5b507")
    section = _section(made, "comparison")
    assert section.count('class="word bad"') == sum(len(c.figures) for c in run.cases if c.family == "sdpa")
    assert "95 % interval over passes" in section
    first, last = documents_in(made.text, "two.html")
    assert from_json(last, "last") == slower
    assert from_json(first, "first").cases[0].figures[0].passes[0].samples == ()


def test_a_run_of_several_gpus_has_one_roofline_and_every_pair_in_the_heat_map(run: RunResult) -> None:
    gpus = tuple(replace(run.gpus[0], index=index, uuid=f"gpu-{index}") for index in range(4))
    again = tuple(replace(case, gpu=gpu) for gpu in range(1, 4) for case in run.cases if case.family != "transfer")
    copy = next(case for case in run.cases if "h2d/pinned" in case.id)
    pairs = [(source, target) for source in range(4) for target in range(4) if source != target]
    peers = tuple(
        replace(
            copy,
            id=f"transfer/gpu{source}-gpu{target}/256MiB",
            params=(("direction", "one way"), ("source", str(source)), ("target", str(target))),
        )
        for source, target in pairs
    )
    slow = _times(replace(run, gpus=gpus, cases=again), "gemm", 1.25)
    some = tuple(case for case in slow.cases if case.gpu == 3)
    mixed = replace(run, gpus=gpus, cases=(*run.cases, *(case for case in again if case.gpu < 3), *some, *peers))
    made = bench_report((mixed,), load())
    assert made.judgement.sentence.startswith("These 4 H200 do not run as they should; ")
    assert [thing.title for thing in made.judgement.things[:2]] == [
        "bf16 products below healthy cards on GPU 3",
        "fp8 products below healthy cards on GPU 3",
    ]
    assert _section(made, "transfers").count("heatcell") == 4 + 12
    assert _section(made, "roofline").count("<figure") == 1
    assert "bf16 products on GPU 3, the slowest" in made.text


def test_runs_of_two_models_are_shown_as_not_comparable(run: RunResult) -> None:
    other = replace(run, gpus=(replace(run.gpus[0], name="NVIDIA H100 80GB HBM3"),))
    made = bench_report((other, run), load())
    assert made.compared == ("Not comparable.",)
    assert "The two runs cannot be compared:" in made.text


def test_markup_escapes_text_and_attributes_but_not_markup() -> None:
    assert el("p", "<b>", Markup("<i>"), title='"<') == '<p title="&quot;&lt;">&lt;b&gt;<i></p>'
    assert number("1 < 2", "a'b") == '<span class="n" title="a&#x27;b">1 &lt; 2</span>'


@pytest.mark.parametrize("size", [10, 100_000], ids=["plain", "packed"])
def test_a_document_comes_back_whatever_is_in_it(size: int) -> None:
    document = {"schema": "x", "text": HOSTILE + "\u2028]]><!--" + "é" * size}
    text = embed((document,))
    assert text.count("<") == 2
    assert documents_in(f"<html>{text}</html>", "x") == (document,)


@pytest.mark.parametrize("damage", ["cut", "not packed", "a list", "nothing"])
def test_a_damaged_report_is_refused_with_what_is_wrong(damage: str) -> None:
    whole = embed(({"a": "x" * 100_000},))
    text = {
        "cut": whole[:-40] + "</script>",
        "not packed": re.sub(">[^<]+<", ">????<", whole, count=1),
        "a list": whole.split(" type=")[0] + ' type="application/json">[1]</script>',
        "nothing": "<html></html>",
    }[damage]
    with pytest.raises(BadInput, match=r"r\.html: (the data in it|no data of firstlight)"):
        documents_in(text, "r.html")


def test_the_limit_on_unpacked_data_is_that_of_a_result_file() -> None:
    assert FILE_LIMIT == 256 << 20


def test_the_command_writes_the_report_and_the_verb_report_gives_the_run_back(tmp_path: Path, run: RunResult) -> None:
    made = _command("bench", "report", str(H200), "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    fits(document, SCHEMA)
    assert document["file"] == "bench-h200-standard.html"
    assert (tmp_path / document["file"]).stat().st_size == document["bytes"]
    back = _verb_report("--from", document["file"], cwd=tmp_path)
    assert back.returncode == 0, back.stderr
    assert back.stdout == to_text(run)


def test_the_command_says_what_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>no data</html>")
    no_data = _command("bench", "report", "page.html", cwd=tmp_path)
    assert no_data.returncode == 2
    assert "page.html: no data of firstlight is in it; accepted: " in no_data.stderr
    no_folder = _command("bench", "report", str(H200), "--out", "nowhere/x.html", cwd=tmp_path)
    assert no_folder.returncode == 2
    assert "there is no folder" in no_folder.stderr


def _verb_report(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from firstlight.cli.report import command; command(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def _section(report: BenchReport, anchor: str) -> str:
    found = re.search(rf'<section id="{anchor}".*?</section>', report.text, re.S)
    assert found is not None, anchor
    return found[0]


def _times(run: RunResult, family: str, factor: float) -> RunResult:
    """The run with the times of one family multiplied."""

    def slower(figure: Any) -> Any:
        time, rate = figure.time_s, figure.rate
        passes = tuple(
            replace(each, median=each.median * factor, samples=tuple(value * factor for value in each.samples))
            for each in figure.passes
        )
        ends = (time.ci95[0] * factor, time.ci95[1] * factor)
        tflops = None if rate.tflops is None else rate.tflops / factor
        return replace(
            figure,
            passes=passes,
            time_s=replace(time, median=time.median * factor, ci95=ends, min=time.min * factor),
            rate=replace(rate, tflops=tflops),
        )

    cases = (
        replace(case, figures=tuple(slower(figure) for figure in case.figures)) if case.family == family else case
        for case in run.cases
    )
    return replace(run, cases=tuple(cases))


def test_the_committed_example_is_what_the_command_writes_today(report: BenchReport) -> None:
    example = ROOT / "examples" / "bench-report-h200.html"
    again = "firstlight bench report results/bench-h200-standard.json --out examples/bench-report-h200.html"
    assert example.read_text() == report.text, f"make it again: {again}"
