"""Journals that are chained well and say something odd are bad input; nothing outside of what was done is touched."""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import firstlight.apply
from firstlight.apply.journal import read_journal
from firstlight.apply.record_shapes import EVENTS
from firstlight.apply.runs import runs_of
from firstlight.apply.session import Asked, act
from firstlight.errors import FirstlightError
from firstlight.report.undo_text import list_text, run_text
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import acting, home_with_files, plan_for, step, undo_in

SEED = int(os.environ.get("JOURNAL_SEED", "20261116"))
JOURNALS = 300
GOOD_ENDINGS = (1, 2)
Node = tuple[Any, Any]  # a list or an object, and the index or name in it


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory where there is one: what is tested is not the disk."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="firstlight-damaged-", dir=base))
    yield folder
    shutil.rmtree(folder)


def _steps(folder: Path) -> tuple[Step, ...]:
    made = str(folder / "home/made")
    return (
        *plan_for(folder / "home"),
        step("04-venv", kind=StepKind.VENV, commands=(("mkdir", "-p", made),), undo=(("rm", "-rf", made),),
             done_when=(Condition(CheckKind.FILE_EXISTS, made),)),
    )  # fmt: skip


def _applied(folder: Path) -> list[dict[str, Any]]:
    """A home where a plan was carried out, and what its journal says."""
    home_with_files(folder)
    (folder / "outside").mkdir()
    (folder / "outside/file").write_text("somebody's\n")
    (folder / "outside/empty").mkdir()
    doing = acting(folder)
    act(doing, Asked(_steps(folder), "d" * 16, "o", "t"))
    doing.journal.close()
    return [json.loads(line) for line in (folder / "state/journal.jsonl").read_text().splitlines()]


def _write(folder: Path, records: list[Any]) -> None:
    """The records, chained anew."""
    last, out = "", b""
    for record in records:
        if isinstance(record, dict):
            record["before"] = last
        line = json.dumps(record, sort_keys=True).encode() + b"\n"
        last, out = hashlib.sha256(line).hexdigest()[:16], out + line
    (folder / "state/journal.jsonl").write_bytes(out)


def _nodes(value: Any) -> Iterator[Node]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in list(pairs):
        yield value, key
        yield from _nodes(below)


def _mutate(records: list[dict[str, Any]], outside: str, dice: random.Random) -> str:
    """Change one thing somewhere in the records; says what."""
    places = list(_nodes(records))
    owner, key = dice.choice(places)
    value = owner[key]
    others: list[Any] = [
        None, True, -1, 0, 2**70, 1.5, float("nan"), "", "x", "/", "..", "\x1b[2J", "\ud800", [], {}, [None], {"a": 1},
        f"{outside}/file", f"{outside}/empty", outside, f"{outside}/new", "/" + "a" * 5000,
    ]  # fmt: skip
    if isinstance(value, str) and dice.random() < 0.5:
        others = [
            f"{outside}/file",
            f"{outside}/new",
            outside,
            value + "x",
            value[:-1],
            value.replace("home", "outside"),
        ]
    kind = dice.random()
    if kind < 0.15:
        del owner[key]
    elif kind < 0.3 and isinstance(owner, list):
        owner.insert(key, copy.deepcopy(dice.choice(places)[0]))
    else:
        owner[key] = dice.choice(others)
    return f"{key!r}: {str(value)[:60]!r}"


def _outside(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = (folder / "outside").rglob("*")
    return {str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"") for path in found}


def _ends_well(work: Callable[[], object]) -> bool:
    """Whether it ended, or was refused with an exit code that means bad input or a failed step."""
    ended: list[FirstlightError] = []
    try:
        work()
    except FirstlightError as error:
        ended.append(error)
    assert all(error.exit_code in GOOD_ENDINGS for error in ended), ended
    return not ended


def _shown(folder: Path) -> None:
    runs = runs_of(read_journal(str(folder / "state/journal.jsonl")))
    (list_text(runs) + "".join(map(run_text, runs))).encode()


def test_three_hundred_damaged_journals_are_refused_or_taken_back_and_touch_nothing_else(place: Path) -> None:
    whole = place / "whole"
    whole.mkdir()
    records = _applied(whole)
    dice = random.Random(SEED)
    refused = 0
    for number in range(JOURNALS):
        shutil.copytree(whole, place / "now", symlinks=True)
        moved = json.loads(json.dumps(records).replace(str(whole), str(place / "now")))
        said = "; ".join(_mutate(moved, str(place / "now/outside"), dice) for _ in range(dice.choice((1, 1, 1, 2, 3))))
        _write(place / "now", moved)
        before = _outside(place / "now")
        about = f"seed {SEED}, journal {number}: {said}"
        print(about)  # seen where the next lines fail
        refused += not _ends_well(lambda: _shown(place / "now"))
        _ends_well(lambda: undo_in(place / "now"))
        assert _outside(place / "now") == before, about
        shutil.rmtree(place / "now")
    assert refused > JOURNALS / 3, "most changes are noticed by reading alone"


def _back_of_the_venv(records: list[dict[str, Any]], words: list[str]) -> None:
    records[0]["about"]["steps"][3]["back"][0]["words"] = words


@pytest.mark.parametrize("path", ["/", "/root", "{home}", "{folder}", "{folder}/state", "{folder}/outside", "relative",
                                  "{home}/../outside", ""])  # fmt: skip
def test_a_folder_that_the_step_did_not_make_is_never_removed(place: Path, path: str) -> None:
    records = _applied(place)
    _back_of_the_venv(records, [path.format(home=place / "home", folder=place)])
    _write(place, records)
    before = _outside(place)
    with pytest.raises(FirstlightError) as refused:
        undo_in(place)
    assert refused.value.exit_code == 2
    assert _outside(place) == before
    assert (place / "home/marker").exists(), "nothing was taken back before it was refused"


def test_a_command_line_as_text_is_refused_in_a_journal_of_today(place: Path) -> None:
    records = _applied(place)
    records[0]["about"]["steps"][3]["back"] = [{"kind": "stored", "words": ["touch", "/x"], "sudo": False}]
    _write(place, records)
    with pytest.raises(FirstlightError, match=r"line 1: run 1: step\.back: a command line as text"):
        undo_in(place)


def test_a_saved_file_that_the_step_does_not_change_is_refused_with_its_line(place: Path) -> None:
    records = _applied(place)
    saved = next(record for record in records if record["event"] == "file-saved")
    saved["about"].update(path=str(place / "outside/file"), written="")
    _write(place, records)
    with pytest.raises(FirstlightError, match=rf"line {saved['number']}: '01-edit' does not change"):
        undo_in(place)
    assert (place / "outside/file").read_text() == "somebody's\n"


def test_a_kind_of_record_that_is_not_known_is_refused_with_its_line(place: Path) -> None:
    records = _applied(place)
    begun = next(record for record in records if record["event"] == "step-begun")
    begun["event"] = "step-foreseen"
    _write(place, records)
    with pytest.raises(
        FirstlightError, match=rf"line {begun['number']}: 'step-foreseen' is not a record that this firstlight knows"
    ) as told:
        undo_in(place)
    assert told.value.exit_code == 2
    assert (place / "home/marker").exists(), "nothing was taken back before it was refused"


def test_every_kind_of_record_that_is_written_can_be_read_back() -> None:
    written = {
        getattr(import_module(f"firstlight.apply.{path.stem}"), call.args[0].id)
        for path in Path(firstlight.apply.__path__[0]).glob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("journal.add")
        if isinstance(call.args[0], ast.Name) and call.args[0].id.isupper()
    }
    assert len(written) > 15
    assert written <= EVENTS
