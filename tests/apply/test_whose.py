"""What somebody installed, changed or wrote since is not taken for the step's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from firstlight.apply.conditions import installed_distributions
from firstlight.apply.debris import left_behind
from firstlight.apply.executor import StepFailed
from firstlight.apply.session import newest_to_undo
from firstlight.apply.undo import undo
from firstlight.errors import CouldNotAct
from tests.apply.acting import Quiet, acting, killed_at
from tests.apply.pip_environments import Pip
from tests.apply.wheels import make_wheel


@pytest.fixture
def env(tmp_path: Path) -> Pip:
    made = Pip(tmp_path)
    make_wheel(made.wheels, "mine", "1.0")
    make_wheel(made.wheels, "demo", "9.9")
    return made


def _killed(env: Pip, point: str) -> None:
    """A firstlight that dies with its pip: no look at what was left is in the journal."""
    env.kill_at(point)

    def work(passing: object) -> None:
        def die(at: str) -> None:
            if at.endswith("command ended"):
                os.kill(os.getpid(), 9)

        from firstlight.apply.session import Asked, act

        act(acting(env.folder, die), Asked((env.step("demo==2.0"),), "d", "o", "t"))

    assert killed_at(10**6, work)


def _undo_on_a_terminal(env: Pip, *, answer: str) -> list[str]:
    doing = acting(env.folder)
    assert isinstance(doing.watcher, Quiet)
    doing.watcher.somebody, doing.watcher.answer = True, answer == "yes"
    for each in newest_to_undo(doing):
        undo(doing, each)
    return doing.watcher.heard


@pytest.mark.parametrize("point", ["writing 2", "writing 4", "writing 9"])
def test_what_a_killed_pip_said_it_installs_goes_without_a_question(env: Pip, point: str) -> None:
    before = env.files()
    _killed(env, point)
    assert env.files() != before
    assert not any(each.startswith(("Remove ", "not as before")) for each in env.undo())
    assert (env.files(), env.debris) == (before, [])


def test_files_that_no_package_of_the_step_would_write_stay_until_a_person_says_yes(env: Pip) -> None:
    before = env.files()
    _killed(env, "writing 4")
    (env.site / "mytool.py").write_text("mine")
    (env.site / "mypkg").mkdir()
    with pytest.raises(CouldNotAct, match=r"mypkg, .*mytool.py may be somebody's own.*left as it is"):
        env.undo()
    assert env.files() == before | {"mytool.py": b"mine"}
    _undo_on_a_terminal(env, answer="no")
    assert env.files() == before | {"mytool.py": b"mine"}
    assert newest_to_undo(acting(env.folder)) == ()


def test_a_package_that_came_after_a_kill_stays_and_the_rest_goes(env: Pip) -> None:
    _killed(env, "writing 4")
    env.install("mine")
    with pytest.raises(CouldNotAct, match=r": mine may be somebody's own"):
        env.undo()
    assert installed_distributions(env.python) == ("demo==1.0", "mine==1.0", "part==1.0")
    _undo_on_a_terminal(env, answer="yes")
    assert installed_distributions(env.python) == ("demo==1.0", "part==1.0")


def test_a_package_that_came_between_a_kill_and_going_on_stays_too(env: Pip) -> None:
    _killed(env, "writing 4")
    env.install("mine")
    env.go_on()
    with pytest.raises(CouldNotAct, match=r": mine may be somebody's own"):
        env.undo()
    assert installed_distributions(env.python) == ("demo==1.0", "mine==1.0", "part==1.0")


def test_a_version_that_somebody_changed_since_is_named_and_stops_the_undo(env: Pip) -> None:
    env.apply("demo==2.0")
    env.install("demo==9.9")
    kept = env.files()
    with pytest.raises(CouldNotAct, match=r"demo==9\.9 is installed, and the step left demo==2\.0: somebody changed"):
        env.undo()
    assert env.files() == kept
    env.install("demo==2.0")
    env.undo()
    assert installed_distributions(env.python) == ("demo==1.0", "part==1.0")


def test_an_environment_that_is_away_keeps_the_run_open(env: Pip) -> None:
    before = env.files()
    env.apply("demo==2.0")
    shutil.move(env.folder / "venv", env.folder / "away")
    with pytest.raises(CouldNotAct, match=r"is not there\. Mount its volume, or put it back"):
        env.undo()
    shutil.move(env.folder / "away", env.folder / "venv")
    env.undo()
    assert env.files() == before


def test_an_environment_of_which_a_person_says_that_it_is_gone_ends_the_run(env: Pip) -> None:
    env.apply("demo==2.0")
    shutil.rmtree(env.folder / "venv")
    _undo_on_a_terminal(env, answer="yes")
    assert newest_to_undo(acting(env.folder)) == ()


def test_where_leftovers_cannot_be_seen_that_is_said_and_nothing_goes_on(env: Pip) -> None:
    env.kill_at("writing 4")
    with pytest.raises(StepFailed, match="status -9"):
        env.apply("demo==2.0")
    (env.site / "sitecustomize.py").write_text('import os, sys\nif "-I" in sys.orig_argv: os._exit(7)\n')
    assert "not known" in left_behind(env.python)
    with pytest.raises(CouldNotAct, match=r"left there could not be seen.*exit status 7"):
        env.go_on()
