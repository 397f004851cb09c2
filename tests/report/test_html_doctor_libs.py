"""A diagnosis and a chain of libraries as pages with the look of the benchmark report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.report.html.embedded import embed, read_documents
from tests.report.test_html_report import Seen

MACHINES = Path(__file__).parents[1] / "machines"


def _firstlight(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "firstlight", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("machine", "verdict", "code"),
    [
        ("h100-driver-570", "Blocked: The GPU driver is too old for the installed torch wheel.", 1),
        ("h200-healthy", "Nothing keeps CUDA from working here", 0),
    ],
)
def test_doctor_writes_a_page_whose_heading_is_the_verdict_and_whose_data_is_the_json_document(
    tmp_path: Path, machine: str, verdict: str, code: int
) -> None:
    page = tmp_path / "doctor.html"
    done = _firstlight("doctor", "--facts", str(MACHINES / machine), "--html", str(page), "--json")
    assert done.returncode == code, done.stderr
    text = page.read_text()
    heading = re.search(r"<h1>.*?</h1>", text)
    assert heading is not None
    assert verdict in heading[0]
    assert Seen(text).open == []
    assert read_documents(str(page)) == (json.loads(done.stdout),)


def test_every_finding_stands_on_the_page_with_its_code(tmp_path: Path) -> None:
    page = tmp_path / "doctor.html"
    done = _firstlight("doctor", "--facts", str(MACHINES / "h100-driver-570"), "--html", str(page), "--json")
    codes = [finding["code"] for finding in json.loads(done.stdout)["findings"]]
    assert len(codes) > 3
    assert page.read_text().count("<article") == len(codes)
    assert [code for code in codes if f", {code}</span>" not in page.read_text()] == []


def test_the_first_way_out_stands_on_the_page_with_its_commands_as_code(tmp_path: Path) -> None:
    page = tmp_path / "doctor.html"
    _firstlight("doctor", "--facts", str(MACHINES / "h100-driver-570"), "--html", str(page))
    boxes = re.findall(r'<pre class="commands" tabindex="0">(.*?)</pre>', page.read_text(), re.S)
    assert boxes[0].startswith("mkdir -p ")
    assert '<code>firstlight plan <span class="whole">--options</span></code> lists them all' in page.read_text()


def test_libs_draws_the_chain_and_marks_what_is_missing(tmp_path: Path) -> None:
    page = tmp_path / "libs.html"
    done = _firstlight("libs", "--facts", str(MACHINES / "thor-missing-libraries"), "--html", str(page), "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    text = page.read_text()
    assert "torch 2.9.0 does not load: 3 shared libraries are missing." in text
    assert text.count('class="node gone"') == len(document["missing"]) == 3
    asked = sum(len(each["requested_by"]) for each in document["missing"])
    assert text.count('class="edge gone"') == asked
    assert Seen(text).open == []
    assert read_documents(str(page)) == (document,)


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_looked_at(tmp_path: Path) -> None:
    done = _firstlight("doctor", "--facts", str(MACHINES / "gpu-less"), "--html", str(tmp_path / "no" / "x.html"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--html" in done.stderr
    assert "there is no folder" in done.stderr


def test_a_disk_that_is_full_names_the_option_and_is_no_bug_of_ours() -> None:
    done = _firstlight("doctor", "--facts", str(MACHINES / "gpu-less"), "--html", "/dev/full")
    assert done.returncode == 2
    assert done.stderr == "firstlight: --html /dev/full: no space left on device; the result is lost\n"


def test_a_page_of_an_earlier_form_is_refused_with_what_to_do(tmp_path: Path) -> None:
    page = tmp_path / "old.html"
    page.write_text(embed(({"schema": "firstlight.diagnosis/1", "findings": []},)))
    done = _firstlight("report", "--from", str(page))
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds firstlight.diagnosis/1; this firstlight reads firstlight.diagnosis/2" in done.stderr
    assert "firstlight doctor --html FILE" in done.stderr


def test_html_and_fix_do_not_go_together(tmp_path: Path) -> None:
    done = _firstlight("libs", "--fix", "--html", str(tmp_path / "x.html"))
    assert done.returncode == 2
    assert "--html shows what is there; it cannot be combined with --fix" in done.stderr
