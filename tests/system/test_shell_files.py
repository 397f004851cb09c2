"""Odd start-up files, edited and undone with the real shells: they parse, say the right value, and come back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from firstlight.apply.edit_proof import why_not
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.shells.kinds import dialect_of
from firstlight.shells.library_path import without_folders
from firstlight.ways.building import written
from firstlight.ways.step import FileChange
from tests.apply.acting import acting, step, tree
from tests.system.shell_cases import FOLDER, Case, all_cases

pytestmark = pytest.mark.system


@pytest.mark.parametrize("name", all_cases())
def test_an_edited_file_parses_says_the_right_value_and_is_undone_to_the_byte(name: str, tmp_path: Path) -> None:
    case = Case(FOLDER / name, tmp_path)
    if not case.shell:
        pytest.skip(f"no {case.about['shell']} on this machine: sh tools/system_packages.sh installs it")
    at_first, before = tree(tmp_path), case.said()
    text = case.before.decode("utf-8", "surrogateescape")
    path = str(case.path)
    edited = without_folders(text, case.folders, dialect=dialect_of(path, text), home=str(case.home))
    change = FileChange(path, text, edited.text, takes_out=case.folders)
    refused = edited.text != text and why_not(change)
    if edited.text == text or refused:
        assert case.may_stay, refused or "it was left as it was"
        assert edited.left or refused or not case.about["told"], "nobody is told the line"
        return
    assert case.accepted_values, f"it was edited: {edited.text}"
    doing = acting(tmp_path / "firstlight")
    act(doing, Asked((step("edit", files=(change,), done_when=(written(change),)),), "d" * 16, "remove:x", "x"))
    after = case.said()
    assert after.reached
    assert after.value in case.accepted_values, edited.text
    assert (after.parses, after.others, after.printed) == (before.parses, before.others, before.printed)
    for run in newest_to_undo(doing):
        undo(doing, run)
    doing.journal.close()
    left = {each: seen for each, seen in tree(tmp_path).items() if not each.startswith(("firstlight", "answer"))}
    assert {each: left[each] for each in at_first} == at_first


def test_at_least_sixty_odd_files_of_every_shell_are_tried() -> None:
    shells = [Case.about_of(FOLDER / name)["shell"] for name in all_cases()]
    assert len(shells) >= 60
    assert set(shells) == {"bash", "sh", "zsh", "ksh", "fish", "csh"}


def test_a_file_that_never_ends_is_not_written_and_nothing_of_it_runs_on(tmp_path: Path) -> None:
    """An agent that leaves the shell's session is ended too; ten seconds are waited, and once."""
    mark = f"{os.getpid()}.25"  # seconds to sleep, which no other process sleeps
    before = f"setsid sleep 6{mark} &\nexport LD_LIBRARY_PATH=/c/compat:/b\nsleep 7{mark}\n"
    after = before.replace("/c/compat:", "")
    begun = time.monotonic()
    reason = why_not(FileChange(str(tmp_path / ".bashrc"), before, after, takes_out=("/c/compat",)))
    assert reason == "a new bash that reads it did not end within 10 s"
    assert time.monotonic() - begun < 30
    assert not [each for each in _command_lines() if mark in each]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have a file of somebody else")
def test_a_file_of_another_user_is_not_run(tmp_path: Path) -> None:
    file, ran = tmp_path / ".bashrc", tmp_path / "ran"
    before = f"touch {ran}\nexport LD_LIBRARY_PATH=/c/compat:/b\n"
    file.write_text(before)
    os.chown(file, 65534, 65534)
    change = FileChange(str(file), before, before.replace("/c/compat:", ""), takes_out=("/c/compat",))
    assert why_not(change) == "user 65534 owns it, and what others wrote is not run here"
    assert not ran.exists()


def _command_lines() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_text(errors="replace"))
        except OSError:
            continue
    return found
