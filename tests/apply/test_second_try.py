"""kill -9 inside git: half a checkout is not taken for a whole one, and its locks do not stop the next attempt."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import Acting, StepFailed
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.plan.back import moved_back
from firstlight.plan.step import CheckKind, Condition, Step, StepKind
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
