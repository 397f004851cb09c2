"""The emitted build.sh run in a throw-away folder: firstlight from its own wheel, an sdist built, installed, run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.emit.test_build_files import emit, sdist_in

pytestmark = pytest.mark.system


def test_the_script_builds_installs_and_goes_on_where_it_was(tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert emit("bash", "--build", str(sdist_in(tmp_path)), "--out", str(there)).exit_code == 0
    env = {name: value for name, value in os.environ.items() if not name.startswith("FIRSTLIGHT_")}
    done = subprocess.run(["sh", "build.sh"], cwd=there, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "built and proved standin-1.0+fl.cpu-" in done.stdout
    asked = [str(there / "env/bin/python"), "-c", "import standin; print(standin.total())"]
    ran = subprocess.run(asked, capture_output=True, text=True, cwd="/", check=False)
    assert ran.stdout.strip() == "1", ran.stderr
    (there / "sources/standin-1.0.tar.gz").write_bytes(b"another")
    changed = subprocess.run(["sh", "build.sh"], cwd=there, env=env, capture_output=True, text=True, check=False)
    assert changed.returncode == 1
    assert "is not the sdist that this file was written for" in changed.stderr
    shutil.rmtree(there / "wheels")
    (there / next(each.name for each in there.glob("firstlight-*.whl"))).unlink()
    lost = subprocess.run(["sh", "build.sh"], cwd=there, env=env, capture_output=True, text=True, check=False)
    assert (lost.returncode, lost.stderr.startswith("build.sh: ")) == (1, True)
