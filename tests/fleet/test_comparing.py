"""Recorded machines as hosts: rows, the odd one, the lock in the place of the usual hosts, and exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from firstlight.cli.main import run
from tests.schemas import fits

MACHINES = Path(__file__).parents[1] / "machines"
SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/fleet-1.json").read_text())


def _fleet(folder: Path, **machines: str) -> Path:
    for name, machine in machines.items():
        shutil.copytree(MACHINES / machine, folder / name)
    return folder


def _driver(folder: Path, name: str, driver: str) -> None:
    """The machine with another driver, told by the same places."""
    file = folder / name / "machine.json"
    file.write_text(file.read_text().replace("580.159.04", driver))


def _document(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = run(["fleet", "doctor", "--json", "--identify", *argv])
    document = json.loads(capsys.readouterr().out)
    fits(document, SCHEMA)
    assert document["exit_code"] == code
    return code, {host: row for row in document["rows"] for host in row["hosts"]}


def test_equal_machines_are_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _fleet(tmp_path, a="h200", b="h200", c="h200")
    code, rows = _document("--facts", str(folder), capsys=capsys)
    assert code == 0
    assert rows["a"]["hosts"] == ["a", "b", "c"]


def test_the_odd_driver_is_named_with_what_the_others_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _fleet(tmp_path, a="h200", b="h200", c="h200")
    _driver(folder, "b", "580.126.09")
    code, rows = _document("--facts", str(folder), capsys=capsys)
    assert code == 3
    assert rows["b"]["against"]["hosts"] == ["a", "c"]
    assert {
        "part": "driver",
        "name": "version",
        "change": "changed",
        "here": "580.126.09",
        "there": "580.159.04",
    } in rows["b"]["differs"]


def test_where_no_two_are_equal_none_is_the_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _fleet(tmp_path, a="h200", b="h200", c="h200")
    _driver(folder, "b", "580.126.09")
    _driver(folder, "c", "580.105.08")
    code, rows = _document("--facts", str(folder), capsys=capsys)
    assert code == 3
    assert [row["against"]["unlike"] for row in rows.values()] == [["a", "b", "c"]] * 3
    assert not any(row["differs"] for row in rows.values())


def test_a_host_without_gpus_among_hosts_with_gpus_differs_and_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _fleet(tmp_path / "fleet", a="h200", b="h200", c="h200", d="gpu-less")
    code, rows = _document("--facts", str(folder), capsys=capsys)
    assert (code, rows["d"]["verdict"], next(iter(rows))) == (3, "differs", "d")
    assert rows["d"]["against"] == {"hosts": [], "unlike": [], "with_gpus": ["a", "b", "c"], "lock": "", "class": ""}
    junit = tmp_path / "fleet.xml"
    assert run(["fleet", "doctor", "--facts", str(folder), "--identify", "--junit", str(junit)]) == 3
    said = "no NVIDIA GPU was seen here, and 3 other hosts have GPUs (a,b,c)"
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in junit.read_text()


def test_hosts_without_gpus_are_no_fault_where_no_host_has_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _fleet(tmp_path, a="gpu-less", b="gpu-less")
    code, rows = _document("--facts", str(folder), capsys=capsys)
    assert (code, rows["a"]["verdict"], rows["a"]["hosts"]) == (0, "no GPU", ["a", "b"])


def test_hosts_of_which_the_gpus_have_no_name_are_not_one_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("centos-7", "fedora-44-cuda-12-8", "gpu-less", "a100-no-driver", "secure-boot", "titan-v-does-not-start")
    for name in (*names, "h200"):
        shutil.copytree(MACHINES / name, tmp_path / name)
    _, rows = _document("--facts", str(tmp_path), capsys=capsys)
    assert not any(rows[name]["against"]["unlike"] or rows[name]["against"]["hosts"] for name in names)


def test_a_class_of_a_lock_takes_the_place_of_the_usual_hosts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _fleet(tmp_path / "fleet", a="h200", b="h200", other="gpu-fell-off")
    lock = tmp_path / "firstlight.lock"
    assert run(["lock", "--facts", str(folder / "a"), "--out", str(lock)]) == 0
    capsys.readouterr()
    code, rows = _document("--facts", str(folder), "--lock", str(lock), capsys=capsys)
    assert code == 1  # of the machine that lost a GPU
    assert (rows["a"]["verdict"], rows["a"]["against"]["class"]) == ("healthy", "sm90-x86_64-r580")
    assert rows["a"]["differs"] == []
    assert rows["other"]["against"] == {"hosts": [], "unlike": [], "with_gpus": [], "lock": str(lock), "class": ""}


def test_worst_first_of_1_4_and_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _fleet(tmp_path, a="h200", b="h200", c="h200")
    _driver(folder, "b", "580.126.09")
    (folder / "broken.json").write_text("{")
    (folder / "link.json").symlink_to(folder / "a/machine.json")
    code, rows = _document("--facts", str(folder), capsys=capsys)
    assert code == 4
    assert rows["broken"]["reason"] == "its answer is not JSON"
    assert rows["link"]["reason"] == "its recording is a link; links are not followed"
    shutil.copytree(MACHINES / "cudnn-mix", folder / "blocked")
    assert _document("--facts", str(folder), capsys=capsys)[0] == 1


def test_text_page_and_junit_of_every_recorded_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, junit = tmp_path / "fleet.html", tmp_path / "fleet.xml"
    assert run(["fleet", "doctor", "--facts", str(MACHINES), "--html", str(page), "--junit", str(junit)]) == 1
    said = capsys.readouterr().out
    count = len(list(MACHINES.glob("*/machine.json")))
    assert said.startswith(f"{count} hosts: ")
    assert junit.read_text().count("<testcase ") == count
    assert "cudnn-mix" not in page.read_text().replace("[cudnn-mix]", "").replace('"cudnn-mix"', "").replace(
        '<span class="whole">cudnn-mix</span></td>', ""
    )  # the code of a rule; the host of that name has a pseudonym


def test_a_row_says_how_many_of_the_gpus_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, rows = _document("--facts", str(_fleet(tmp_path, a="l40-seven-of-eight", b="h200")), capsys=capsys)
    assert (rows["a"]["gpus"], rows["b"]["gpus"]) == ("7 of 8 NVIDIA L40", "NVIDIA H200")


def test_without_a_verb_the_help_is_printed_as_it_is_laid_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet"]) == 2
    assert "\n  doctor  look at every host" in capsys.readouterr().err


def test_several_hosts_differ_and_one_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _fleet(tmp_path, a="h200", b="h200", c="h200", d="h200", e="h200")
    _driver(folder, "d", "580.105.08")
    assert run(["fleet", "doctor", "--facts", str(folder)]) == 3
    assert "1 differs" in capsys.readouterr().out
    _driver(folder, "e", "580.126.20")
    page = tmp_path.parent / "fleet.html"
    assert run(["fleet", "doctor", "--facts", str(folder), "--html", str(page)]) == 3
    assert "2 differ," in capsys.readouterr().out
    assert "2 differ," in page.read_text()
