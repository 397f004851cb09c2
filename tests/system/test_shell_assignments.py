"""Lines that set a variable or take an entry out of a path, read by the shells they are for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from firstlight.shells.assignments import setting_line, without_line
from firstlight.shells.kinds import Dialect

pytestmark = pytest.mark.system


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh", "ksh"])
@pytest.mark.parametrize(
    ("path", "kept"),
    [("/c", "unset"), ("/a:/c:/b c", "/a"), ("/a", "/a"), ("", ""), ("/a:/cc:/c/x", "/a:/cc:/c/x"), (None, "unset")],
)
def test_the_line_takes_entries_out_whoever_put_them_there(
    shell: str, path: str | None, kept: str, tmp_path: Path
) -> None:
    file = tmp_path / "rc"
    file.write_text(f"set -eu\n{without_line('LD_LIBRARY_PATH', ('/c', '/b c'))}\n")
    env = {"PATH": "/usr/bin:/bin"} | ({} if path is None else {"LD_LIBRARY_PATH": path})
    code = f'. {file}; echo "${{LD_LIBRARY_PATH-unset}}"'
    done = subprocess.run([shell, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{kept}\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("shell", "dialect", "asks"),
    [
        ("bash", Dialect.SH, 'printf %s "$A_B"'),
        ("fish", Dialect.FISH, 'printf %s "$A_B"'),
        ("tcsh", Dialect.CSH, "printenv A_B"),
    ],
)
def test_a_value_of_any_letters_is_what_programs_get(shell: str, dialect: Dialect, asks: str, tmp_path: Path) -> None:
    value = "it's; $HOME `x`" if dialect is not Dialect.CSH else "a b; $HOME"
    file = tmp_path / "rc"
    file.write_text(f"{setting_line('A_B', value, dialect=dialect)}\n")
    done = subprocess.run([shell, "-c", f"source {file}; {asks}"], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip("\n") == value
