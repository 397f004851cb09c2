"""A plan is parted by who does its steps; what is not ours to remove is not removed; any text survives the journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.footprints import lock_is_held, project_files
from firstlight.apply.package_sets import Difference, sources_of
from firstlight.apply.parts import parted
from firstlight.apply.runs import steps_from_json, steps_to_json
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.diagnosis.finding import Goal
from firstlight.errors import BadInput, CouldNotAct
from firstlight.plan.plan import plan_for
from firstlight.ways import kinds
from firstlight.ways.back import moved_back
from firstlight.ways.extras import Extras
from firstlight.ways.persons import asked
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.ways.way import Way
from tests.apply.acting import Quiet, acting, step
from tests.plan.planning import question_of, ranked_of
from tests.ways.machines import at

EDIT = step("01-edit")
BY_HAND = step("02-this-shell", kind=StepKind.MANUAL)
PACKAGE = replace(step("03-remove-cuda-compat-13-0", kind=StepKind.APT), optional=True)
SETTINGS = replace(step("04-write-runtime-settings", kind=StepKind.TUNING), optional=True)


def _ids(steps: tuple[Step, ...]) -> list[str]:
    return [each.id for each in steps]


def test_optional_steps_are_left_out_unless_they_were_asked_for() -> None:
    parts = parted((EDIT, BY_HAND, PACKAGE, SETTINGS))
    assert _ids(parts.ours) == ["01-edit", "04-write-runtime-settings"], "settings are asked for by --tuning"
    assert _ids(parts.persons) == ["02-this-shell"]
    assert _ids(parts.left_out) == ["03-remove-cuda-compat-13-0"]


@pytest.mark.parametrize("name", ["all", "03-remove-cuda-compat-13-0", "remove-cuda-compat-13-0"])
def test_an_optional_step_is_asked_for_by_its_id_with_or_without_its_number(name: str) -> None:
    assert "03-remove-cuda-compat-13-0" in _ids(parted((EDIT, PACKAGE), (name,)).ours)


def test_a_name_that_is_no_optional_step_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput, match="'edit': no optional step is called that; accepted: remove-cuda-compat-13-0"):
        parted((EDIT, PACKAGE), ("edit",))


def test_steps_that_build_on_what_a_person_does_wait_and_the_others_do_not() -> None:
    repository = step("01-set-up-repository", kind=StepKind.MANUAL)
    package, wiring = step("02-install", kind=StepKind.APT), step("03-wire", kind=StepKind.COMPAT)
    wheels, reboot = step("04-wheels", kind=StepKind.PIP), step("05-reboot", kind=StepKind.MANUAL)
    parts = parted((repository, package, wiring, wheels, reboot))
    assert _ids(parts.waiting) == ["02-install", "03-wire"]
    assert _ids(parts.ours) == ["04-wheels"]


def _by_person(way: Way) -> Step:
    return asked(way, at("secure-boot"), why="only you can")


def test_what_comes_behind_a_persons_step_that_changes_something_waits_and_what_comes_before_it_does_not() -> None:
    off = _by_person(kinds.AskPerson("turn-secure-boot-off", kinds.Why.FIRMWARE))
    parts = parted((EDIT, off, step("03-load-nvidia", kind=StepKind.COMMAND), PACKAGE))
    assert _ids(parts.ours) == ["01-edit"]
    assert _ids(parts.waiting) == ["03-load-nvidia"]
    assert _ids(parts.left_out) == ["03-remove-cuda-compat-13-0"]
    assert parts.unfinished


@pytest.mark.parametrize(
    "way",
    [
        kinds.AskPerson("look-for-empty-libraries", kinds.Why.DECISION, cures=False),
        kinds.AskPerson("start-elsewhere", kinds.Why.PROGRAM),
        kinds.SetVariables((kinds.Variable("MAX_JOBS", "4"),), kinds.Scope.PROGRAM),
    ],
)
def test_nothing_waits_for_a_look_nor_for_how_a_program_is_started(way: Way) -> None:
    assert _ids(parted((_by_person(way), step("02-wheels", kind=StepKind.PIP))).ours) == ["02-wheels"]


@pytest.mark.parametrize(("machine", "goal"), [("secure-boot", Goal.INFER), ("docker-no-gpus", Goal.BUILD_EXTENSIONS)])
def test_no_module_is_loaded_before_the_firmware_lets_it_in_and_no_container_filled_that_is_left(
    machine: str, goal: Goal
) -> None:
    options = ranked_of(machine, goal).options
    by_hand = [each for each in options if isinstance(each.ways[0], kinds.AskPerson | kinds.StartContainer)]
    assert by_hand
    for option in by_hand:
        parts = parted(plan_for(question_of(machine, goal), option, extras=Extras()).steps)
        assert not parts.ours
        assert parts.waiting or len(option.ways) == 1


def test_texts_of_any_length_and_any_bytes_come_back_from_the_journal() -> None:
    odd = b"\xff\r\n\x1b[31m".decode("utf-8", "surrogateescape") + "long\n" * 40_000
    steps = (
        step(
            "01-odd", files=(FileChange("/home/user-a/.profile", odd, odd + "x"),),
            done_when=(Condition(CheckKind.FILE_HOLDS, "/home/user-a/.profile", odd + "x"),),
        ),
    )  # fmt: skip
    assert steps_from_json(steps_to_json(steps)) == steps


def test_a_plan_that_cannot_be_written_down_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    odd = step("01-odd", commands=(("touch", f"{tmp_path}/made\x1b"),), kind=StepKind.GIT)
    doing = acting(tmp_path)
    with pytest.raises(CouldNotAct, match=r"control character.*Nothing was changed"):
        act(doing, Asked((odd,), "d", "o", "t"))
    assert doing.journal.records == []


def test_a_folder_that_was_there_before_is_not_removed_by_undo(tmp_path: Path) -> None:
    mine, new = tmp_path / "mine", tmp_path / "new"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work\n")
    made = step(
        "01-make", kind=StepKind.ARCHIVE, commands=(("mkdir", "-p", str(mine), str(new)), ("touch", f"{mine}/lib.so")),
        done_when=(Condition(CheckKind.FILE_EXISTS, f"{mine}/lib.so"),),
        undo=(("rm", "-rf", str(mine)), ("rm", "-rf", str(new))),
    )  # fmt: skip
    doing = acting(tmp_path)
    [run] = act(doing, Asked((made,), "d", "o", "t"))
    assert [each.number for each in newest_to_undo(doing)] == [run.number]
    undo(doing, newest_to_undo(doing)[0])
    assert (mine / "thesis.txt").read_text() == "years of work\n"
    assert not new.exists()
    assert isinstance(doing.watcher, Quiet)
    assert f"{mine} was there before firstlight: it is left as it is" in doing.watcher.heard


def test_a_copy_of_somebodys_own_beside_the_lock_file_is_left_by_undo(tmp_path: Path) -> None:
    lock, copy = tmp_path / "uv.lock", tmp_path / "uv.lock.before-firstlight"
    lock.write_text("version = 1\n")
    copy.write_text("mine\n")
    settle = ("sh", "-c", f"echo version = 2 > {lock}", "sh", "--project", str(tmp_path))
    made = step(
        "01-project", kind=StepKind.PROJECT, commands=(("cp", "--no-clobber", str(lock), str(copy)), settle),
        done_when=(Condition(CheckKind.FILE_HAS_LINE, str(lock), "version = 2"),),
    )  # fmt: skip
    doing = acting(tmp_path)
    act(doing, Asked((replace(made, back=(moved_back(str(copy), str(lock)),)),), "d", "o", "t"))
    undo(doing, newest_to_undo(doing)[0])
    assert (lock.read_text(), copy.read_text()) == ("version = 1\n", "mine\n")
    assert isinstance(doing.watcher, Quiet)
    assert f"{copy} was there before firstlight: it is left as it is" in doing.watcher.heard


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    lacking = step("01-run", kind=StepKind.GIT, commands=(("no-such-program", "--now"),))
    with pytest.raises(CouldNotAct, match="ended with status 127: no-such-program --now"):
        act(acting(tmp_path), Asked((lacking,), "d", "o", "t"))


def test_the_files_that_a_project_tool_writes_itself_are_known() -> None:
    settle = step(
        "01-keep", kind=StepKind.PROJECT, files=(FileChange("/home/user-a/app/pyproject.toml", "a", "b"),),
        commands=(("uv", "lock", "--project", "/home/user-a/app"), ("uv", "sync", "--project", "/home/user-a/app")),
    )  # fmt: skip
    assert project_files(settle) == ("/home/user-a/app/uv.lock",)
    pixi = ("pixi", "install", "--manifest-path", "/home/user-a/app/pixi.toml")
    added = replace(settle, files=(), commands=(pixi,))
    assert project_files(added) == ("/home/user-a/app/pixi.toml", "/home/user-a/app/pixi.lock")
    assert project_files(EDIT) == ()


@pytest.mark.parametrize(
    "line",
    [
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (unattended-upgr)",
        "dpkg: error: dpkg frontend lock was locked by another process with pid 812",
        "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?",
        "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)",
    ],
)
def test_a_lock_that_is_held_is_told_from_other_failures(line: str) -> None:
    assert lock_is_held(("Reading package lists...", line)) == line
    assert lock_is_held(("E: Unable to locate package cuda-compat-13-0",)) == ""


def test_what_was_there_is_fetched_from_where_it_came() -> None:
    pip = ("python3", "-m", "pip", "install", "torch==2.14.1", "--index-url", "https://download.pytorch.org/whl/cu130")
    back = ("torch==2.10.0.dev20251024+cu130", "torchvision==0.24.0+cu128", "numpy==2.1.0")
    words = sources_of(step("01-install", kind=StepKind.PIP, commands=(pip,)), Difference((), back))
    assert words[::2] == ("--extra-index-url",) * 3
    assert [word.removeprefix("https://download.pytorch.org/whl/") for word in words[1::2]] == [
        "cu130", "nightly/cu130", "cu128",
    ]  # fmt: skip
    offline = step(
        "01-install", kind=StepKind.PIP, commands=((*pip[:5], "--no-index", "--find-links", "/media/wheels"),)
    )
    assert sources_of(offline, Difference((), back)) == ("--no-index", "--find-links", "/media/wheels")


def test_builds_for_amd_and_intel_are_looked_for_on_pytorchs_index_too() -> None:
    pip = ("python", "-m", "pip", "install", "torch==2.9.0")
    back = ("torch==2.8.0+rocm6.4", "torchvision==0.23.0+xpu", "numpy==2.0.0", "torch==2.9.0a0+nv25.9")
    words = sources_of(step("01-install", kind=StepKind.PIP, commands=(pip,)), Difference((), back))
    found = [word.rpartition("/whl/")[2] for word in words if word.startswith("https")]
    assert found == ["rocm6.4", "xpu"]
