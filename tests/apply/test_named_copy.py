"""A copy in this user's own folder is taken out by a real pip; the one behind it stays, however often it is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.conditions import look
from firstlight.apply.executor import Acting
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.torch_shadow_rules import torch_shadowed
from firstlight.errors import CouldNotAct
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import Known
from firstlight.ways.kinds import RemoveDistributions
from firstlight.ways.step import Step
from firstlight.ways.way import Way
from tests.apply.acting import acting
from tests.apply.acting import tree as everything
from tests.apply.pip_environments import KILL, Pip
from tests.apply.wheels import make_wheel
from tests.ways.for_real import TABLES
from tests.ways.for_real import look as look_around
from tests.ways.machines import at, made

BAD, GOOD = "2.4.1+cpu", "2.8.0+cu128"


class OwnPackages:
    """A Python of its own that is no venv, with torch 2.8.0, and a user's folder with torch 2.4.1 in front of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.base, self.wheels = folder, folder / "mine", folder / "wheels"
        lib = f"python{sysconfig.get_python_version()}"
        self.python = _relocated(folder / "python", lib)
        self.site, self.user = (each / f"lib/{lib}/site-packages" for each in (folder / "python", self.base))
        (self.site / "kill_pip_for_tests.py").write_text(KILL)
        (self.site / "kill.pth").write_text("import kill_pip_for_tests\n")
        for version in (GOOD, BAD):
            make_wheel(self.wheels, "torch", version, more=("torchgen/__init__.py", "entry_points.txt"))
        self.env = {
            "PATH": "/usr/bin:/bin", "HOME": str(folder / "home"), "PYTHONUSERBASE": str(self.base),
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_ROOT_USER_ACTION": "ignore",
            "PYTHONDONTWRITEBYTECODE": "1", "PIP_NO_COMPILE": "1",
        }  # fmt: skip
        self.pip("install", "--quiet", f"torch=={GOOD}")
        self.pip("install", "--quiet", "--user", "--ignore-installed", f"torch=={BAD}")

    def pip(self, *words: str) -> None:
        subprocess.run([self.python, "-m", "pip", *words], env=self.env, check=True, cwd="/")

    def steps(self, *ways: Way) -> tuple[Step, ...]:
        return made(at(self.facts()), *(ways or self.answer()))

    def facts(self) -> Facts:
        """This machine, as one that is no container: there the home folder is often the host's and is left."""
        facts = look_around(self.env, python=self.python).facts
        return replace(facts, container=replace(facts.container, kind=Known(ContainerKind.NONE, "test")))

    def answer(self) -> tuple[Way, ...]:
        """What our own rule says to do first."""
        [found] = torch_shadowed(Question(self.facts(), TABLES))
        return found.answers[0].ways

    def acting(self, **more: str) -> Acting:
        return replace(acting(self.folder), env={**self.env, **more})

    def imported(self) -> str:
        argv = [self.python, "-c", "import torch; print(torch.VERSION)"]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, cwd="/").stdout.strip()

    def undo(self) -> None:
        doing = self.acting()
        for run in newest_to_undo(doing):
            undo(doing, run)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every path with its mode and bytes; bytecode holds the time at which its source was written."""
    return {path: found for path, found in everything(folder).items() if not path.endswith(".pyc")}


def _relocated(prefix: Path, lib: str) -> str:
    """This Python under another prefix: its own program and site-packages, the library of the real one."""
    real, python = Path(sysconfig.get_path("stdlib")), prefix / "bin/python3"
    (prefix / "bin").mkdir(parents=True)
    (prefix / f"lib/{lib}/site-packages").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), python)
    for each in real.iterdir():
        if each.name not in ("site-packages", "EXTERNALLY-MANAGED"):
            (prefix / f"lib/{lib}" / each.name).symlink_to(each)
    (prefix / f"lib/{lib}/site-packages/pip").symlink_to(Path(sysconfig.get_path("purelib")) / "pip")
    said = subprocess.run([python, "-Ic", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=False)
    if said.stdout.strip() != str(prefix):
        pytest.skip("the Python that runs the tests does not start under another prefix")
    return str(python)


@pytest.fixture
def own(tmp_path: Path) -> OwnPackages:
    return OwnPackages(tmp_path)


def test_the_users_copy_goes_the_good_one_stays_twice_and_undo_brings_it_back_to_the_byte(own: OwnPackages) -> None:
    user, good = tree(own.base), tree(own.site)
    [step] = own.steps()
    assert own.answer() == (RemoveDistributions(("torch",), folder=str(own.user), version=BAD),)
    assert own.imported() == BAD
    for _ in range(2):
        act(own.acting(), Asked((step,), "d", "o", "t"))
        assert own.imported() == GOOD
        assert tree(own.site) == good
    assert look(step.done_when[0]).saw == f"no torch=={BAD} is installed in {own.user}"
    own.undo()
    assert own.imported() == BAD
    assert tree(own.site) == good
    assert tree(own.base) == user


def test_it_is_refused_before_it_begins_where_the_copy_is_not_the_first_that_pip_sees(own: OwnPackages) -> None:
    user, good = tree(own.base), tree(own.site)
    [step] = own.steps()
    plain = replace(step, commands=((own.python, "-m", "pip", "uninstall", "--yes", "torch"),))
    doing = own.acting(PYTHONNOUSERSITE="1")
    with pytest.raises(CouldNotAct, match=f"would take out torch 2.8.0.cu128 of {own.site}"):
        act(doing, Asked((plain,), "d", "o", "t"))
    assert "step-begun" not in {record.event for record in doing.journal.records}
    assert (tree(own.base), tree(own.site)) == (user, good)


def test_another_version_that_the_user_installed_since_is_left(own: OwnPackages) -> None:
    [step] = own.steps()
    make_wheel(own.wheels, "torch", "2.9.1")
    own.pip("install", "--quiet", "--user", "torch==2.9.1")
    assert act(own.acting(), Asked((step,), "d", "o", "t")) == ()
    assert own.imported() == "2.9.1"


def test_a_removal_that_was_killed_goes_on_with_the_same_copy(own: OwnPackages) -> None:
    user, good = tree(own.base), tree(own.site)
    [step] = own.steps()
    (own.site / "kill-at").write_text("moved")
    with pytest.raises(CouldNotAct):
        act(own.acting(), Asked((step,), "d", "o", "t"))
    doing = own.acting()
    for run in interrupted(doing):
        finish(doing, run)
    assert own.imported() == GOOD
    assert tree(own.site) == good
    own.undo()
    shutil.rmtree(own.base / "~in")  # of bin, which pip had moved aside: what it leaves is looked for among packages
    assert tree(own.base) == user
    assert tree(own.site) == good


def test_a_copy_of_the_environment_goes_and_one_behind_it_in_another_folder_stays(tmp_path: Path) -> None:
    pip = Pip(tmp_path)
    behind = tmp_path / "behind"
    subprocess.run([pip.python, "-m", "pip", "install", "--quiet", "--target", str(behind), "--no-index",
                    "--find-links", str(pip.wheels), "--no-deps", "part==2.0"], check=True)  # fmt: skip
    (pip.site / "zz_behind.pth").write_text(f"{behind}\n")
    was, there = pip.files(), tree(behind)
    [step] = made(at("h100-driver-570"), RemoveDistributions(("part",), folder=str(pip.site), version="1.0"))
    step = replace(
        step,
        commands=((pip.python, "-m", "pip", "uninstall", "--yes", "part"),),
        done_when=(replace(step.done_when[0], target=pip.python, expected="part==1.0"),),
    )
    for _ in range(2):
        doing = acting(tmp_path)
        doing = replace(doing, env={**doing.env, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(pip.wheels)})
        act(doing, Asked((step,), "d", "o", "t"))
        assert not (pip.site / "part").exists()
        assert tree(behind) == there
    for run in newest_to_undo(doing):
        undo(doing, run)
    assert (pip.files(), tree(behind)) == (was, there)
