"""kill -9 inside git: half a checkout is not taken for a whole one, and its locks do not stop the next attempt."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import Acting, StepFailed
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.back import moved_back
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import Quiet, acting, step, tree


class Source:
    """A repository whose last file kills git when it is written, if it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sign = folder / "upstream", folder / "kill"
        self.folder.mkdir()
        for name, text in (
            ("aa", "a\n"),
            ("version.txt", "1\n"),
            ("zz", "z\n"),
            (".gitattributes", "zz filter=kill\n"),
        ):
            (self.folder / name).write_text(text)
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "first")
        self.commit = self.git("rev-parse", "HEAD").strip()

    def git(self, *words: str) -> str:
        argv = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *words]
        return subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, text=True, env=self.env).stdout

    @property
    def env(self) -> dict[str, str]:
        kills = f"if [ -e {self.sign} ]; then rm {self.sign}; kill -9 $PPID; fi; cat"
        settings = {"filter.kill.smudge": kills, "filter.kill.clean": "cat"}
        named = {
            f"GIT_CONFIG_{kind}_{number}": text
            for number, pair in enumerate(settings.items())
            for kind, text in zip(("KEY", "VALUE"), pair, strict=True)
        }
        return {"PATH": os.environ["PATH"], "GIT_CONFIG_COUNT": str(len(settings)), **named}


def _checkout(source: Source, folder: Path) -> Step:
    """As --checkout makes it."""
    commands = (
        ("git", "init", "--quiet", str(folder)),
        ("git", "-C", str(folder), "fetch", "--depth", "1", str(source.folder), source.commit),
        ("git", "-C", str(folder), "checkout", "--quiet", "--detach", source.commit),
    )
    done = Condition(CheckKind.GIT_COMMIT, str(folder), source.commit)
    return step("01-git", kind=StepKind.GIT, commands=commands, undo=(("rm", "-rf", str(folder)),), done_when=(done,))


def _clone(source: Source, folder: Path) -> Step:
    """As a build from source makes it: known by a file that is there before the last one."""
    done = Condition(CheckKind.FILE_EXISTS, str(folder / "version.txt"))
    return replace(
        _checkout(source, folder), commands=(("git", "clone", str(source.folder), str(folder)),), done_when=(done,)
    )


def _apply(folder: Path, source: Source, asked: Step) -> Acting:
    doing = replace(acting(folder), env=source.env)
    for run in interrupted(doing):
        finish(doing, run)
    act(doing, Asked((asked,), "d", "o", "t"))
    return doing


@pytest.mark.parametrize("made", [_checkout, _clone], ids=["fetched at a commit", "cloned"])
def test_a_killed_checkout_is_made_anew_by_the_next_apply(tmp_path: Path, made: Callable[[Source, Path], Step]) -> None:
    source, folder = Source(tmp_path), tmp_path / "made/tree"
    asked = made(source, folder)
    source.sign.touch()
    with pytest.raises(StepFailed):
        _apply(tmp_path, source, asked)
    assert not source.sign.exists()
    assert not (folder / "zz").exists()
    doing = _apply(tmp_path, source, asked)
    assert sorted(each.name for each in folder.iterdir()) == [".git", ".gitattributes", "aa", "version.txt", "zz"]
    assert isinstance(doing.watcher, Quiet)
    assert any("left half-made by the interrupted attempt" in line for line in doing.watcher.heard)
    for run in newest_to_undo(doing):
        undo(doing, run)
    assert not folder.exists()


def test_a_folder_that_was_there_before_is_not_cleared(tmp_path: Path) -> None:
    source, folder = Source(tmp_path), tmp_path / "made/tree"
    folder.mkdir(parents=True)
    (folder / "mine").write_text("mine\n")
    before = tree(folder)
    source.sign.touch()
    with pytest.raises(StepFailed):
        _apply(tmp_path, source, _checkout(source, folder))
    with pytest.raises(StepFailed, match="ended with status"):  # git's lock is in the way, and the log says so
        _apply(tmp_path, source, _checkout(source, folder))
    assert {name: seen for name, seen in tree(folder).items() if name in before} == before


