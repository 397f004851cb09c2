"""A pip or uv that dies between a passing name and the real one: the half-written file goes, a person's own stays."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import StepFailed
from firstlight.apply.session import Asked, act
from firstlight.errors import CouldNotAct
from firstlight.ways.step import Step, StepKind
from tests.apply.acting import acting
from tests.apply.pip_environments import Pip

# The real uv behind a script that, told so once, writes what a copying uv has on the disk half-way, and dies there.
DYING = """\
#!/bin/sh
case " $* " in *" pip install "*|*" pip sync "*)
    if [ -e "{mark}" ]; then rm "{mark}"; mkdir -p "{folder}"; echo half > "{left}"; kill -9 $$; fi;;
esac
exec "{uv}" "$@"
"""
HALVES = ("demo/.tmp2r4RKf", "demo-1.0.dist-info/RECORDab_3x9zq.tmp")


def _dying_uv(env: Pip, left: str) -> Path:
    """What makes the next uv die; `left` is what it leaves, below site-packages."""
    mark, program = env.folder / "die", env.folder / "uv"
    uv = Path(sys.executable).with_name("uv")
    program.write_text(DYING.format(mark=mark, folder=(env.site / left).parent, left=env.site / left, uv=uv))
    program.chmod(0o755)
    return mark


def _step(env: Pip) -> Step:
    plain = env.step("demo==2.0")
    argv = (str(env.folder / "uv"), "pip", "install", "--python", env.python, *plain.commands[0][4:])
    return replace(plain, kind=StepKind.UV, commands=(argv,))


@pytest.mark.parametrize("left", HALVES)
def test_what_a_killed_undo_left_is_gone_after_the_next(tmp_path: Path, left: str) -> None:
    env = Pip(tmp_path)
    mark, before = _dying_uv(env, left), env.files()
    act(acting(env.folder), Asked((_step(env),), "d", "o", "t"))
    mark.touch()
    with pytest.raises(CouldNotAct, match="status -9"):
        env.undo()
    assert (env.site / left).exists()
    env.undo()
    assert env.files() == before


def test_what_a_killed_apply_left_is_gone_after_the_next(tmp_path: Path) -> None:
    env = Pip(tmp_path)
    _dying_uv(env, HALVES[0]).touch()
    with pytest.raises(StepFailed, match="status -9"):
        act(acting(env.folder), Asked((_step(env),), "d", "o", "t"))
    env.go_on()
    assert not (env.site / HALVES[0]).exists()


def test_a_file_of_such_a_name_that_was_there_before_stays(tmp_path: Path) -> None:
    env = Pip(tmp_path)
    mark = _dying_uv(env, HALVES[0])
    mine = env.site / "demo/.tmpMine00"
    mine.write_text("mine")
    act(acting(env.folder), Asked((_step(env),), "d", "o", "t"))
    mark.touch()
    with pytest.raises(CouldNotAct, match="status -9"):
        env.undo()
    env.undo()
    assert mine.read_text() == "mine"
