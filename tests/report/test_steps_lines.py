"""Commands as they are printed, read back by real shells; files that are changed, in one line."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.report.layout import drawn_for
from firstlight.report.steps_lines import command_lines, folded, steps_in_short
from firstlight.ways.step import FileChange, Step, StepKind
from tests.shell_words import SHELLS, words_of

LONG = ("/opt/venv/bin/python", "-m", "pip", "install", "torch==2.9.0+cu128", "torchvision==0.24.0+cu128",
        "cuda-toolkit[nvcc]==13.0.2", "--index-url", "https://download.pytorch.org/whl/cu128", "it's", "", "$HOME",
        "a b", "~/x", "#no", "!!", "back\\slash", "two\nlines")  # fmt: skip
_WORDS = st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40), min_size=1, max_size=20).map(
    tuple
)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("columns", [80, 110, 120])
def test_a_command_that_is_pasted_has_the_words_it_was_made_from(shell: str, columns: int) -> None:
    with drawn_for(columns):
        printed = command_lines(LONG, 5)
    assert words_of(shell, [printed]) == [LONG]
    lines = printed.split("\n")
    assert all(len(line) <= columns for line in lines)
    assert len([line for line in lines if line.endswith(" \\")]) >= 2


@settings(max_examples=20, deadline=None)
@given(st.lists(_WORDS, min_size=1, max_size=30), st.sampled_from(SHELLS), st.integers(80, 120), st.integers(0, 16))
def test_whatever_the_words_are(several: list[tuple[str, ...]], shell: str, columns: int, indent: int) -> None:
    with drawn_for(columns):
        printed = [command_lines(argv, indent) for argv in several]
    assert words_of(shell, printed) == several


def test_a_short_command_is_one_line() -> None:
    assert command_lines(("apt-get", "install", "--yes", "cuda-compat-13-0"), 2) == (
        "  apt-get install --yes cuda-compat-13-0\n"
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (FileChange("/root/wire.sh", "", "a\n" * 84), "/root/wire.sh, 84 lines, new"),
        (FileChange("/root/.profile", "a\nb\n", "a\nb\nc\n"), "/root/.profile, 1 line added"),
        (FileChange("/root/.bashrc", "a\nb\nc\n", "a\nc\n"), "/root/.bashrc, 1 line removed"),
        (FileChange("/root/.bashrc", "a\nb\nc\n", "a\nX\nY\nc\n"), "/root/.bashrc, 2 lines added, 1 line removed"),
        (FileChange("/etc/x.conf", "a\n", "", removes=True), "/etc/x.conf, the whole file removed (1 line)"),
        (FileChange("/opt/lib64", "", "", links_to="lib"), "/opt/lib64, link to lib"),
        (FileChange("/root/a\x1b[31m", "", "x"), "/root/a\\x1b[31m, 1 line, new"),
    ],
)
def test_a_file_is_one_line(change: FileChange, line: str) -> None:
    assert folded(change) == line


def _step(**more: object) -> Step:
    usual = {"id": "01-x", "kind": StepKind.PIP, "title": "do it", "because": "w", "commands": (), "files": (),
             "needs_root": False, "done_when": (), "back": (), "seconds": None, "bytes": None}  # fmt: skip
    return Step(**{**usual, **more})  # type: ignore[arg-type]


def test_what_you_do_yourself_and_what_is_optional_is_marked() -> None:
    steps = (
        _step(commands=(("pip", "install", "torch"),)),
        _step(kind=StepKind.MANUAL, title="restart the machine", commands=(("sudo", "reboot"),)),
        _step(kind=StepKind.FILE, files=(FileChange("/root/.profile", "a\n", "a\nb\n"),), optional=True),
    )
    assert steps_in_short(steps, indent=5) == (
        "     pip install torch\n"
        "     you: restart the machine\n"
        "     sudo reboot\n"
        "     optional: do it\n"
        "     file: /root/.profile, 1 line added\n"
        "     the files are written by `firstlight apply`; `firstlight plan --diff` shows them\n"
    )


def test_a_file_that_is_there_as_it_should_be_is_written_already_and_what_is_left_is_yours() -> None:
    steps = (
        _step(kind=StepKind.FILE, files=(FileChange("/root/build.sh", "a\n", "a\n"),)),
        _step(kind=StepKind.MANUAL, title="read it", commands=((".", "/root/build.sh"),)),
    )
    assert steps_in_short(steps, indent=0) == (
        "file: /root/build.sh, written already\nyou: read it\n. /root/build.sh\n"
    )


def test_files_that_lie_side_by_side_share_a_line() -> None:
    files = (
        FileChange("/s/wire.sh", "", "a\n" * 84),
        FileChange("/s/run", "", "b\n"),
        FileChange("/t/x", "a\n", "b\n"),
    )
    lines = steps_in_short((_step(kind=StepKind.FILE, files=files),), indent=0).splitlines()
    assert lines[0] == "file: /s/wire.sh, 84 lines, new; beside it run, 1 line, new"
    assert lines[1] == "file: /t/x, 1 line added, 1 line removed"


def test_what_has_no_command_says_how() -> None:
    told = _step(kind=StepKind.MANUAL, title="set it in the firmware", note="Above 4G decoding, on.")
    assert steps_in_short((told,), indent=0) == "you: set it in the firmware\n  Above 4G decoding, on.\n"


def test_an_option_stays_with_its_value() -> None:
    with drawn_for(80):
        printed = command_lines(("pip", "install", "x" * 50, "--index-url", "https://download.pytorch.org/whl/cu128"))
    assert printed.splitlines()[1] == "  --index-url https://download.pytorch.org/whl/cu128"


def test_what_is_for_your_own_shell_is_typed_there() -> None:
    told = _step(kind=StepKind.MANUAL, title="t", commands=(("sh", "-c", "export A='x y'; unset B"),))
    printed = steps_in_short((told,), indent=2).splitlines()[1]
    done = subprocess.run(["bash", "-c", f'B=1\n{printed}\nprintf %s "$A${{B-gone}}"'], capture_output=True, check=True)
    assert done.stdout == b"x ygone"