def test_a_step_killed_between_two_commands_runs_both_again_though_its_condition_holds(tmp_path: Path) -> None:
    """A repository was set up and its lists were not fetched: the next step would not find its package."""
    made, lists = tmp_path / "made", tmp_path / "lists"
    asked = step(
        "01-repository", kind=StepKind.ARCHIVE, done_when=(Condition(CheckKind.FILE_EXISTS, str(made)),),
        commands=(("touch", str(made)), ("sh", "-c", f"[ -e {tmp_path}/network ] && touch {lists}")),
    )  # fmt: skip
    source = Source(tmp_path)
    with pytest.raises(StepFailed):
        _apply(tmp_path, source, asked)
    (tmp_path / "network").touch()
    _apply(tmp_path, source, asked)
    assert lists.exists()


@pytest.mark.parametrize("whom", ["$$", "$$ $PPID"], ids=["the command", "the command and firstlight"])
def test_what_a_killed_command_had_started_ends_before_its_folder_goes(tmp_path: Path, whom: str) -> None:
    """As python -m venv, whose child goes on to install pip into the folder that undo takes away."""
    folder, ready = tmp_path / "made", tmp_path / "ready"
    late = f'mkdir -p "$1"; (sleep 1; mkdir -p "$1/late"; touch {ready}) & kill -9 {whom}'
    made = step(
        "01-venv", kind=StepKind.VENV, commands=(("sh", "-c", late, "sh", str(folder)),),
        undo=(("rm", "-rf", str(folder)),),
        done_when=(Condition(CheckKind.FILE_EXISTS, str(folder / "never")),),
    )  # fmt: skip
    source = Source(tmp_path)
    process = os.fork()
    if process == 0:
        try:
            _apply(tmp_path, source, made)
        finally:
            os._exit(1)
    os.waitpid(process, 0)
    doing = replace(acting(tmp_path), env=source.env)
    for run in newest_to_undo(doing):
        undo(doing, run)
    assert ready.exists(), "undo did not wait"
    assert not folder.exists()


