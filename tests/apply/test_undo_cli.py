"""`firstlight undo` as a person meets it: what it shows, what it takes back, what it refuses to lose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firstlight.apply.conditions import installed_distributions
from tests.apply.acting import tree
from tests.apply.commanding import Person, make_environment
from tests.apply.wheels import make_wheel
from tests.schemas import fits

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/undo-1.json").read_text())
TUNING = ("apply", "--tuning", "CUDA_MODULE_LOADING=LAZY", "--yes", "--no-verify")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture
def person(tmp_path: Path, venv: Path) -> Person:
    return Person(tmp_path, venv)


def _tuned(person: Person) -> Path:
    done = person.run(*TUNING, "--python", person.python)
    assert done.returncode == 0, done.stderr
    return person.state / "tuning.sh"


def test_where_nothing_was_applied_there_is_nothing_to_undo_and_nothing_is_written(person: Person) -> None:
    before = tree(person.folder)
    for words in (("undo",), ("undo", "--list"), ("undo", "--yes")):
        assert person.run(*words).returncode == 0
    assert "nothing to undo" in person.run("undo").stdout
    document = json.loads(person.run("undo", "--json").stdout)
    fits(document, SCHEMA)
    assert (document["ending"], document["run"]) == ("nothing to do", None)
    assert tree(person.folder) == before


def test_it_takes_back_one_run_a_call_newest_first_and_says_how_many_are_left(person: Person) -> None:
    before = installed_distributions(person.python)
    settings = _tuned(person)
    assert person.apply().returncode == 0
    asked = person.run("undo")
    assert asked.returncode == 2
    assert "run 2    install torch 2.9.0+cpu" in asked.stdout
    assert "Give --yes to take it back without asking" in asked.stderr
    first = person.run("undo", "--yes")
    assert first.returncode == 0, first.stderr
    assert "run 2 is taken back; 1 run left to take back" in first.stdout
    assert installed_distributions(person.python) == before
    assert settings.exists()
    second = person.run("undo", "--yes", "--json")
    document = json.loads(second.stdout)
    fits(document, SCHEMA)
    assert (document["ending"], document["run"]["number"], document["left"]) == ("done", 1, 0)
    assert not (person.folder / "xdg").exists(), "the folders that it made are gone too"
    listed = json.loads(person.run("undo", "--list", "--json").stdout)
    fits(listed, SCHEMA)
    assert [(run["number"], run["state"]) for run in listed["runs"]] == [(2, "taken back"), (1, "taken back")]
    assert "nothing to undo" in person.run("undo", "--yes").stdout


def test_a_file_that_somebody_edited_since_is_named_and_kept(person: Person) -> None:
    settings = _tuned(person)
    settings.write_text(settings.read_text() + "export MINE=1\n")
    done = person.run("undo", "--yes")
    assert done.returncode == 1
    assert f"{settings} was changed after firstlight wrote it" in " ".join(done.stderr.split())
    assert settings.read_text().endswith("export MINE=1\n")
    settings.rename(settings.with_name("mine.sh"))
    assert person.run("undo", "--yes").returncode == 0
    assert settings.with_name("mine.sh").exists()


def test_a_journal_that_was_opened_to_others_is_closed_by_the_command_that_is_named(person: Person) -> None:
    settings = _tuned(person)
    [journal] = person.state.glob("machines/*/journal.jsonl")
    for opened in (journal, journal.parent):
        opened.chmod(opened.stat().st_mode | 0o022)
        refused = person.run("undo", "--yes")
        assert refused.returncode == 2, refused.stderr
        assert "take it away" not in refused.stderr, "that would cost undo"
        command = refused.stderr.split("close it with `")[1].split("`")[0]
        assert command == f"chmod go-w {opened}"
        subprocess.run(["sh", "-c", command], check=True)
    assert person.run("undo", "--yes").returncode == 0
    assert not settings.exists()


def test_packages_that_somebody_added_since_stay(person: Person) -> None:
    assert person.apply().returncode == 0
    make_wheel(person.wheels, "theirs", "1.0")
    install = [person.python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(person.wheels)]
    subprocess.run([*install, "theirs"], check=True)
    assert person.run("undo", "--yes").returncode == 0
    left = installed_distributions(person.python) or ()
    assert "theirs==1.0" in left
    assert not any(each.startswith(("torch==", "sympy==")) for each in left)
    subprocess.run([person.python, "-m", "pip", "uninstall", "--quiet", "--yes", "theirs"], check=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_undo_that_was_stopped_is_finished_by_the_next(person: Person, number: int) -> None:
    before = installed_distributions(person.python)
    assert person.apply().returncode == 0
    process = person.start("undo", "--yes", HOLD_PIP=str(person.hold))
    person.wait_for("started")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    (person.hold / "go").touch()
    assert "being taken back, interrupted" in person.run("undo", "--list").stdout
    done = person.run("undo", "--yes")
    assert done.returncode == 0, done.stderr
    assert installed_distributions(person.python) == before


def test_a_run_that_was_killed_half_way_can_be_taken_back_without_finishing_it(person: Person) -> None:
    before = installed_distributions(person.python)
    process = person.start_apply()
    person.wait_for("started")
    process.kill()
    process.communicate()
    undo = subprocess.Popen(
        [sys.executable, "-m", "firstlight", "undo", "--yes"], env=person.environ(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(2)
    assert undo.poll() is None, "it waits for the pip that still runs"
    (person.hold / "go").touch()
    out, said = undo.communicate(timeout=120)
    assert undo.returncode == 0, said
    assert "run 1 is taken back" in out
    assert installed_distributions(person.python) == before


def test_an_environment_that_is_away_keeps_its_run_open_until_it_is_back(person: Person) -> None:
    settings = _tuned(person)
    mine = make_environment(person.folder / "own")
    given = ("--offline", str(person.wheels), "--python", str(mine / "bin/python"), "--yes", "--no-verify")
    assert person.run("apply", "--want", "torch==2.9.0+cpu", *given).returncode == 0
    os.rename(mine, person.folder / "elsewhere")
    done = person.run("undo", "--yes")
    assert done.returncode == 1, done.stderr
    assert "is gone: there is no environment to bring packages back to" in done.stderr
    assert settings.exists()
    os.rename(person.folder / "elsewhere", mine)
    assert person.run("undo", "--yes").returncode == 0
    assert person.run("undo", "--yes").returncode == 0
    assert not settings.exists()
