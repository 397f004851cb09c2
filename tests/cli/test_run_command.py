"""`firstlight run` behaves as a shell does that starts the same command: signals, exit codes, what it says."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

RUN = f"{sys.executable} -m firstlight run --"
# Prints what it was started with; /proc tells what the kernel holds, not what a library makes of it.
SHOW = "grep -e SigIgn -e SigBlk /proc/self/status"


def _bash(line: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "FIRSTLIGHT_COMPAT": "off", **more}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=environ, timeout=60)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of things that can be named as a command; few of them can be started."""
    here = tmp_path_factory.mktemp("commands")
    texts: dict[str, bytes] = {
        "no-first-line": b'echo "$0 $*"; exit 7\n',
        "empty": b"",
        "missing-interpreter": b"#!/no/such/interpreter -x\necho\n",
        "interpreter-not-executable": b"#!/etc/passwd\n",
        "first-line-empty": b"#!\nexit 3\n",
        "damaged-elf": b"\x7fELF\x02\x01\x01junkjunk",
        "binary": b"\0\1\2binary\0",
        "late-zero": b"exit 5\n\0\0\0",
        "not-executable": b"#!/bin/sh\n",
    }
    for name, text in texts.items():
        (here / name).write_bytes(text)
        (here / name).chmod(0o644 if name == "not-executable" else 0o755)
    foreign = bytearray(Path(shutil.which("true") or "").read_bytes())
    foreign[18:20] = b"\xf7\x00"  # BPF: no machine runs it
    (here / "other-machine").write_bytes(foreign)
    own = Path(shutil.which("true") or "").read_bytes()
    (here / "missing-loader").write_bytes(own.replace(b"/ld-linux", b"/ld-nowhe"))
    for name in ("other-machine", "missing-loader"):
        (here / name).chmod(0o755)
    (here / "folder").mkdir()
    (here / "loop").symlink_to("loop")
    (here / "dangling").symlink_to("nowhere")
    os.mkfifo(here / "fifo", 0o755)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(here / "socket"))
    return here


ODD = (
    "no-first-line", "empty", "missing-interpreter", "interpreter-not-executable", "first-line-empty", "damaged-elf",
    "binary", "late-zero", "not-executable", "other-machine", "missing-loader", "folder", "loop", "dangling",
    "socket", "not-there", "empty/below-a-file",
)  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_named_ends_with_the_code_that_bash_gives(place: Path, name: str) -> None:
    theirs = _bash(f"cd {place}; ./{name} one two")
    ours = _bash(f"cd {place}; {RUN} ./{name} one two")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout), ours.stderr
    assert "bug" not in ours.stderr
    if theirs.returncode in (126, 127):
        assert ours.stderr.startswith(f"firstlight: './{name}'"), ours.stderr
        assert ours.stderr.count("\n") == 1


def test_a_fifo_is_refused_and_not_waited_for(place: Path) -> None:
    """bash itself waits here for somebody to write."""
    done = _bash(f"cd {place}; {RUN} ./fifo")
    assert (done.returncode, "permission denied" in done.stderr) == (126, True)


def test_names_are_searched_on_path_as_bash_searches_them(place: Path, tmp_path: Path) -> None:
    for folder, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text(f"#!/bin/sh\necho {folder}\n")
        (tmp_path / folder / "tool").chmod(mode)
    tries = {
        "tool": f"{tmp_path}/first:{tmp_path}/second:{os.environ['PATH']}",
        "not-executable": f"{place}:{os.environ['PATH']}",
        "folder": f"{place}:{os.environ['PATH']}",
        "no-such-tool": os.environ["PATH"],
        "no-first-line": f":{os.environ['PATH']}",  # an empty element is the working folder
        "''": os.environ["PATH"],
    }
    for word, path in tries.items():
        theirs = _bash(f"cd {place}; {word}", PATH=path)
        ours = _bash(f"cd {place}; {RUN} {word}", PATH=path)
        assert ours.returncode == theirs.returncode, (word, ours.stderr, theirs.stderr)
        assert ours.stdout == theirs.stdout


def test_a_reader_that_goes_away_ends_the_command_as_it_ends_it_plain() -> None:
    ours = _bash(f'{RUN} yes | head -1; echo "${{PIPESTATUS[0]}}"')
    assert ours.stdout == "y\n141\n", ours.stderr
    assert ours.stderr == ""


def test_a_file_that_may_not_grow_ends_the_command_as_it_ends_it_plain(tmp_path: Path) -> None:
    line = f"cd {tmp_path}; ulimit -f 1; %s head -c 100000 /dev/zero > big"
    assert _bash(line % "").returncode == _bash(line % RUN).returncode == 128 + 25


@pytest.mark.parametrize("before", ["", "trap '' INT QUIT HUP;", "trap '' TERM USR1;"])
def test_signals_are_ignored_and_blocked_as_they_were(before: str) -> None:
    assert _bash(f"{before} {RUN} {SHOW}").stdout == _bash(f"{before} {SHOW}").stdout != ""


def test_the_environment_is_the_one_that_was_given() -> None:
    """In the C locale Python sets LC_CTYPE for itself, and would hand it on."""
    for given in ("", "LC_CTYPE=C.UTF-8", "LC_ALL=C", "LANG=C"):
        plain = _bash(f"env -i A=1 {given} env")
        ours = _bash(f"env -i A=1 {given} {RUN} /usr/bin/env")
        assert sorted(ours.stdout.splitlines()) == sorted(plain.stdout.splitlines()), given
