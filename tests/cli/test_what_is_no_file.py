"""A FIFO, a device, a socket or a folder where a file is expected is refused at once; pipes of a shell are read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight import examples
from firstlight.apply.saved_files import SavedFiles
from firstlight.errors import BadInput, CouldNotAct
from firstlight.libraries.wheel_machine import Wheel
from firstlight.ways.step import FileChange
from tests.apply.acting import acting

EXAMPLE = Path(examples.__file__).parent / "h100-driver-570.json"
LIMIT_S = 60
READERS = (
    ("doctor", "--facts"), ("plan", "--facts"), ("lint",), ("explain",), ("libs",), ("verify", "--require"),
    ("bench", "compare"), ("report", "--from"), ("profile", "--tiers"), ("check-claim", "--facts"),
)  # fmt: skip


def _firstlight(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firstlight", *words], capture_output=True, text=True, timeout=LIMIT_S, cwd="/",
        stdin=subprocess.DEVNULL, env={**os.environ, **more},
    )  # fmt: skip


def _make(kind: str, path: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    else:
        path.symlink_to(kind)


@pytest.mark.parametrize("reader", READERS, ids="-".join)
def test_a_fifo_nobody_writes_to_is_refused_at_once(tmp_path: Path, reader: tuple[str, ...]) -> None:
    _make("fifo", tmp_path / "it.json")
    done = _firstlight(
        *reader, str(tmp_path / "it.json"), *([str(tmp_path / "it.json")] if "compare" in reader else [])
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["socket", "/dev/zero", "/dev/full", "/"])
def test_other_things_are_refused_with_what_they_are(tmp_path: Path, kind: str) -> None:
    _make(kind, tmp_path / "facts.json")
    done = _firstlight("doctor", "--facts", str(tmp_path / "facts.json"))
    assert done.returncode == 2, done.stderr


def test_a_pipe_that_a_shell_hands_over_is_read() -> None:
    command = f"{sys.executable} -m firstlight %s --facts <(cat {EXAMPLE})"
    for verb in ("doctor", "plan"):  # plan asks twice, and a pipe says it once
        done = subprocess.run(["bash", "-c", command % verb], capture_output=True, text=True, timeout=LIMIT_S, cwd="/")
        assert "H100" in done.stdout, done.stderr
    piped = subprocess.run(
        [sys.executable, "-m", "firstlight", "doctor", "--facts", "/dev/stdin"], input=EXAMPLE.read_text(),
        capture_output=True, text=True, timeout=LIMIT_S, cwd="/",
    )  # fmt: skip
    assert "H100" in piped.stdout, piped.stderr


def test_a_fifo_in_the_place_of_a_target_file_is_named_and_left(tmp_path: Path) -> None:
    _make("fifo", tmp_path / "rc")
    saved: SavedFiles = acting(tmp_path).saved
    with pytest.raises(CouldNotAct, match=r"rc could not be read: it is a named pipe \(FIFO\), not a file"):
        saved.change(FileChange(str(tmp_path / "rc"), "", "text"), run=1, step="01")
    with pytest.raises(CouldNotAct, match="named pipe"):
        saved.keep(str(tmp_path / "rc"), run=1, step="01")


def test_a_fifo_named_as_a_wheel_is_no_wheel(tmp_path: Path) -> None:
    _make("fifo", tmp_path / "torch-2.9.0-py3-none-any.whl")
    with pytest.raises(BadInput, match="not a wheel"):
        Wheel(str(tmp_path / "torch-2.9.0-py3-none-any.whl"))


@pytest.mark.parametrize(("environ", "says"), [
    ({"HOME": "."}, "HOME is '.': accepted is an absolute path"),
    ({"HOME": "a/b"}, "HOME is 'a/b': accepted is an absolute path"),
    ({"HOME": ".", "FIRSTLIGHT_STATE_DIR": "/var/tmp/no-such"}, "HOME is '.': accepted is an absolute path"),
    ({"FIRSTLIGHT_STATE_DIR": "tmp/state"}, "FIRSTLIGHT_STATE_DIR is 'tmp/state': accepted is an absolute path"),
    ({"FIRSTLIGHT_STATE_DIR": "/dev/null/x"}, "it is a device, not a folder"),
    ({"FIRSTLIGHT_STATE_DIR": "/" + "a" * 300}, "File name too long"),
])  # fmt: skip
def test_a_state_folder_that_cannot_be_is_bad_input_and_does_not_hang(environ: dict[str, str], says: str) -> None:
    for words in (("apply", "--yes", "--no-verify"), ("undo", "--yes")):
        done = _firstlight(*words, **environ)
        assert done.returncode == 2, done.stderr
        assert says in done.stderr


def test_a_relative_xdg_folder_is_ignored_as_its_specification_says(tmp_path: Path) -> None:
    done = _firstlight("undo", "--json", HOME=str(tmp_path), XDG_STATE_HOME="somewhere", FIRSTLIGHT_STATE_DIR="")
    assert done.returncode == 0, done.stderr
    assert f'"{tmp_path}/.local/state/firstlight/' in done.stdout
