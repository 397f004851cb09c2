"""What a terminal shows: its width, and colours beside the words; a pipe, NO_COLOR and a dumb terminal stay plain."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
BLOCKED = ("doctor", "--facts", "tests/machines/h100-driver-570")
RED, YELLOW, GREEN, BOLD, END = "\x1b[1;31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[0m"


def _environ(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    return {**kept, "TERM": "xterm-256color", **more}


def _at_a_terminal(columns: int, *words: str, code: str = "", **environ: str) -> str:
    """All that a program writes to a real terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    argv = [sys.executable, *(("-c", code) if code else ("-m", "firstlight", *words))]
    with subprocess.Popen(argv, cwd=ROOT, env=_environ(**environ), stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        out = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # the other end is closed: what Linux says at the end of a pty
                break
            if not more:
                break
            out += more
    os.close(ours)
    return out.decode().replace("\r\n", "\n")


def _in_a_pipe(*words: str, **environ: str) -> str:
    argv = [sys.executable, "-m", "firstlight", *words]
    return subprocess.run(
        argv, cwd=ROOT, env=_environ(**environ), capture_output=True, text=True, check=False
    ).stdout  # fmt: skip


def _one_word_is_too_long(line: str, columns: int) -> bool:
    """An address or a path is not cut: it stands behind its label, or behind a backslash alone on its line."""
    return len(line.rsplit(maxsplit=1)[-1]) > columns - 16 and len(line.split()) <= 2


def test_what_blocks_is_red_what_degrades_yellow_and_headings_are_bold() -> None:
    seen = _at_a_terminal(110, *BLOCKED)
    assert f"{RED}BLOCKED{END}: " in seen
    assert f"{YELLOW}  degrades{END}" in seen
    assert f"{BOLD}also{END}\n" in seen
    assert f"{BOLD}options, best first" in seen


def test_healthy_is_green() -> None:
    assert f"{GREEN}healthy{END}: cuInit works" in _at_a_terminal(110, "doctor", "--facts", "tests/machines/h200")


@pytest.mark.parametrize("verb", [BLOCKED, ("plan", *BLOCKED[1:]), ("plan", "--options", *BLOCKED[1:])])
def test_without_colours_it_is_the_same_text(verb: tuple[str, ...]) -> None:
    seen = _at_a_terminal(110, *verb)
    plain = _in_a_pipe(*verb)
    assert "\x1b" in seen
    assert "\x1b" not in plain
    assert ESCAPE.sub("", seen) == plain


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_that_wants_no_colours_gets_none(environ: dict[str, str]) -> None:
    assert "\x1b" not in _at_a_terminal(110, *BLOCKED, **environ)


def test_no_color_that_is_empty_says_nothing() -> None:
    assert f"{RED}BLOCKED" in _at_a_terminal(110, *BLOCKED, NO_COLOR="")


@pytest.mark.parametrize(("columns", "fits"), [(40, 80), (80, 80), (110, 110), (300, 120), (0, 110)])
def test_lines_fit_the_terminal_between_80_and_120_columns(columns: int, fits: int) -> None:
    for verb in ("doctor", "plan"):
        lines = ESCAPE.sub("", _at_a_terminal(columns, verb, "--facts", "tests/machines/v100-torch-cu130")).splitlines()
        assert [line for line in lines if len(line) > fits and not _one_word_is_too_long(line, fits)] == []
        assert max(map(len, lines)) > fits - 12, "the room is used"


def test_columns_stands_for_a_terminal_in_a_pipe() -> None:
    assert _in_a_pipe(*BLOCKED, COLUMNS="80") == ESCAPE.sub("", _at_a_terminal(80, *BLOCKED))
    assert _in_a_pipe(*BLOCKED, COLUMNS="9" * 5000) == _in_a_pipe(*BLOCKED)


def test_text_of_others_has_no_colours_of_its_own() -> None:
    code = (
        "import sys\n"
        "from firstlight.cli.printing import guarded_streams, tell\n"
        "from firstlight.report.layout import Painted, Style\n"
        "with guarded_streams([]):\n"
        "    tell((Painted('\\x1b[32mgood\\x1b[0m', Style.BAD), ' \\x1b[32mtoo\\n'))\n"
    )
    assert _at_a_terminal(80, code=code) == f"{RED}\\x1b[32mgood\\x1b[0m{END} \\x1b[32mtoo\n"


def test_the_screen_has_the_real_paths_to_paste_and_what_is_handed_on_has_pseudonyms(tmp_path: Path) -> None:
    venv = tmp_path / "home/wilhelmina/venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    words = ("doctor", "--want", "torch==2.9.0+cpu", "--python", str(venv))
    page = tmp_path / "page.html"
    environ = {"HOME": str(venv.parent)}
    screen = _in_a_pipe(*words, "--html", str(page), COLUMNS="120", **environ)
    assert f"{venv}/bin/python" in screen
    assert "wilhelmina" not in page.read_text()
    assert "wilhelmina" not in _in_a_pipe(*words, "--json", **environ)
