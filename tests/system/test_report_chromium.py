"""Reports in a real browser, on a phone, a laptop and paper: nothing complains, nothing overlaps, all can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.bench.results import HealthFinding, RunResult, Verdict, read_run
from firstlight.cli.main import run as firstlight
from firstlight.report.html.bench_page import bench_report
from firstlight.tables import load
from tests.system.chromium import BINARY, Chromium

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not BINARY, reason="chromium is not installed: apt-get install chromium"),
]
ROOT = Path(__file__).parents[2]
SIZES = {"phone": (390, 844), "laptop": (1280, 800)}
HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1><svg onload=window.hit=1>\"'"

# Text against the colour behind it, by WCAG 2: 4.5, or 3 for large text.
CONTRAST = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, style = getComputedStyle(node);
    if (!walker.currentNode.textContent.trim() || ["SCRIPT", "STYLE", "title"].includes(node.tagName)) continue;
    if (!node.getClientRects().length) continue;
    const front = rgb(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(front), light(behind(node))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) bad.push(`${node.textContent.slice(0, 40)} ${ratio.toFixed(2)}`);
  }
  return bad;
})()"""
# Labels of one chart that lie on each other by more than a hair.
OVERLAP = """(() => {
  const bad = [];
  for (const chart of document.querySelectorAll("svg.chart, svg.graph")) {
    const boxes = [...chart.querySelectorAll("text")].filter((node) => !node.getAttribute("transform"))
      .map((node) => [node.textContent, node.getBoundingClientRect()]);
    boxes.forEach(([one, a], place) => boxes.slice(place + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && tall > 3) bad.push(`${one} / ${other}`);
    }));
  }
  return bad;
})()"""
# Cells of tables, tiles and sections that stick out of their box, or lie on their neighbour.
STICKS_OUT = """(() => {
  const bad = [];
  for (const cell of document.querySelectorAll("td, th, .tiles li, article, figure")) {
    if (!cell.getClientRects().length || cell.closest("thead, .frame")) continue;
    const right = cell.getBoundingClientRect().right;
    for (const inside of cell.querySelectorAll("span, svg, strong")) {
      if (inside.closest("svg") && inside.tagName !== "svg") continue;
      if (inside.getBoundingClientRect().right > right + 1.5 && !inside.closest(".frame"))
        bad.push(`${cell.textContent.slice(0, 50)}: ${inside.getBoundingClientRect().right - right}`);
    }
  }
  return bad;
})()"""
SIDEWAYS = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture(scope="module")
def h200() -> RunResult:
    return read_run(str(ROOT / "results" / "bench-h200-standard.json"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, h200: RunResult) -> dict[str, Path]:
    """A report of one run, of two, of a diagnosis and of a chain of libraries."""
    folder = tmp_path_factory.mktemp("pages")
    out = {name: folder / f"{name}.html" for name in ("one", "two", "doctor", "libs")}
    later = replace(h200, run=replace(h200.run, id="later"))
    out["one"].write_text(bench_report((h200,), load()).text)
    out["two"].write_text(bench_report((h200, later), load()).text)
    machines = ROOT / "tests" / "machines"
    assert firstlight(["doctor", "--facts", str(machines / "h100-driver-570"), "--html", str(out["doctor"])]) == 1
    assert firstlight(["libs", "--facts", str(machines / "thor-missing-libraries"), "--html", str(out["libs"])]) == 1
    return out


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", ["one", "two", "doctor", "libs"])
def test_a_page_can_be_read(browser: Chromium, pages: dict[str, Path], page: str, size: str, scheme: str) -> None:
    browser.size(*SIZES[size], dark=scheme)
    browser.open(pages[page])
    browser.ask("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.said == []
    assert browser.ask(SIDEWAYS) <= 0
    assert browser.ask(OVERLAP) == []
    assert browser.ask(STICKS_OUT) == []
    assert browser.ask(CONTRAST) == []


@pytest.mark.parametrize("page", ["one", "two", "doctor", "libs"])
def test_a_page_prints_on_white_with_everything_unfolded(browser: Chromium, pages: dict[str, Path], page: str) -> None:
    browser.size(703, 1000, dark="dark", media="print")  # A4 less its margins
    browser.open(pages[page])
    browser.ask("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask(SIDEWAYS) <= 0
    assert browser.ask(STICKS_OUT) == []
    assert browser.ask(OVERLAP) == []
    assert browser.ask(CONTRAST) == []
    assert browser.pdf().startswith(b"%PDF")
    assert browser.said == []


def test_the_checks_see_planted_faults(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.size(*SIZES["laptop"])
    browser.open(pages["one"])
    browser.ask("document.documentElement.style.setProperty('--soft', '#b0b0b0')")
    assert len(browser.ask(CONTRAST)) > 20
    browser.ask("document.querySelectorAll('#families .name').forEach((name) => name.setAttribute('y', '60'))")
    assert "gemm / bmm" in browser.ask(OVERLAP)
    browser.ask("document.querySelectorAll('.strip').forEach((strip) => { strip.style.width = '400px'; })")
    assert len(browser.ask(STICKS_OUT)) > 20


def test_every_case_is_on_the_screen_with_its_marks(browser: Chromium, pages: dict[str, Path], h200: RunResult) -> None:
    browser.size(*SIZES["laptop"])
    browser.open(pages["one"])
    measured = [case for case in h200.cases if case.verdict is Verdict.OK]
    figures = sum(len(case.figures) for case in measured)
    shown = "[...document.querySelectorAll('#cases tbody tr')].filter((row) => row.getClientRects().length).length"
    assert browser.ask(shown) == figures
    inside = """(() => {
      const frame = document.querySelector("#roofline svg").getBoundingClientRect();
      return [...document.querySelectorAll("#roofline circle")].map((dot) => dot.getBoundingClientRect())
        .filter((dot) => dot.left >= frame.left && dot.right <= frame.right)
        .filter((dot) => dot.top >= frame.top && dot.bottom <= frame.bottom).length;
    })()"""
    assert browser.ask(inside) == sum(len(case.figures) for case in measured if case.flops and case.bytes)
    browser.ask("document.getElementById('filter').value = 'gemm/fp8'")
    browser.ask("document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert browser.ask(shown) == 2


def test_the_keyboard_reaches_a_number_and_shows_its_formula(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.size(*SIZES["laptop"])
    browser.open(pages["one"])
    browser.press("Tab")
    assert browser.ask("document.activeElement.textContent") == "Skip to the report"
    browser.press("Tab")
    first = browser.ask("document.getElementById('tip').textContent")
    assert first.startswith("the best bf16 product: gemm/bf16/8192x8192x8192 (burst), FLOP / time = ")
    browser.press("ArrowRight")
    assert "what healthy cards of this model reach" in browser.ask("document.getElementById('tip').textContent")
    assert browser.ask("document.getElementById('tip').hidden") is False
    stops = browser.ask("[...document.querySelectorAll('[tabindex=\"0\"], a, input, button, summary')].length")
    assert stops < 60
    nameless = "[...document.querySelectorAll('svg .n')].filter((mark) => !mark.getAttribute('aria-label')).length"
    assert browser.ask(nameless) == 0


def test_the_data_can_be_unpacked_in_the_browser(browser: Chromium, pages: dict[str, Path], h200: RunResult) -> None:
    browser.open(pages["one"])
    unpack = """(async () => {
      const text = document.querySelector(".firstlight-data").textContent;
      const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      return JSON.parse(await new Response(stream).text()).run.id;
    })()"""
    assert browser.ask(unpack) == h200.run.id
    assert browser.ask("document.getElementById('save').hidden") is False


def test_hostile_names_in_a_result_file_run_nothing(browser: Chromium, tmp_path: Path, h200: RunResult) -> None:
    case = replace(h200.cases[0], id=HOSTILE, family=HOSTILE, dtype=HOSTILE)
    bad = replace(
        h200,
        cases=(case, replace(h200.cases[11], reason=HOSTILE), *h200.cases[15:20]),
        gpus=(replace(h200.gpus[0], name=HOSTILE),),
        host=replace(h200.host, os=HOSTILE),
        health=replace(h200.health, findings=(HealthFinding(HOSTILE, "warn", HOSTILE),)),
        run=replace(h200.run, id=HOSTILE, started=HOSTILE),
    )
    page = tmp_path / "hostile.html"
    page.write_text(bench_report((bad, bad), load()).text)
    browser.size(*SIZES["laptop"])
    browser.open(page)
    assert browser.ask("window.hit === undefined")
    assert browser.ask("document.querySelectorAll('img').length") == 0
    assert HOSTILE in browser.ask("document.body.textContent")
    assert browser.said == []


def test_a_script_that_slipped_in_would_be_stopped_by_the_policy(
    browser: Chromium, pages: dict[str, Path], tmp_path: Path
) -> None:
    page = tmp_path / "slipped.html"
    page.write_text(pages["libs"].read_text().replace("</main>", "</main><script>window.hit=1</script>"))
    browser.open(page)
    assert browser.ask("window.hit === undefined")
    assert any("Content Security Policy" in said for said in browser.said)
