"""A file is written and a command takes it up (GRUB's menu, the loader's cache): killed anywhere, both are done."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from firstlight.apply.disk import never_stop
from firstlight.apply.executor import StepFailed
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.back import moved_back
from firstlight.ways.step import CheckKind, Condition, FileChange, Step
from tests.apply.acting import acting, killed_at, step, tree


def _menu(folder: Path) -> Step:
    """As GRUB is told: a file of settings, and a program that makes its menu of it."""
    settings, menu = folder / "home/grub.d/kernel.cfg", folder / "home/menu"
    make = ("sh", "-c", f"[ -e {folder}/full ] && exit 1; cat {settings} > {menu} 2>/dev/null || echo plain > {menu}")
    change = FileChange(str(settings), "", "GRUB_DEFAULT=2\n")
    done = Condition(CheckKind.FILE_HOLDS, str(settings), change.after)
    return step("01-menu", files=(change,), commands=(make,), done_when=(done,))


def _aside(folder: Path) -> Step:
    """As a damaged library is moved aside: the loader's cache is made anew after it."""
    library, aside = folder / "home/libcuda.so.1", folder / "home/.libcuda.so.1.before-firstlight"
    cache = ("sh", "-c", f"ls {folder}/home > {folder}/cache.new; mv {folder}/cache.new {folder}/cache")
    made = step(
        "01-aside", commands=(("mv", "--backup=numbered", str(library), str(aside)), cache),
        done_when=(Condition(CheckKind.FILE_ABSENT, str(library)),),
    )  # fmt: skip
    return replace(made, back=(moved_back(str(aside), str(library)),))


def _home(folder: Path) -> Path:
    home = folder / "home"
    home.mkdir()
    (home / "menu").write_text("plain\n")
    (home / "libcuda.so.1").write_text("")
    return home


def _apply(folder: Path, asked: Step, passing: Callable[[str], None] = never_stop) -> None:
    doing = acting(folder, passing)
    for run in interrupted(doing):
        finish(doing, run)
    act(doing, Asked((asked,), "d" * 16, "o", "t"))
    doing.journal.close()


def _undo(folder: Path) -> None:
    doing = acting(folder)
    for run in newest_to_undo(doing):
        undo(doing, run)
    doing.journal.close()


def test_a_command_that_failed_after_its_file_was_written_is_run_by_the_next_apply(tmp_path: Path) -> None:
    home, asked = _home(tmp_path), _menu(tmp_path)
    (tmp_path / "full").touch()
    with pytest.raises(StepFailed):
        _apply(tmp_path, asked)
    assert (home / "menu").read_text() == "plain\n"
    (tmp_path / "full").unlink()
    _apply(tmp_path, asked)
    assert (home / "menu").read_text() == "GRUB_DEFAULT=2\n"


def test_a_step_that_ended_well_is_not_done_a_second_time(tmp_path: Path) -> None:
    home, asked = _home(tmp_path), _menu(tmp_path)
    _apply(tmp_path, asked)
    (home / "menu").write_text("somebody's own\n")
    _apply(tmp_path, asked)
    assert (home / "menu").read_text() == "somebody's own\n"


@pytest.mark.parametrize("made", [_menu, _aside])
def test_killed_at_any_point_the_next_apply_does_the_rest_and_undo_all_of_it(
    tmp_path: Path, made: Callable[[Path], Step]
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    _home(whole)
    before = tree(whole / "home")
    _apply(whole, made(whole))
    after = tree(whole / "home")
    assert after != before
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        _home(folder)
        asked = made(folder)
        if not killed_at(number, partial(_apply, folder, asked)):
            break
        _apply(folder, asked)
        assert tree(folder / "home") == after, f"killed at its point {number}"
        if made is _aside:
            assert (folder / "cache").read_text().split() == ["menu"], f"killed at its point {number}"
        _undo(folder)
        if made is _aside:
            assert tree(folder / "home") == before, f"killed at its point {number}"
        else:
            assert sorted(os.listdir(folder / "home")) == ["libcuda.so.1", "menu"], f"killed at its point {number}"
    assert number > 10
