"""Where the files of system tests lie: several mount over /dev, under which memory is, and roots of systems fill it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.system


def test_files_of_system_tests_lie_on_the_disk(tmp_path: Path) -> None:
    assert Path("/dev") not in tmp_path.parents
