"""A folder that was removed under the shell that stands in it: words, and never a bug of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

H100 = "H100, driver >= 550"


@pytest.mark.parametrize(
    "words",
    [
        ("guard", "--", "ls"),
        ("guard", "test"),
        ("emit", "agents"),
        ("emit", "bash", "--for", H100, "--out", "files"),
        ("bundle", "--for", H100, "--out", "wheels", "--dry-run"),
        ("doctor", "--facts", "example:h100-driver-570", "--html", "page.html"),
        ("lock", "--facts", "example:h100-driver-570"),
    ],
)
def test_a_folder_that_is_gone_is_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    line = 'rmdir "$PWD" && exec "$@"'
    argv = ["sh", "-c", line, "sh", sys.executable, "-m", "firstlight", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("firstlight: the folder that this was started in is gone")
    assert done.stderr.count("\n") == 1
