"""Nothing that a command reads is replaced by what it writes, nor is what somebody else wrote."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from firstlight.cli.main import run
from tests.cli.test_given import commands

RUN = Path(__file__).parents[2] / "results/bench-h200-standard.json"
# every command that reads files and writes one, with its own input as the output
LINES = [
    "bench export X --to junit --out X",
    "bench report X --out X",
    "bench report before.json X --out X",
    "bench report X before.json --out X",
    "bench --baseline X --out X",
    "bench --baseline run.json.again --out run.json",
    "bench X.py --out X.py",
    "bench --out X.py X.py",
    "handover --bench X --out X",
    "handover --facts X --out X",
    "handover --before X --out X",
    "handover --verify X --out X",
    "report --from X --out X",
    "lock --evidence X --out X",
    "lock --bench X --out X",
    "verify --require X --junit X",
    "check --lock X --junit X",
    "fleet doctor --inventory X --junit X",
    "fleet doctor --hosts a --lock X --html X",
    "doctor --facts X --html X",
    "profile X.ncu-rep --report X.ncu-rep",
    "libs X --html X",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("X", "before.json", "run.json.again"):
        shutil.copy(RUN, tmp_path / name)
    (tmp_path / "X.py").write_text("CASES = ()\n")
    (tmp_path / "X.ncu-rep").write_bytes(b"NVR\0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", LINES)
def test_no_command_writes_to_what_it_reads(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run(line.split()) == 2
    said = capsys.readouterr().err
    assert "is read by this command, and would be replaced" in said, said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == held


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_nor_by_another_name_of_it(link: object, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(link)
    link("X", "other.json")
    assert run(["bench", "export", "X", "--to", "junit", "--out", "other.json"]) == 2
    assert "(X)" in capsys.readouterr().err
    assert run(["bench", "export", f"../{folder.name}/./X", "--to", "junit", "--out", "X"]) == 2


def test_a_default_name_is_no_exception(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`bench report run.html run.json` would write run.html."""
    assert run(["bench", "report", "X", "--out", "run.html"]) == 0
    shutil.copy("X", "run.json")
    assert run(["bench", "report", "run.html", "run.json"]) == 2
    assert "--out run.html: it is read by this command" in capsys.readouterr().err


def test_one_file_is_not_written_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "doctor", "--hosts", "a", "--html", "page", "--junit", "page"]) == 2
    assert "it would be written twice (--junit page)" in capsys.readouterr().err


def test_every_command_that_writes_a_file_is_tried_here() -> None:
    """A new verb with --out and something to read gets its line; these read no file, or write a folder."""
    writing = {
        " ".join(words)
        for words, command in commands()
        if any({"--out", "--html", "--junit", "--report"} & set(each.opts) for each in command.params)
    }
    tried = {name for name in writing for line in LINES if line.startswith(f"{name} ")}
    assert writing - tried == {"emit", "bundle", "kernels autotune"}


@pytest.mark.parametrize(
    ("line", "is_not"),
    [
        ("bench report X --out notes", "a page that firstlight wrote"),
        ("bench export X --to junit --out notes", "a JUnit file that firstlight wrote"),
        ("bench export X --to junit --out before.json", "a JUnit file that firstlight wrote"),
        ("bench export X --to openmetrics --out notes", "a metrics file that firstlight wrote"),
        ("bench --device cpu --out notes", "a run that firstlight measured"),
        ("verify --junit notes", "a JUnit file that firstlight wrote"),
        ("doctor --facts example:h100-driver-570 --html notes", "a page that firstlight wrote"),
        ("facts --facts example:h100-driver-570 --write-zipapp notes", "a program that firstlight wrote"),
    ],
)
def test_what_a_person_wrote_is_not_replaced(
    line: str, is_not: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "notes").write_text("<h1>what I saw of firstlight</h1>\n")
    assert run(line.split()) == 2
    assert f"is there already, and is not {is_not}; name another file" in capsys.readouterr().err
    assert (folder / "notes").read_text() == "<h1>what I saw of firstlight</h1>\n"


@pytest.mark.parametrize(
    "line",
    [
        "bench report X --out page",
        "bench export X --to junit --out page",
        "bench export X --to pytest-benchmark --out page",
        "bench export X --to github-action-benchmark --out page",
        "bench export X --to openmetrics --out page",
        "doctor --facts example:h100-driver-570 --html page",
        "facts --facts example:h100-driver-570 --write-zipapp page",
    ],
)
def test_what_we_wrote_before_is_and_so_is_an_empty_file(line: str, folder: Path) -> None:
    (folder / "page").touch()
    first = run(line.split())
    held = (folder / "page").read_bytes()
    assert held
    assert run(line.split()) == first
    assert len((folder / "page").read_bytes()) == len(held)


def test_a_document_taken_out_of_a_page_replaces_one(folder: Path) -> None:
    assert run(["bench", "report", "X", "--out", "page.html"]) == 0
    for _ in range(2):
        assert run(["report", "--from", "page.html", "--out", "again.json"]) == 0


def test_a_folder_may_have_the_name_of_the_kind_of_file_that_is_written_into_it(folder: Path) -> None:
    """The example of `emit kit` in its own help."""
    words = ["emit", "kit", "--for", "H100, driver >= 580", "--base", "none", "--out", "kit"]
    for _ in range(2):
        assert run(words) == 0
    assert (folder / "kit/Makefile").is_file()
