"""Steps that change packages never lose one: what cannot be seen is not empty, and 'taken back' is earned."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.conditions import Met, all_met, installed_distributions
from firstlight.apply.environments import look_at
from firstlight.apply.executor import StepFailed
from firstlight.apply.package_sets import manual_packages, packages
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.errors import CouldNotAct
from firstlight.facts.known import Known, Unknown
from firstlight.ways.step import CheckKind, Condition
from tests.apply.acting import Quiet, acting
from tests.apply.pip_environments import Pip

NO_ANSWER = 'import os, sys\nif "-I" in sys.orig_argv: os._exit(7)\n'


@pytest.fixture
def env(tmp_path: Path) -> Pip:
    return Pip(tmp_path)


def _silent(env: Pip) -> Path:
    """From now on the environment's Python gives no answer to a question; pip in it works."""
    hook = env.site / "sitecustomize.py"
    hook.write_text(NO_ANSWER)
    return hook


def test_a_step_does_not_begin_where_the_interpreter_gives_no_answer(env: Pip) -> None:
    before = env.files()
    hook = _silent(env)
    with pytest.raises(CouldNotAct, match=r"could not be seen.*exit status 7.*The step was not begun.*--python"):
        env.apply("demo==2.0")
    hook.unlink()
    assert env.files() == before
    heard = env.undo()
    assert env.files() == before, heard
    assert not any("uninstall" in each for each in heard)