def test_a_copy_that_was_cut_short_does_not_take_the_place_of_the_lock_file(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    lock, copy = app / "uv.lock", app / "uv.lock.before-firstlight"
    lock.write_text("version = 1\n")
    cut = 'head -c 3 "$1" > "$2"; kill -9 $$'  # cp, killed half-way
    made = step(
        "01-project", kind=StepKind.PROJECT, done_when=(Condition(CheckKind.FILE_EXISTS, str(app / "never")),),
        commands=(("sh", "-c", cut, "sh", str(lock), str(copy)), ("uv", "sync", "--project", str(app))),
    )  # fmt: skip
    source = Source(tmp_path)
    with pytest.raises(StepFailed):
        _apply(tmp_path, source, replace(made, back=(moved_back(str(copy), str(lock)),)))
    assert copy.read_text() == "ver"
    doing = replace(acting(tmp_path), env=source.env)
    for run in newest_to_undo(doing):
        undo(doing, run)
    assert lock.read_text() == "version = 1\n"
    assert sorted(each.name for each in app.iterdir()) == ["uv.lock"]


def _failed_fetch(tmp_path: Path) -> tuple[Source, Path, Step]:
    """As without network: git init made the folder, and nothing came."""
    source, folder = Source(tmp_path), tmp_path / "made/tree"
    away, asked = tmp_path / "away", _checkout(source, folder)
    source.folder.rename(away)
    with pytest.raises(StepFailed):
        _apply(tmp_path, source, asked)
    away.rename(source.folder)
    return source, folder, asked


def test_files_put_into_a_half_made_checkout_are_moved_aside_and_undo_leaves_them(tmp_path: Path) -> None:
    source, folder, asked = _failed_fetch(tmp_path)
    (folder / "mine.txt").write_text("mine\n")
    Path(os.fsdecode(os.fsencode(folder) + b"/no-\xff-text")).touch()
    aside = tmp_path / "made/tree.before-firstlight-1"
    doing = _apply(tmp_path, source, asked)
    assert (aside / "mine.txt").read_text() == "mine\n"
    assert (folder / "zz").exists()
    assert not (folder / "mine.txt").exists()
    assert isinstance(doing.watcher, Quiet)
    assert any(f"moved to {aside}" in line and r"mine.txt, 'no-\udcff-text'" in line for line in doing.watcher.heard)
    for run in newest_to_undo(doing):
        undo(doing, run)
    assert not folder.exists()
    assert (aside / "mine.txt").read_text() == "mine\n"


def test_a_checkout_that_was_made_whole_by_hand_is_kept_with_all_that_is_in_it(tmp_path: Path) -> None:
    source, folder, asked = _failed_fetch(tmp_path)
    for argv in asked.commands:
        subprocess.run(argv, check=True, env=source.env)
    (folder / "mine.txt").write_text("mine\n")
    (folder / "aa").write_text("changed\n")
    before = tree(folder)
    _apply(tmp_path, source, asked)
    assert tree(folder) == before


def test_an_edit_in_a_killed_checkout_is_moved_aside(tmp_path: Path) -> None:
    source, folder = Source(tmp_path), tmp_path / "made/tree"
    source.sign.touch()
    with pytest.raises(StepFailed):
        _apply(tmp_path, source, _checkout(source, folder))
    (folder / "aa").write_text("edited\n")
    _apply(tmp_path, source, _checkout(source, folder))
    assert (tmp_path / "made/tree.before-firstlight-1/aa").read_text() == "edited\n"
    assert (folder / "aa").read_text() == "a\n"


@pytest.mark.parametrize("mine", ["notes.txt", "lib/{python}/site-packages/mytool.py", "bin/mytool"])
def test_files_in_a_killed_environment_are_moved_aside(tmp_path: Path, mine: str) -> None:
    folder, sign = tmp_path / "venv", tmp_path / "kill"
    make = f'{sys.executable} -m venv --without-pip "$1"; if [ -e {sign} ]; then rm {sign}; kill -9 $$; fi'
    done = Condition(CheckKind.FILE_EXISTS, str(folder / "bin/python"))
    asked = step(
        "01-venv", kind=StepKind.VENV, commands=(("sh", "-c", make, "sh", str(folder)),),
        undo=(("rm", "-rf", str(folder)),), done_when=(done,),
    )  # fmt: skip
    source, aside = Source(tmp_path), tmp_path / "venv.before-firstlight-1"
    for added in (False, True):
        sign.touch()
        with pytest.raises(StepFailed):
            _apply(tmp_path, source, asked)
        assert not aside.exists(), "nothing but venv's own was there"
        name = mine.format(python=f"python3.{sys.version_info[1]}")
        if added:
            (folder / name).write_text("mine\n")
    _apply(tmp_path, source, asked)
    assert (aside / name).read_text() == "mine\n"
    assert not (folder / name).exists()


def test_files_in_a_killed_unpacking_are_moved_aside_and_the_archives_own_are_not(tmp_path: Path) -> None:
    (tmp_path / "from/lib").mkdir(parents=True)
    (tmp_path / "from/lib/libone.so").write_text("one\n")
    archive, folder, sign = tmp_path / "a.tar", tmp_path / "unpacked", tmp_path / "kill"
    argv = ["tar", "--create", "--file", str(archive), "--directory", str(tmp_path / "from"), "lib"]
    subprocess.run(argv, check=True)
    asked = step(
        "01-archive", kind=StepKind.ARCHIVE, undo=(("rm", "-rf", str(folder)),),
        commands=(
            ("mkdir", "-p", str(folder)),
            ("tar", "--extract", "--file", str(archive), "--directory", str(folder), "--transform", "s|.*/||"),
            ("sh", "-c", f"if [ -e {sign} ]; then rm {sign}; kill -9 $$; fi"),
        ),
        done_when=(Condition(CheckKind.FILE_EXISTS, str(folder / "libone.so")),),
    )  # fmt: skip
    source, aside = Source(tmp_path), tmp_path / "unpacked.before-firstlight-1"
    for added in (False, True):
        sign.touch()
        with pytest.raises(StepFailed):
            _apply(tmp_path, source, asked)
        assert not aside.exists()
        if added:
            (folder / "mine.txt").write_text("mine\n")
    _apply(tmp_path, source, asked)
    assert (aside / "mine.txt").read_text() == "mine\n"
    assert not (folder / "mine.txt").exists()


@pytest.mark.parametrize("mine", ["", "mine.txt"], ids=["empty", "with somebody's file"])
def test_undo_takes_the_folders_above_a_checkout_where_they_are_empty(tmp_path: Path, mine: str) -> None:
    source, above = Source(tmp_path), tmp_path / "made/source"
    doing = _apply(tmp_path, source, _checkout(source, above / "tree"))
    if mine:
        (above.parent / mine).write_text("mine\n")
    for run in newest_to_undo(doing):
        undo(doing, run)
    assert not above.exists()
    assert above.parent.exists() is bool(mine)
