"""`firstlight apply` as a person meets it: the real command line, a real environment and real signals."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from firstlight.apply.conditions import installed_distributions
from firstlight.apply.lock import machine_lock
from tests.apply.acting import tree
from tests.apply.commanding import WANT, Person, make_environment
from tests.schemas import fits

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/apply-1.json").read_text())
MOST_RUNS = 5  # of apply in one test


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture
def person(tmp_path: Path, venv: Path) -> Iterator[Person]:
    """One environment for all tests: each leaves it as it was, which is what undo is for."""
    before = installed_distributions(str(venv / "bin/python"))
    somebody = Person(tmp_path, venv)
    yield somebody
    (somebody.hold / "go").touch()
    for _ in range(MOST_RUNS):
        if installed_distributions(somebody.python) == before:
            return
        assert somebody.run("undo", "--yes").returncode == 0
    raise AssertionError(f"undo does not bring back {before}: {installed_distributions(somebody.python)}")


def test_without_a_terminal_and_without_yes_it_refuses_and_writes_nothing(person: Person) -> None:
    done = person.run("apply", *WANT, "--offline", str(person.wheels), "--python", person.python)
    assert done.returncode == 2
    assert "standard input is not a terminal, so nothing can be asked. Give --yes" in done.stderr
    assert not person.state.exists()


@pytest.mark.parametrize(("answer", "status"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_on_a_terminal_it_asks_once_and_no_is_the_default(person: Person, answer: str, status: int) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    words = ["apply", "--tuning", "CUDA_MODULE_LOADING=LAZY", "--no-verify", "--python", person.python]
    done = subprocess.run(
        [sys.executable, "-m", "firstlight", *words], stdin=theirs, capture_output=True, text=True, check=False,
        env=person.environ(), timeout=120,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.stderr.count("Do this? [y/N]") == 1
    assert done.returncode == status, done.stderr
    assert (person.state / "tuning.sh").exists() == (status == 0)
    assert person.state.exists() == (status == 0)


def test_where_everything_is_a_terminal_the_progress_is_drawn_and_taken_away_again(person: Person) -> None:
    ours, theirs = pty.openpty()
    words = ["apply", *WANT, "--offline", str(person.wheels), "--python", person.python, "--no-verify"]
    process = subprocess.Popen(
        [sys.executable, "-m", "firstlight", *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env=person.environ(TERM="xterm", COLUMNS="100"),
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, b"y\n")
    seen = b""
    with suppress(OSError):  # the end of a terminal is an error
        while piece := os.read(ours, 1 << 16):
            seen += piece
    os.close(ours)
    assert process.wait(timeout=120) == 0, seen.decode()
    assert b"[1/1] install torch 2.9.0+cpu" in seen
    assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l") > 0, "the cursor is shown again"


def test_it_shows_the_plan_as_plan_does_then_does_it_and_says_what_it_took(person: Person) -> None:
    plan = person.run("plan", "--tuning", "CUDA_MODULE_LOADING=LAZY", "--python", person.python, "--rate", "2.69")
    done = person.run(
        "apply", "--tuning", "CUDA_MODULE_LOADING=LAZY", "--python", person.python, "--yes", "--no-verify",
        "--rate", "2.69",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(plan.stdout)
    assert "s (expected 1.0 s), " in done.stdout
    assert "cost 0.00 (expected 0.00)" in done.stdout
    assert "run 1: 1 step done in" in done.stdout
    assert "[1/1] write 1 runtime setting" in done.stderr


def test_what_was_done_is_on_the_page_that_is_handed_over(person: Person) -> None:
    assert person.apply().returncode == 0
    page = person.folder / "handover.html"
    (run,) = json.loads(person.run("handover", "--json", "--out", str(page)).stdout)["done"]
    (step,) = run["steps"]
    assert (run["state"], step["title"], step["state"]) == ("done", "install torch 2.9.0+cpu", "done")
    assert step["seconds"] > 0
    assert "-m pip install" in step["commands"]
    assert "back to the earlier versions" in " ".join(step["undo"])
    assert "install torch 2.9.0+cpu" in page.read_text()
    assert person.run("undo", "--yes").returncode == 0
    (run,) = json.loads(person.run("handover", "--json", "--out", str(page)).stdout)["done"]
    assert (run["state"], run["steps"][0]["state"]) == ("taken back", "taken back")


def test_twice_is_nothing_the_second_time(person: Person) -> None:
    first = person.apply("--json")
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    fits(document, SCHEMA)
    assert [(step["state"], step["kind"]) for step in document["steps"]] == [("done", "pip")]
    assert document["steps"][0]["seconds"]["expected"] is None
    assert document["steps"][0]["seconds"]["actual"] > 0
    assert document["to_do"] == []
    assert "torch==2.9.0+cpu" in (installed_distributions(person.python) or ())
    before = tree(person.folder)
    again = person.apply()
    assert again.returncode == 0, again.stderr
    assert "\nnothing to do\n" in again.stdout
    assert again.stdout.count("nothing to do") == 1
    assert tree(person.folder) == before


def test_an_option_that_was_done_is_nothing_the_second_time_though_it_is_offered_no_more(person: Person) -> None:
    option = json.loads(person.apply("--json").stdout)["option"]
    before = tree(person.folder)
    words = ("--python", person.python, "--option", option, "--yes", "--json")
    again = person.run("apply", *words)
    assert again.returncode == 0, again.stderr
    document = json.loads(again.stdout)
    fits(document, SCHEMA)
    assert (document["ending"], document["option"], document["to_do"]) == ("nothing to do", option, [])
    assert tree(person.folder) == before
    assert person.run("undo", "--yes").returncode == 0
    gone = person.run("apply", *words)
    assert (gone.returncode, "no option is called that" in gone.stderr) == (2, True), gone.stderr


def test_a_reader_that_is_gone_does_not_stop_it(person: Person) -> None:
    words = ("apply", *WANT, "--offline", str(person.wheels), "--python", person.python, "--yes", "--no-verify")
    ended = 4
    while ended == 4:  # another test holds the machine's lock
        ours, theirs = os.pipe()
        os.close(ours)
        ended = subprocess.run(
            [sys.executable, "-m", "firstlight", *words], stdout=theirs, stderr=theirs, check=False,
            env=person.environ(), timeout=120,
        ).returncode  # fmt: skip
        os.close(theirs)
    assert ended == 0
    assert "torch==2.9.0+cpu" in (installed_distributions(person.python) or ())


def test_a_dry_run_changes_nothing(person: Person) -> None:
    before = tree(person.folder)
    done = person.run("apply", *WANT, "--offline", str(person.wheels), "--python", person.python, "--dry-run")
    assert (done.returncode, tree(person.folder)) == (0, before)
    assert "--dry-run: nothing was changed" in done.stdout


def test_the_document_of_a_dry_run_has_what_would_be_done_and_how_it_is_taken_back(person: Person) -> None:
    words = (*WANT, "--offline", str(person.wheels), "--python", person.python, "--dry-run", "--json")
    document = json.loads(person.run("apply", *words).stdout)
    fits(document, SCHEMA)
    assert (document["ending"], document["steps"]) == ("shown", [])
    [step] = document["to_do"]
    command, listed = step["commands"][0], step["files"][0]
    assert command[:4] == [person.python, "-m", "pip", "install"]
    assert command[-4:] == ["--find-links", str(person.wheels), "-r", listed]
    assert Path(listed).parent == person.state / "wheels"
    assert step["undo"]
    assert step["holds_already"] is False


def test_the_document_says_which_steps_hold_already(person: Person) -> None:
    words = ("apply", "--tuning", "CUDA_MODULE_LOADING=LAZY", "--python", person.python, "--no-verify")
    assert person.run(*words, "--yes").returncode == 0
    document = json.loads(person.run(*words, "--dry-run", "--json").stdout)
    fits(document, SCHEMA)
    assert document["ending"] == "nothing to do"
    assert [step["holds_already"] for step in document["to_do"]] == [True]
    assert document["to_do"][0]["files"][0] == str(person.state / "tuning.sh")


def test_leftovers_of_a_killed_pip_are_named_where_there_is_nothing_to_do(person: Person) -> None:
    assert person.apply().returncode == 0
    site = next((person.venv / "lib").glob("python3*/site-packages"))
    (site / "~orch").mkdir()
    again = person.apply()
    assert again.returncode == 0
    assert f"left behind by a pip that was killed, and no package: {site / '~orch'}" in again.stderr
    (site / "~orch").rmdir()


def test_a_wheel_that_lacks_is_named_before_anything_is_begun(person: Person) -> None:
    for wheel in person.wheels.glob("sympy-*"):
        wheel.unlink()
    done = person.apply()
    assert done.returncode == 2
    assert f"{person.wheels}: a wheel of sympy for " in done.stderr
    assert not list(person.state.rglob("journal.jsonl"))


def test_a_failure_says_what_failed_what_is_known_of_it_and_how_to_go_on(person: Person) -> None:
    process = person.start_apply()
    person.wait_for("started")
    [wheel] = person.wheels.glob("sympy-*")
    away = wheel.rename(person.folder / wheel.name)
    (person.hold / "go").touch()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "FAILED     install torch 2.9.0+cpu" in said
    assert f"  command  {person.python} -m pip install --isolated --no-deps --no-index --only-binary :all:" in said
    assert "No matching distribution found for sympy" in said
    assert "  explain  " in said
    assert "  go on    `firstlight apply` continues where it stopped" in said
    assert "  back     `firstlight undo` takes back" in said
    log = next(line.split()[-1] for line in said.splitlines() if line.startswith("  log "))
    assert "No matching distribution" in Path(log).read_text()
    away.rename(wheel)
    resumed = person.apply()
    assert resumed.returncode == 0, resumed.stderr
    assert "UNFINISHED  run 1" in resumed.stdout
    assert "run 1 is finished" in resumed.stdout
    assert "nothing to do" in resumed.stdout


@pytest.mark.parametrize(("state", "code", "says"), [
    ("/proc/1/x", 2, "No such file or directory. Set FIRSTLIGHT_STATE_DIR to a folder of your own"),
    ("/sys/x", 1, ". Nothing was changed. "),
])  # fmt: skip
def test_where_no_journal_can_be_made_nothing_is_begun_and_nobody_is_told_to_go_on(
    person: Person, state: str, code: int, says: str
) -> None:
    before = installed_distributions(person.python)
    done = person.apply(FIRSTLIGHT_STATE_DIR=state)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "continues where it stopped" not in done.stderr
    assert "takes back" not in done.stderr
    assert installed_distributions(person.python) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_as_an_interrupt_and_the_next_apply_goes_on(person: Person, number: int) -> None:
    process = _started(person)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "`firstlight apply` continues where it stopped" in said
    assert (person.hold / "heard").read_text() == str(signal.SIGINT.value)
    assert person.apply().returncode == 0
    assert "sympy==1.13.3" in (installed_distributions(person.python) or ())


def test_after_kill_9_the_next_apply_waits_for_the_pip_that_still_runs_and_goes_on(person: Person) -> None:
    process = _started(person)
    process.kill()
    process.communicate()
    [started] = [each for each in person.journal() if each["event"] == "command-started"]
    os.kill(started["about"]["process"], 0)  # it is still there
    again = person.start_apply()
    assert again.stderr is not None
    for line in again.stderr:
        if "waiting for process" in line:
            break
    else:
        raise AssertionError("it did not wait")
    (person.hold / "go").touch()
    out, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert "run 1 is finished" in out
    commands = [each["about"]["argv"] for each in person.journal() if each["event"] == "command-started"]
    assert len(commands) == 1, "the pip that went on did it; there was nothing left to run"


def _started(person: Person) -> subprocess.Popen[str]:
    """An apply that stands in the middle of its pip."""
    for _ in range(100):
        process = person.start_apply()
        while process.poll() is None and not (person.hold / "started").exists():
            time.sleep(0.05)
        if process.poll() is None:
            return process
        assert process.returncode == 4, process.communicate()
        time.sleep(1)
    raise AssertionError("another firstlight never ended")


def test_a_second_apply_at_the_same_time_is_told_to_wait(person: Person) -> None:
    with machine_lock():
        process = person.start_apply()
        _, said = process.communicate(timeout=120)
    assert process.returncode == 4
    assert f"another firstlight is changing this machine: process {os.getpid()}" in said


def test_what_only_a_person_can_do_is_shown_as_such(person: Person) -> None:
    done = person.run("apply", "--want", "torch==2.9.0", "--python", person.python, "--yes")
    assert done.returncode == 1
    assert "nothing was changed: what firstlight can do waits for what you have to do first" in done.stdout
    assert "left for you\n  - start the container again" in done.stdout
    assert not person.state.exists()


def test_verify_that_fails_is_told_apart_from_the_steps(person: Person) -> None:
    done = person.run("apply", *WANT, "--offline", str(person.wheels), "--python", person.python, "--yes", "--json")
    assert done.returncode == 1
    assert "the steps are done, and verify failed: import" in done.stderr
    document = json.loads(done.stdout)
    fits(document, SCHEMA)
    assert document["ending"] == "done"
    assert document["verify"]["exit_code"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--with", "no-such-step", *WANT), "this plan has no optional step. Leave --with out."),
        (("--offline", "no/such", *WANT), "no such file or directory; accepted: a folder of wheels"),
        (("--option", "7", *WANT), "--option 7: accepted: 1, or an id"),
        (("--rate", "-1", *WANT), "accepted is the price of an hour"),
        (("--tuning", "NO_SUCH=1"), "not known to read"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_done(
    person: Person, words: tuple[str, ...], said: str
) -> None:
    done = person.run("apply", "--yes", "--python", person.python, *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not person.state.exists()


def test_a_bundle_says_itself_what_is_wanted_and_one_that_was_changed_is_refused(person: Person) -> None:
    facts = person.folder / "facts.json"
    facts.write_text(person.run("facts", "--json").stdout)
    out = person.folder / "bundle"
    made = person.run(
        "bundle", *WANT, "--facts", str(facts), "--find-links", str(person.wheels), "--out", str(out)
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    given = ("--offline", str(out), "--python", person.python, "--yes", "--no-verify")
    done = person.run("apply", *given)
    assert done.returncode == 0, done.stderr
    assert "torch==2.9.0+cpu" in (installed_distributions(person.python) or ())
    assert person.run("undo", "--yes").returncode == 0
    [wheel] = out.glob("sympy-*")
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    refused = person.run("apply", *given)
    assert refused.returncode == 2
    assert wheel.name in refused.stderr
