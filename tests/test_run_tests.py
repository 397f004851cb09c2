"""`make test` runs every file of tests once, those under the machine's lock in one process, in parts that are alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.run_tests import ROOT, SECONDS, files, parts

RECORDED: dict[str, float] = json.loads(SECONDS.read_text())


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_file_is_in_one_part_and_no_part_is_much_longer_than_another(count: int) -> None:
    split = parts(files(), RECORDED, count)
    assert sorted(name for part in split for name in part) == list(files())
    took = [sum(RECORDED.get(name, 0) for name in part) for part in split]
    assert max(took) < 1.1 * sum(took) / count + max(RECORDED.values()) / 2
    locked = [any("/apply/" in name or "/lock/" in name for name in part) for part in split]
    assert locked == [True] + [False] * (len(split) - 1)


def test_a_file_that_was_never_recorded_counts_as_the_average_one() -> None:
    names = ("tests/a/test_1.py", "tests/a/test_2.py", "tests/b/test_3.py", "tests/b/test_new.py")
    assert parts(names, dict.fromkeys(names[:3], 5.0), 2) == (names[:2], names[2:])
    assert parts(names, {}, 2) == (names[:2], names[2:])


def test_most_files_are_recorded_and_none_that_is_gone() -> None:
    assert set(RECORDED) <= set(files())
    assert len(RECORDED) > len(files()) / 2


def test_what_a_file_takes_is_written_down_with_its_children(tmp_path: Path) -> None:
    file, out = tmp_path / "test_it.py", tmp_path / "seconds.json"
    busy = "import time\\nwhile time.process_time() < 0.5: pass"
    file.write_text(f"import subprocess, sys\ndef test_it():\n    subprocess.run([sys.executable, '-c', '{busy}'])\n")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.seconds", "--rootdir", str(tmp_path), str(file)]
    env = {**os.environ, "FIRSTLIGHT_TEST_SECONDS": str(out), "PYTHONPATH": str(ROOT)}
    subprocess.run(argv, cwd=tmp_path, env=env, check=True, capture_output=True)
    [(name, spent)] = json.loads(out.read_text()).items()
    assert name == "test_it.py"
    assert 0.4 <= spent < 10