def test_an_interpreter_that_hangs_is_not_an_empty_environment(env: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    (env.site / "sitecustomize.py").write_text("import time; time.sleep(30)\n")
    monkeypatch.setattr("firstlight.apply.environments.LIMIT_S", 0.5)
    seen = look_at(env.python)
    assert isinstance(seen, Unknown)
    assert "no answer within 0.5 s" in seen.reason


@pytest.mark.parametrize(("kills", "expected"), [(1, Known), (2, Unknown)])
def test_a_look_that_was_killed_is_tried_once_more(env: Pip, kills: int, expected: type) -> None:
    for number in range(kills):
        (env.folder / f"kill-{number}").touch()
    (env.site / "sitecustomize.py").write_text(
        f"import glob, os\nfound = glob.glob({str(env.folder / 'kill-*')!r})\n"
        "if found: os.unlink(found[0]); os.kill(os.getpid(), 9)\n"
    )
    assert isinstance(look_at(env.python), expected)
    assert isinstance(look_at(env.python), Known), "two were asked, not three"


def test_where_every_look_is_killed_once_a_step_is_done_and_taken_back_without_a_question(env: Pip) -> None:
    (env.site / "sitecustomize.py").write_text(
        f"import os, sys\nplace = {str(env.folder / 'killed-one')!r}\nif '-I' in sys.orig_argv:\n"
        "    if os.path.exists(place): os.rmdir(place)\n    else: os.mkdir(place); os.kill(os.getpid(), 9)\n"
    )
    before = env.files()
    env.apply("demo==2.0")
    assert env.files() != before
    heard = env.undo()
    assert env.files() == before
    assert not any("Remove " in each for each in heard)


def test_an_environment_that_is_not_made_yet_is_known_to_be_empty_and_one_without_its_python_is_not(env: Pip) -> None:
    assert isinstance(look_at(str(env.folder / "none/bin/python")), Known)
    os.unlink(env.python)
    assert isinstance(look_at(env.python), Unknown)
    os.symlink("/nowhere/python3", env.python)
    assert isinstance(look_at(env.python), Unknown)


def test_undo_takes_nothing_away_where_what_is_there_now_cannot_be_seen(env: Pip) -> None:
    before = env.files()
    env.apply("demo==2.0")
    after = env.files()
    hook = _silent(env)
    with pytest.raises(CouldNotAct, match=r"could not be seen.*No package was taken away"):
        env.undo()
    hook.unlink()
    assert env.files() == after
    env.undo()
    assert env.files() == before


def test_where_nobody_saw_what_the_step_left_what_came_since_is_asked_for(env: Pip) -> None:
    before = env.files()
    plan = env.step("demo==2.0")
    turn_silent = ("sh", "-c", f"printf '%s' '{NO_ANSWER}' > {env.site}/sitecustomize.py")
    doing = acting(env.folder)
    with pytest.raises(StepFailed, match="exit status 7"):
        act(doing, Asked((replace(plan, commands=(*plan.commands, turn_silent)),), "d", "o", "t"))
    (env.site / "sitecustomize.py").unlink()
    with pytest.raises(CouldNotAct, match="extra may be somebody's own"):
        env.undo()
    assert "extra==0.1" in installed_distributions(env.python)
    doing = acting(env.folder)
    assert isinstance(doing.watcher, Quiet)
    doing.watcher.answer = True
    for each in newest_to_undo(doing):
        undo(doing, each)
    assert env.files() == before


def test_an_empty_set_in_a_journal_of_before_is_never_trusted(env: Pip) -> None:
    env.apply("demo==2.0")
    path = env.folder / "state/journal.jsonl"
    _rewrite(path, env)
    kept = env.files()
    with pytest.raises(CouldNotAct, match=r"took nothing away.*older firstlight.*held no package before"):
        env.undo()
    assert env.files() == kept
    shutil.rmtree(env.site / "demo")
    shutil.rmtree(env.site / "demo-2.0.dist-info")
    assert any("nothing to take back" in each for each in env.undo())


def _rewrite(path: Path, env: Pip) -> None:
    """The journal as the firstlight before this wrote it while the interpreter gave no answer."""
    import hashlib

    lines, last = [], ""
    for line in path.read_text().splitlines():
        record = json.loads(line)
        about = record["about"]
        if record["event"] == "set-saved":
            about = {key: about[key] for key in ("run", "step", "of", "target")} | {"before": []}
        text = json.dumps({**record, "about": about, "before": last}, sort_keys=True) + "\n"
        last = hashlib.sha256(text.encode()).hexdigest()[:16]
        lines.append(text)
    path.write_text("".join(lines))


def _odd(env: Pip, name: str, **files: str) -> None:
    folder = env.site / name
    folder.mkdir()
    for file, text in files.items():
        (folder / file).write_text(text)


ODD = (
    ("odd-3.1.dist-info", {"METADATA": "Metadata-Version: 2.1\nName: odd\n\n", "RECORD": ""}, "odd==3.1"),
    ("odd.dist-info", {"METADATA": "Name: odd\n", "RECORD": ""}, "odd=="),
    ("odd-3.1.dist-info", {"RECORD": ""}, "odd==3.1"),
    ("odd-3.1.egg-info", {"PKG-INFO": "Name: Odd\nVersion: 3.1\n"}, "odd==3.1"),
    ("odd-3.1-py3.11.egg-info", {"top_level.txt": "odd\n"}, "odd==3.1"),
    ("odd-3.1.dist-info", {"METADATA": "Name: odd\nVersion: 3.1\n", "RECORD": '"x'}, "odd==3.1"),
)


def test_odd_metadata_does_not_break_a_listing(env: Pip) -> None:
    for folder, files, pin in ODD:
        _odd(env, folder, **files)
        assert installed_distributions(env.python) == tuple(sorted(("demo==1.0", "part==1.0", pin))), folder
        shutil.rmtree(env.site / folder)


def test_metadata_without_a_version_does_not_keep_a_step_from_being_done_and_taken_back(env: Pip) -> None:
    _odd(env, "odd-3.1.dist-info", METADATA="Metadata-Version: 2.1\nName: odd\n\n", RECORD="")
    before = env.files()
    env.apply("extra==0.1")
    assert "extra==0.1" in installed_distributions(env.python)
    env.undo()
    assert env.files() == before


def test_a_package_is_there_only_where_the_files_of_its_record_are(env: Pip) -> None:
    def met() -> Met:
        return all_met((Condition(CheckKind.DISTRIBUTIONS, env.python, "demo==1.0"),))

    assert met().holds
    (env.site / "demo/__init__.py").write_text("edited by its owner, which is fine\n")
    assert met().holds
    (env.site / "demo/__init__.py").write_text("")
    assert "demo 1.0 is there in part: 1 of its" in met().saw
    (env.site / "demo/__init__.py").unlink()
    assert not met().holds
    (env.site / "demo-1.0.dist-info/RECORD").unlink()
    assert met() == Met(holds=False, saw="demo 1.0 is there in part: it has no RECORD of its files")


def test_leftovers_of_a_killed_pip_are_not_installed_and_go_once_the_package_is_whole(env: Pip) -> None:
    os.rename(env.site / "demo-1.0.dist-info", env.site / "~emo-1.0.dist-info")
    os.rename(env.site / "demo", env.site / "~emo")
    assert installed_distributions(env.python) == ("part==1.0",)
    env.apply("demo==1.0")
    assert env.debris == []
    assert "demo==1.0" in installed_distributions(env.python)


def test_leftovers_of_a_package_that_is_not_whole_are_said_and_left_unless_a_person_says_yes(env: Pip) -> None:
    os.rename(env.site / "part-1.0.dist-info", env.site / "~art-1.0.dist-info")
    doing = acting(env.folder)
    assert isinstance(doing.watcher, Quiet)
    act(doing, Asked((env.step("extra==0.1"),), "d", "o", "t"))
    assert any("part is not whole here" in each for each in doing.watcher.heard)
    assert env.debris == ["~art-1.0.dist-info"]
    doing.watcher.answer = True
    make = env.step("demo==1.0")
    act(doing, Asked((make,), "e", "o", "t"))


@pytest.mark.parametrize("lost", ["demo/__init__.py", "demo-1.0.dist-info/RECORD"])
def test_a_package_that_is_there_in_part_is_made_whole(env: Pip, lost: str) -> None:
    (env.site / lost).unlink()
    env.apply("demo==1.0")
    assert (env.site / lost).exists()
    assert (env.site / "demo/__init__.py").read_text() == "VERSION = '1.0'\n"


def test_what_came_from_a_file_is_not_fetched_from_an_index_under_its_name(env: Pip) -> None:
    wheel = str(env.wheels / "demo-1.0-py3-none-any.whl")
    env.install("--reinstall-package", "demo", wheel)
    before = env.files()
    env.apply("demo==2.0")
    with pytest.raises(CouldNotAct, match=r"held demo==1\.0, from a folder or a file.*nothing was taken away now"):
        env.undo()
    assert "demo==2.0" in installed_distributions(env.python)
    env.install(wheel)
    env.undo()
    assert env.files() == before


def test_what_python_prints_at_start_is_no_part_of_an_answer(env: Pip) -> None:
    before = installed_distributions(env.python)
    (env.site / "loud.pth").write_text("import os; os.write(1, b'hello {\"distributions\": [')\n")
    (env.site / "sitecustomize.py").write_text(
        "import atexit, sys\nprint('covered by somebody')\natexit.register(print, 'bye')\nsys.stdout.flush()\n"
    )
    assert installed_distributions(env.python) == before
    env.apply("demo==2.0")
    env.undo()
    assert installed_distributions(env.python) == before


def test_a_question_to_dpkg_that_was_killed_is_asked_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = packages()
    real = shutil.which("dpkg-query")
    script = tmp_path / "dpkg-query"
    script.write_text(f'#!/bin/sh\nmkdir {tmp_path}/asked 2>/dev/null && kill -9 $$\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert packages() == asked
    assert (tmp_path / "asked").is_dir()


@pytest.mark.parametrize("question", [manual_packages, packages])
def test_a_dpkg_or_apt_that_gives_no_answer_is_not_a_machine_without_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: Callable[[], list[str]]
) -> None:
    for name in ("dpkg-query", "apt-mark"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'E: The package cache file is corrupted' >&2\nexit 100\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(CouldNotAct, match=r"ended with 100 \(E: The package cache file is corrupted\)"):
        question()
