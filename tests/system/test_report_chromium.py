"""Reports in a real browser, on a phone, a laptop and paper: nothing complains, nothing overlaps, all can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.bench.results import Bound, HealthFinding, RunResult, Verdict
from firstlight.cli.main import run as firstlight
from firstlight.report.html.bench_page import bench_report
from firstlight.tables import load
from tests.fleet.measured_fleets import Odd, Planned, is_bound, write_fleet
from tests.report.handed import proof_text, write_journal
from tests.report.runs_to_show import H200, h200_run, long_names_run, processor_run, wild_run
from tests.system.chromium import BINARY, Chromium
from tests.system.page_checks import (
    CONTRAST,
    CUT,
    DIVIDED,
    HIDDEN_MARKS,
    NO_SCALE,
    NOT_CODE,
    OVERLAP,
    READABLE,
    SCROLLING,
    SIDEWAYS,
    STICKS_OUT,
    TOO_WIDE,
)

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not BINARY, reason="chromium is not installed: apt-get install chromium"),
]
ROOT = Path(__file__).parents[2]
SIZES = {"phone": (390, 844), "tablet": (768, 1024), "laptop": (1280, 800)}
HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1><svg onload=window.hit=1>\"'"

UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


@pytest.fixture(scope="module")
def h200() -> RunResult:
    return h200_run()


PAGES = (
    "one", "two", "processor", "wild", "long", "doctor", "healthy", "libs", "handover", "unproved", "fleet", "slow",
)  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, h200: RunResult) -> dict[str, Path]:
    """A report of one run and of two, of a card and of a processor, of diagnoses and of a chain of libraries."""
    folder = tmp_path_factory.mktemp("pages")
    out = {name: folder / f"{name}.html" for name in PAGES}
    later = replace(h200, run=replace(h200.run, id="later"))
    names = long_names_run()
    runs = {
        "long": (names, names),
        "one": (h200,),
        "two": (h200, later),
        "processor": (processor_run(),),
        "wild": (wild_run(times=0.006), wild_run()),
    }
    for name, given in runs.items():
        out[name].write_text(bench_report(given, load()).text)
    machines = ROOT / "tests" / "machines"
    assert firstlight(["doctor", "--facts", str(machines / "h100-driver-570"), "--html", str(out["doctor"])]) == 1
    assert firstlight(["doctor", "--facts", str(machines / "h200-healthy"), "--html", str(out["healthy"])]) == 0
    assert firstlight(["libs", "--facts", str(machines / "thor-missing-libraries"), "--html", str(out["libs"])]) == 1
    (folder / "verify.json").write_text(proof_text("h200-healthy"))
    parts = ("--before", str(machines / "h200-compat-stale"), "--verify", str(folder / "verify.json"), "--rate", "2.69")
    journal = write_journal(folder / "journal", "h100-driver-570")
    whole = [*parts, "--journal", str(journal), "--bench", str(H200), "--out", str(out["handover"])]
    assert firstlight(["handover", "--facts", str(machines / "h200-healthy"), *whole]) == 0
    missing = ["handover", "--facts", str(machines / "h100-driver-570"), "--out", str(out["unproved"])]
    assert firstlight(missing) == 1
    assert firstlight(["fleet", "doctor", "--facts", str(machines), "--html", str(out["fleet"])]) == 1
    measured = str(write_fleet(folder / "state", _slow_fleet()))
    assert firstlight(["bench", "report", measured, "--identify", "--out", str(out["slow"])]) == 0
    return out


def _slow_fleet() -> Planned:
    """Hosts of two and sixteen GPUs, one with a long name; slow ones of several causes, some that cannot be judged."""
    few = Odd(card=lambda card: replace(card, name="NVIDIA Unheard Of 9000", peaks="none"))
    hosts = {"node01": 16, "node02": 2, f"{'very-long-name-' * 6}of-a-host.example.org": 2, "box": 2}
    odd = {
        ("node01", 3): Odd(1.1, clock=0.91, temp_c=88.0),
        ("node01", 11): Odd(1.5),
        ("node02", 0): Odd(1.2, is_bound(Bound.LINK)),
        **{("box", place): few for place in range(2)},
    }
    return Planned(hosts, odd)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


def _faults(browser: Chromium) -> list[str]:
    return [fault for check in READABLE for fault in browser.ask(check)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read(browser: Chromium, pages: dict[str, Path], page: str, size: str) -> None:
    browser.size(*SIZES[size])
    browser.open(pages[page])
    browser.ask(UNFOLD)
    assert browser.said == []
    assert browser.ask(SIDEWAYS) <= 0
    assert _faults(browser) == []
    browser.size(*SIZES[size], dark="dark")
    assert browser.ask(CONTRAST) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_on_white_with_everything_unfolded(browser: Chromium, pages: dict[str, Path], page: str) -> None:
    browser.size(703, 1000, dark="dark", media="print")  # A4 less its margins
    browser.open(pages[page])
    browser.ask(UNFOLD)
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask(SIDEWAYS) <= 0
    assert _faults(browser) == []
    assert browser.pdf().startswith(b"%PDF")
    assert browser.said == []


FAULTS = {
    "contrast": (CONTRAST, "document.documentElement.style.setProperty('--soft', '#b0b0b0')"),
    "labels on each other": (OVERLAP, "$('#families .name').forEach((name) => name.setAttribute('y', '60'))"),
    "a cell over its neighbour": (
        OVERLAP,
        "$('#cases td').forEach((cell) => { cell.style.whiteSpace = 'nowrap'; "
        "if (cell.textContent.includes('(wide)')) cell.textContent = '16463.6 % (wide), not steady'; })",
    ),
    "strips too long": (STICKS_OUT, "$('.samples').forEach((strip) => { strip.style.minWidth = '400px'; })"),
    "too wide": (TOO_WIDE, "$('h2').forEach((head) => { head.style.width = '2000px'; })"),
    "cut": (CUT, "$('#families text').forEach((text) => text.setAttribute('x', '870'))"),
    "proportional": (NOT_CODE, "$('footer code').forEach((code) => code.replaceWith(code.textContent))"),
    "a version on two lines": (
        DIVIDED,
        "$('#machine td').forEach((cell) => { cell.style.width = '3em'; cell.style.overflowWrap = 'anywhere'; "
        "cell.style.display = 'block'; })",
    ),
    "no scale": (NO_SCALE, "$('.samples small').forEach((end) => end.remove())"),
    "marks on each other": (HIDDEN_MARKS, "$('#roofline circle').forEach((mark) => mark.setAttribute('cx', '300'))"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_see_planted_faults(browser: Chromium, pages: dict[str, Path], fault: str) -> None:
    check, plant = FAULTS[fault]
    browser.size(*SIZES["laptop"])
    browser.open(pages["one"])
    assert browser.ask(check) == []
    browser.ask(f"(() => {{ const $ = (all) => document.querySelectorAll(all); {plant}; }})()")
    assert browser.ask(check) != []


@pytest.mark.parametrize(("page", "boxes"), [("one", {"frame", "NAV"}), ("doctor", {"commands"}), ("libs", {"frame"})])
def test_what_is_too_wide_for_a_phone_scrolls_in_its_box_under_a_shadow(
    browser: Chromium, pages: dict[str, Path], page: str, boxes: set[str]
) -> None:
    """The content is made invisible, so that the edge of the box shows the shadow alone."""
    browser.size(*SIZES["phone"])
    browser.open(pages[page])
    found = set(browser.ask(SCROLLING))
    assert found == boxes
    for name in boxes:
        box = "document.querySelector('nav')" if name == "NAV" else f"document.querySelector('.{name}')"
        browser.ask(f"[...{box}.children].forEach((child) => {{ child.style.visibility = 'hidden'; }})")
        browser.ask(f"{box}.style.color = 'transparent'")
        edges = {}
        for side, scrolled in (("start", 0), ("end", 9999)):
            browser.ask(f"{box}.scrollLeft = {scrolled}")
            edges[side] = [browser.edge_of(box, where) for where in ("left", "right")]
        assert edges["start"][0] != edges["end"][0]
        assert edges["start"][1] != edges["end"][1]


def test_a_page_is_read_without_its_script(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.size(*SIZES["phone"])
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["handover"])
        assert browser.ask("document.querySelectorAll('[tabindex=\"-1\"]').length") == 0  # the script did not run
        browser.ask(UNFOLD)
        assert _faults(browser) == []
        words = browser.ask("document.body.innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert [
        part for part in ("What it is", "What was done", "What is proved", "How fast it is") if part not in words
    ] == []


def test_the_page_of_a_processor_says_nothing_of_gpus_and_has_no_empty_columns(
    browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.size(*SIZES["laptop"])
    browser.open(pages["processor"])
    words = browser.ask("document.body.innerText")
    assert [word for word in ("GPU", "CUDA", "NVML", "limit", "Tier", "SM clock", "card") if word in words] == []
    heads = browser.ask("[...document.querySelectorAll('#cases thead tr')].map((row) => row.innerText)")
    assert set(heads) == {"Case\tTime\t±\tRate\tSamples"}


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
