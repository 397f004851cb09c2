"""One page that goes with a machine: each part is joined, missing ones are named, and nobody's name is on it."""

from __future__ import annotations

import html
import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from firstlight.cli.kept import keep
from firstlight.cli.main import run
from firstlight.frozen import dataclass
from firstlight.report.html.embedded import read_documents
from firstlight.ways.step import StepKind
from tests.report.handed import MACHINES, PROVED_AT, plan_of, proof_text, write_journal
from tests.report.runs_to_show import H200
from tests.report.test_html_report import Seen
from tests.schemas import fits
from tools.generate import SCHEMAS

HEALTHY, STALE = MACHINES / "h200-healthy", MACHINES / "h200-compat-stale"


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def _handover(folder: Path, *words: str) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("FIRSTLIGHT_STATE_DIR", str(folder / "state"))
        patch.chdir(folder)
        code = run(["handover", *words])
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """An H200 with every part: an earlier look, a journal, a proof and a run."""
    folder = tmp_path_factory.mktemp("whole")
    journal = write_journal(folder / "journal", "h200-compat-stale")
    (folder / "verify.json").write_text(proof_text("h200-healthy"))
    words = ("--facts", str(HEALTHY), "--before", str(STALE), "--journal", str(journal), "--bench", str(H200))
    done = _handover(folder, *words, "--verify", "verify.json", "--rate", "2.69", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder / "handover.html"


def test_the_document_fits_its_schema(whole: tuple[dict[str, Any], Path]) -> None:
    schema = json.loads((SCHEMAS / "handover-1.json").read_text())
    fits(whole[0], schema)


def test_every_part_is_on_the_page(whole: tuple[dict[str, Any], Path]) -> None:
    document, page = whole
    text = page.read_text()
    assert Seen(text).open == []
    assert document["verdict"] == "Ready: 16 checks proved."
    assert re.findall(r'<section id="(\w+)"', text) == [
        "is", "was", "now", "done", "proved", "speed", "roofline", "families", "cases", "changed", "again",
    ]  # fmt: skip
    assert [fault["code"] for fault in document["was_wrong"]] == ["compat-stale", "cuinit-fails"]
    assert document["is_wrong"] == []
    (taken,) = document["done"]
    assert (taken["state"], taken["at"]) == ("done", "2026-11-15T04:00:00Z")
    assert all(step["seconds"] == 42.5 and step["commands"] for step in taken["steps"])
    assert document["cost"].endswith(" at 2.69 an hour")
    assert document["proved"][0]["started_at"] == PROVED_AT
    assert document["speed"][0]["verdict"] == "This H200 runs as it should; 3 things to look at."
    libcuda = next(each for each in document["changed"] if each["what"] == "libcuda")
    assert "gives 803" in libcuda["then"]
    assert "cuInit works" in libcuda["now"]


def test_room_on_disks_is_no_change(tmp_path: Path) -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(["facts", "--facts", str(HEALTHY), "--json"]) == 0
    facts = json.loads(out.getvalue())
    for name, free in (("before", 90 << 30), ("now", 50 << 30)):
        mount = {"value": {"point": "/", "kind": "ext4", "device": "/dev/vda", "read_only": False}, "seen_in": "a test"}
        facts["resources"]["disks"] = [{"path": "/", "total_bytes": 100 << 30, "free_bytes": free, "mount": mount}]
        (tmp_path / f"{name}.json").write_text(json.dumps(facts))
    done = _handover(tmp_path, "--facts", "now.json", "--before", "before.json", "--json")
    document = json.loads(done.stdout)
    assert document["changed"] == []
    assert "50.0 GiB free on /" in {line for each in document["what_it_is"] for line in each["text"].splitlines()}


def test_the_parts_can_be_taken_out_of_the_page(whole: tuple[dict[str, Any], Path]) -> None:
    document, page = whole
    held = read_documents(str(page))
    assert held[0] == document
    assert [each["schema"] for each in held] == [
        "firstlight.handover/1", "firstlight.facts/1", "firstlight.verify/1", "firstlight.bench/1",
    ]  # fmt: skip
    assert "--number 4 --out bench.json" in page.read_text()


def test_the_commands_of_the_page_are_about_this_page(tmp_path: Path) -> None:
    (tmp_path / "verify.json").write_text(proof_text("h200-healthy"))
    words = ("--facts", str(HEALTHY), "--before", str(STALE), "--verify", "verify.json", "--bench", str(H200))
    (tmp_path / "carla").mkdir()
    assert _handover(tmp_path, *words, "--out", str(tmp_path / "carla" / "h200.html")).returncode == 0
    text = html.unescape((tmp_path / "carla" / "h200.html").read_text())
    again = f"--before {STALE.name} --verify verify.json --bench {H200.name} --out h200.html"
    assert f">firstlight handover --facts {HEALTHY.name} {again}</pre>" in text
    assert "firstlight report --from h200.html --number 4 --out bench.json" in text
    assert ">--number</span> 4</code> (1 to 4)." in text  # the footer
    assert "carla" not in text  # where the page was written is not on it


def test_a_missing_part_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    done = _handover(tmp_path)  # this machine, of which nothing is kept yet
    assert done.returncode == 0, done.stderr
    for part, make in (
        ("what was done", "firstlight apply"),
        ("what is proved", "firstlight verify"),
        ("how fast it is", "firstlight bench"),
    ):
        assert f"missing     {part}: " in done.stdout
        item = re.search(rf"<strong>{part}</strong>.*?</pre>", (tmp_path / "handover.html").read_text(), re.S)
        assert item is not None
        assert make in item[0]


def test_parts_of_this_machine_are_not_mixed_into_the_page_of_another(tmp_path: Path) -> None:
    done = _handover(tmp_path, "--facts", str(HEALTHY), "--json")
    missing = json.loads(done.stdout)["missing"]
    assert [each["why"] for each in missing] == [
        f"no {name} was given for this page (--{option})"
        for name, option in (("journal", "journal"), ("proof", "verify"), ("measurement", "bench"))
    ]


def test_where_there_is_no_gpu_the_processor_is_to_be_measured(tmp_path: Path) -> None:
    done = _handover(tmp_path, "--facts", str(MACHINES / "gpu-less"), "--json")
    (bench,) = [each for each in json.loads(done.stdout)["missing"] if each["part"] == "how fast it is"]
    assert bench["make"].startswith("firstlight bench --device cpu --out bench.json\n")


@pytest.mark.parametrize("name", ["verify", "bench"])
def test_a_kept_result_that_is_damaged_is_named_as_missing(tmp_path: Path, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTLIGHT_STATE_DIR", str(tmp_path / "state"))
        keep(name, "{")
    done = _handover(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "what was kept on this machine" in done.stdout


def test_hostile_words_in_a_proof_stay_text(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)> `<img src=y>`"
    (tmp_path / "verify.json").write_text(proof_text("h200-healthy").replace("as recorded on an H200", hostile))
    assert _handover(tmp_path, "--facts", str(HEALTHY), "--verify", "verify.json").returncode == 0
    seen = Seen((tmp_path / "handover.html").read_text())
    assert seen.open == []
    assert [tag for tag, _ in seen.elements if tag == "img"] == []


@pytest.mark.parametrize(
    ("machine", "failed", "verdict"),
    [
        ("h100-driver-570", (), "Not ready: The GPU driver is too old for the installed torch wheel."),
        ("h200-healthy", ("gpus", "cublas"), "Not ready: 2 checks failed (gpus, cublas)."),
    ],
)
def test_a_machine_that_is_not_ready_ends_1(
    tmp_path: Path, machine: str, failed: tuple[str, ...], verdict: str
) -> None:
    (tmp_path / "verify.json").write_text(proof_text(machine, failed=failed))
    done = _handover(tmp_path, "--facts", str(MACHINES / machine), "--verify", "verify.json")
    assert (done.returncode, done.stdout.partition("\n")[0]) == (1, verdict)
    assert ("What to do: " in (tmp_path / "handover.html").read_text()) == (not failed)  # a finding has a way out


def test_what_to_do_names_the_files_that_its_commands_need(tmp_path: Path) -> None:
    done = _handover(tmp_path, "--facts", str(MACHINES / "h100-driver-570"), "--json")
    (way,) = json.loads(done.stdout)["way_out"]
    plan = plan_of("h100-driver-570")
    for told, step in zip(way["steps"], plan.steps, strict=True):
        assert [line.partition(",")[0] for line in told["files"]] == [change.path for change in step.files]
        assert ("you do this" in told["marks"]) == (step.kind is StepKind.MANUAL)
    text = html.unescape((tmp_path / "handover.html").read_text())
    for change in (change for step in plan.steps for change in step.files):
        assert f"<code>{change.path}, " in text
    assert ">firstlight apply</pre>" in text.partition("What to do: ")[2].partition("<ol")[0]  # it writes them


def test_what_was_applied_after_the_proof_is_said_to_have_changed_it(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "journal", "h200-compat-stale", day=16)
    (tmp_path / "verify.json").write_text(proof_text("h200-healthy"))
    words = ("--facts", str(HEALTHY), "--journal", str(journal), "--verify", "verify.json", "--json")
    document = json.loads(_handover(tmp_path, *words).stdout)
    assert document["verdict"] == "Proved, and changed since: prove it again before you rely on it."
    assert [each["what"] for each in document["changed"]] == ["run 1 of `firstlight apply`"]


def test_another_torch_than_the_proved_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "verify.json").write_text(proof_text("h200-healthy").replace("torch 2.11.0+cu130", "torch 2.9.0+cu128"))
    done = _handover(tmp_path, "--facts", str(HEALTHY), "--verify", "verify.json", "--json")
    (change,) = json.loads(done.stdout)["changed"]
    assert "torch 2.9.0+cu128" in change["then"]
    assert "torch 2.11.0+cu130" in change["now"]
    assert change["since"] == f"it was proved, {PROVED_AT}"


_LINE = {"format": 2, "number": 1, "at": "2026-11-15T04:00:00Z", "event": "run-begun", "about": {}, "before": "x"}
_EDITED = json.dumps(_LINE) + "\n"
BAD = {
    "not JSON": ("--verify", "{", "not JSON; accepted: what `firstlight verify --json`"),
    "another document": ("--verify", '{"schema": "firstlight.facts/1"}', "schema is 'firstlight.facts/1'; accepted"),
    "a field is gone": ("--verify", '{"schema": "firstlight.verify/1"}', "started_at"),
    "empty": ("--verify", "", "empty; accepted"),
    "an empty journal": ("--journal", "", "empty; accepted: a journal.jsonl"),
    "no journal": ("--journal", "{}\n", "not a line of a firstlight journal"),
    "a journal that was edited": ("--journal", _EDITED, "Was the journal edited? Give a journal.jsonl as"),
    "no run": ("--bench", "[]", "part"),
    "another machine's proof": (
        "--verify",
        proof_text("h100-driver-570"),
        "comes from another machine: it has NVIDIA H100",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_is_said_in_one_line_and_nothing_is_written(tmp_path: Path, fault: str) -> None:
    option, text, said = BAD[fault]
    (tmp_path / "part").write_text(text)
    done = _handover(tmp_path, "--facts", str(HEALTHY), option, "part")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert "move the journal away" not in done.stderr  # that is for this machine's own
    assert not (tmp_path / "handover.html").exists()


@pytest.mark.parametrize("rate", ["nan", "inf", "1e400", "-1"])
def test_a_price_that_is_no_price_is_refused(tmp_path: Path, rate: str) -> None:
    done = _handover(tmp_path, "--facts", str(HEALTHY), "--rate", rate)
    assert done.returncode == 2
    assert "accepted is the price of an hour" in done.stderr


def test_a_run_of_another_card_is_refused(tmp_path: Path) -> None:
    done = _handover(tmp_path, "--facts", str(MACHINES / "h100-driver-570"), "--bench", str(H200))
    assert done.returncode == 2
    assert "comes from another machine: it has NVIDIA H200; the facts have NVIDIA H100 80GB HBM3" in done.stderr


OTHERS = {
    "an earlier look at another card": ("--before", "a100-faulty-memory", {}, "it has 4x NVIDIA A100"),
    "a run on another processor": (
        "--bench",
        "gpu-less",
        {"cpu": "AMD Ryzen 9"},
        "AMD Ryzen 9; the facts have AMD EPYC",
    ),
    "a run on another architecture": ("--bench", "h200-healthy", {"machine": "aarch64"}, "it has aarch64; the facts"),
}


@pytest.mark.parametrize("which", OTHERS)
def test_a_document_of_another_machine_is_refused(tmp_path: Path, which: str) -> None:
    option, machine, host, said = OTHERS[which]
    facts, part = (HEALTHY, str(MACHINES / machine)) if option == "--before" else (MACHINES / machine, "run.json")
    (tmp_path / "run.json").write_text(_processor_run(**host))
    done = _handover(tmp_path, "--facts", str(facts), option, part)
    assert done.returncode == 2
    assert "comes from another machine: " in done.stderr
    assert said in done.stderr


def test_a_run_of_the_processor_does_not_stand_for_the_gpu(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(_processor_run(os="Debian GNU/Linux 12 (bookworm)"))
    document = json.loads(_handover(tmp_path, "--facts", str(HEALTHY), "--bench", "run.json", "--json").stdout)
    assert "how fast the GPU is" in [each["part"] for each in document["missing"]]
    (system,) = [each for each in document["changed"] if each["what"] == "the system"]
    assert (system["then"], system["now"]) == ("Debian GNU/Linux 12 (bookworm)", "Ubuntu 22.04.5 LTS")


def _processor_run(**host: str) -> str:
    """A run without a GPU."""
    run = json.loads(H200.read_text())
    run["gpus"], run["cases"] = [], []
    run["host"].update(host)
    return json.dumps(run)


def test_a_proof_of_another_python_than_torch_was_installed_for_is_said(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "journal", "h200-no-torch")
    (tmp_path / "verify.json").write_text(proof_text("h200-healthy"))  # with /usr/bin/python3
    words = ("--facts", str(HEALTHY), "--journal", str(journal), "--verify", "verify.json", "--json")
    document = json.loads(_handover(tmp_path, *words).stdout)
    assert document["verdict"] == "Proved, but not with the Python that torch was installed for."
    (change,) = document["changed"]
    assert change["then"].startswith("/opt/venv/bin/python3: ")
    assert change["now"] == "proved is /usr/bin/python3"


@pytest.mark.parametrize(
    ("one", "other"),
    [("/opt/venv/bin/python3", "/opt/venv/bin/python"), ("/home/carla/v/bin/python", "/home/user-1/v/bin/python3")],
)
def test_two_names_of_one_python_are_one(tmp_path: Path, one: str, other: str) -> None:
    journal = write_journal(tmp_path / "journal", "h200-no-torch")
    journal.write_text(_chained(journal.read_text().replace("/opt/venv/bin/python3", one)))
    (tmp_path / "verify.json").write_text(proof_text("h200-healthy").replace("/usr/bin/python3", other))
    words = ("--facts", str(HEALTHY), "--journal", str(journal), "--verify", "verify.json", "--json")
    assert json.loads(_handover(tmp_path, *words).stdout)["changed"] == []


def test_names_and_secrets_of_a_journal_do_not_reach_the_page(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "journal", "h200-compat-stale")
    lines = journal.read_text().replace(
        "as it should be", "/home/carla/x https://carla:hunter22@index.corp.example/simple"
    )
    journal.write_text(_chained(lines))
    done = _handover(tmp_path, "--facts", str(HEALTHY), "--journal", str(journal), "--json")
    both = done.stdout + (tmp_path / "handover.html").read_text()
    assert "/home/user-" in both
    assert [word for word in ("carla", "hunter22", "corp.example") if word in both] == []


def _chained(text: str) -> str:
    """The lines with the digests that follow from them."""
    import hashlib

    out, before = "", ""
    for line in text.splitlines():
        whole = json.dumps({**json.loads(line), "before": before}, ensure_ascii=True, sort_keys=True) + "\n"
        out, before = out + whole, hashlib.sha256(whole.encode()).hexdigest()[:16]
    return out
