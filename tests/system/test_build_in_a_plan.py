"""A plan's build from source, carried out by apply itself: fetched from an index, built, installed, taken back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.build.standin import make_environment, make_standin
from tests.http_server import served_folder

pytestmark = pytest.mark.system
# What `firstlight apply` does with a plan, for a project that no rule knows: the step is made as the plan makes it.
APPLY = """
import sys
from dataclasses import replace
from firstlight.apply.session import Asked, act
from firstlight.cli.acting import Watching, acting_on
from firstlight.facts.look import Look, look_at
from firstlight.machine.live import LiveMachine
from firstlight.plan.plan import digest_of
from firstlight.tables import load
from firstlight.ways.at import At
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import BuildFromSource
from firstlight.ways.other_steps import source_steps
from firstlight.ways.platform import platform_of

facts = look_at(Look("", (), sys.argv[1]))
at = At(facts, load(), platform_of(facts), Extras(), "test")
steps = tuple(source_steps(BuildFromSource("standin", "1.0", ()), at))
with acting_on(LiveMachine(), Watching()) as acting:
    act(acting, Asked(steps, digest_of(steps), "source-build:standin", "build standin"))
"""


@contextmanager
def _index(folder: Path) -> Iterator[str]:
    with served_folder(folder) as address:
        yield f"{address}/simple"


def test_apply_builds_what_the_plan_says_and_undo_takes_the_wheel_away(tmp_path: Path) -> None:
    make_standin(tmp_path / "standin-1.0", units=2)
    page = tmp_path / "web/simple/standin"
    page.mkdir(parents=True)
    archive = page / "standin-1.0.tar.gz"
    subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(archive), "standin-1.0"], check=True)
    (page / "index.html").write_text('<a href="standin-1.0.tar.gz">standin-1.0.tar.gz</a>')
    python = make_environment(tmp_path / "env")
    site = next((tmp_path / "env").glob("lib/python3*/site-packages"))
    with _index(tmp_path / "web") as index:
        env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(tmp_path / "state"), "PIP_INDEX_URL": index}
        done = subprocess.run(
            [sys.executable, "-c", APPLY, str(python)], env=env, capture_output=True, text=True, check=False
        )
    logs = "".join(each.read_text() for each in (tmp_path / "state").rglob("run-*.log"))
    assert done.returncode == 0, done.stderr + logs
    assert "built and proved standin-1.0+fl.cpu-" in logs
    ran = subprocess.run([str(python), "-c", "import standin; print(standin.total())"], capture_output=True, text=True,
                         cwd="/", check=False)  # fmt: skip
    assert ran.stdout.strip() == "1", ran.stderr
    told = subprocess.run([sys.executable, "-m", "firstlight", "build", "--status"], env=env, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert "built, installed and proved" in told.stdout
    undone = subprocess.run([sys.executable, "-m", "firstlight", "undo", "--yes"], env=env, capture_output=True,
                            text=True, check=False)  # fmt: skip
    assert undone.returncode == 0, undone.stderr
    assert not (site / "standin").exists()
    [kept] = (tmp_path / "state/builds").iterdir()
    assert list((kept / "wheel").glob("*.whl")), "the tree and the wheel stay"
