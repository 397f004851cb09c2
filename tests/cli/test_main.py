"""Every way out of the command line: one line, the right exit code, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firstlight.cli.main import VERBS, run
from firstlight.cli.zipapp import write_zipapp

FIRSTLIGHT = f"{sys.executable} -m firstlight"
EXAMPLE = "--facts example:h100-driver-570"


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    """A line as a user types it: redirections are the shell's business."""
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (f"{FIRSTLIGHT} facts {EXAMPLE} > /dev/full", 4, "No space left on device"),
        (f"{FIRSTLIGHT} doctor {EXAMPLE} > /dev/full", 4, "No space left on device"),
        (
            f"{FIRSTLIGHT} doctor {EXAMPLE} >&-",
            4,
            "stdout is not open for writing (otherwise the exit code would be 1)",
        ),
        (f"{FIRSTLIGHT} facts {EXAMPLE} 1</dev/null", 4, "stdout is not open for writing"),
        (f"{FIRSTLIGHT} tables --json <&- >&- 2>&-", 4, ""),
        (f"{FIRSTLIGHT} nonsense >&-", 2, "accepted: doctor"),
        (f"{FIRSTLIGHT} nonsense 2</dev/null", 2, ""),
        (f"{FIRSTLIGHT} run -- true >&-", 0, ""),
        (f"{FIRSTLIGHT} facts {EXAMPLE} 2>&-", 0, ""),
        (f"{FIRSTLIGHT} explain <&-", 2, ""),
        (f"set -o pipefail; {FIRSTLIGHT} facts --all {EXAMPLE} | head -1", 0, ""),
        (f"{FIRSTLIGHT} nonsense", 2, "accepted: doctor"),
        (f"{FIRSTLIGHT} facts --python /etc", 2, "not an interpreter"),
        (f"{FIRSTLIGHT} facts --python /no/such", 2, "no such file"),
        (f"cd $(mktemp -d) && rmdir $PWD && {FIRSTLIGHT} facts", 0, ""),
        (f"env -i {FIRSTLIGHT} doctor", 0, ""),
        (f"LC_ALL=C {FIRSTLIGHT} facts", 0, ""),
        (f"LD_PRELOAD=/no/such.so {FIRSTLIGHT} facts {EXAMPLE}", 0, ""),
    ],
)
def test_a_command_line_ends_as_it_should(line: str, code: int, said: str) -> None:
    done = _shell(line)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "a bug in firstlight" not in done.stderr


def test_a_result_that_nobody_can_read_is_never_good() -> None:
    """The help of every verb, printed to a stdout that is closed."""
    words = [(), *((verb,) for verb in VERBS)]
    codes = {each: _shell(f"{FIRSTLIGHT} {' '.join(each)} --help >&-").returncode for each in words}
    assert codes == {each: 2 if each == ("guard",) else 4 for each in words}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example" in out
    assert f"firstlight {verb}" in out


def test_the_version_names_the_date_of_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert "(tables of 20" in capsys.readouterr().out


def test_interrupting_gives_130_and_one_line(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "firstlight", "facts"], env=environ, stderr=subprocess.PIPE, text=True
    )
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.strip() == "firstlight: interrupted"


def test_the_zipapp_under_a_full_disk_and_an_old_python_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "facts.pyz"
    write_zipapp(str(path))
    full = _shell(f"{sys.executable} -I -S {path} {EXAMPLE} > /dev/full")
    assert full.returncode == 4
    assert full.stderr.count("\n") == 1
    closed = _shell(f"{sys.executable} -I -S {path} {EXAMPLE} >&-")
    assert (closed.returncode, closed.stderr.count("\n")) == (4, 1)
    assert "stdout is not open for writing" in closed.stderr
    pretend = f"import runpy, sys; sys.version_info = (3, 9, 1, 'final', 0); sys.argv = [{str(path)!r}]; "
    old = subprocess.run(
        [sys.executable, "-c", pretend + f"runpy.run_path({str(path)!r}, run_name='__main__')"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert old.returncode == 2
    assert "accepted: 3.10 or newer" in old.stderr
