"""A child begun ahead is the one that is asked later, and none is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from firstlight import ahead
from firstlight.facts.children import child_script
from firstlight.facts.compat import HUNG_AFTER_S, LIBCUDA_CHILD
from firstlight.facts.nvml import ask_nvml
from firstlight.machine.interface import ChildScript
from firstlight.machine.live import LiveMachine

NO_LIBCUDA = {"LD_LIBRARY_PATH": "/nowhere", "PATH": os.environ["PATH"]}


def _children() -> set[str]:
    mine = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(mine.read_text().split())


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_who_asks_for_cuinit_gets_the_child_that_was_begun(tmp_path: Path) -> None:
    before = _children()
    ahead.begin("libcuda", str(HUNG_AFTER_S), env=NO_LIBCUDA)
    [begun] = _children() - before
    said = LiveMachine(environ=NO_LIBCUDA).child(child_script(LIBCUDA_CHILD), str(HUNG_AFTER_S))
    assert said.ok
    assert "load_error" in said.answer or "init_code" in said.answer
    assert ahead._unasked == []  # the very child: same script, arguments and environment as the facts ask for
    for _ in range(100):
        if begun not in _children():
            return
        time.sleep(0.05)
    pytest.fail("the child was not reaped")


def test_another_environment_gets_a_child_of_its_own_and_the_first_one_is_ended() -> None:
    before = _children()
    ahead.begin("libcuda", str(HUNG_AFTER_S), env={**NO_LIBCUDA, "CUDA_VISIBLE_DEVICES": "0"})
    try:
        said = LiveMachine(environ=NO_LIBCUDA).child(child_script(LIBCUDA_CHILD), str(HUNG_AFTER_S))
        assert said.ok
        assert len(ahead._unasked) == 1
    finally:
        ahead.end_unasked()
    assert ahead._unasked == []
    for _ in range(100):
        if not any(_runs(pid) for pid in _children() - before):
            return
        time.sleep(0.05)
    pytest.fail("the child runs on")


@pytest.mark.parametrize("given", [["doctor", "--facts", "x"], ["facts", "--host=h"], ["guard"], ["--help"], ["emit"]])
def test_nothing_begins_for_a_command_line_that_does_not_ask(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_DRIVER_NODES", ("/dev/null",))
    ahead.begin_for(given)
    assert ahead._unasked == []


@pytest.mark.parametrize("given", [[], ["doctor"], ["doctor", "--json"], ["check"]])
def test_it_begins_where_a_driver_is_seen_and_only_there(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_DRIVER_NODES", ("/dev/no-driver-here",))
    ahead.begin_for(given)
    assert ahead._unasked == []
    monkeypatch.setattr(ahead, "_DRIVER_NODES", ("/dev/null",))
    ahead.begin_for(given)
    assert len(ahead._unasked) == 2
    ahead.end_unasked()


def test_an_answer_counts_although_the_process_takes_long_to_end() -> None:
    slow = ChildScript("slow", "import atexit, time\natexit.register(time.sleep, 30)\nprint('{\"a\": 1}')")
    begun = time.monotonic()
    said = LiveMachine().child(slow, timeout_s=10.0)
    assert (said.answer, said.complaint) == ({"a": 1}, "")
    assert time.monotonic() - begun < 8.0


def test_a_process_that_dies_before_its_answer_is_whole_is_told_by_its_end() -> None:
    torn = ChildScript("torn", "import os\nprint('{\"a\"', flush=True)\nos.abort()")
    assert "killed" in LiveMachine().child(torn).complaint


def test_a_command_line_that_is_wrong_leaves_no_child(tmp_path: Path) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "firstlight", "doctor", "--no-such-option"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no-such-option" in done.stderr


def test_who_asks_nvml_gets_the_child_that_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libnvidia-ml.so.1").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(ahead, "_DRIVER_NODES", ("/dev/null",))
    ahead.begin_for(["doctor"])
    machine = LiveMachine()
    ask_nvml(machine)
    assert [asked[2] for asked, _ in ahead._unasked] == [(str(HUNG_AFTER_S),)]  # cuInit's alone is left
    ahead.end_unasked()


@pytest.mark.parametrize("closed", [(0,), (0, 1), (0, 2), (0, 1, 2), (1, 2)])
def test_an_answer_comes_although_our_own_streams_are_closed(closed: tuple[int, ...], tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    asks = (
        "from firstlight.machine.interface import ChildScript; from firstlight.machine.live import LiveMachine; "
        "import os\n"
        f"for number in {closed}: os.close(number)\n"
        "said = LiveMachine().child(ChildScript('asked', 'print(\\'{\"a\": 1}\\')'))\n"
        f"open({str(answer)!r}, 'w').write(repr(said.answer) + said.complaint)"
    )
    subprocess.run((sys.executable, "-c", asks), check=True)
    assert answer.read_text() == "{'a': 1}"


def test_nothing_begins_while_a_shell_completes_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_DRIVER_NODES", ("/dev/null",))
    monkeypatch.setenv("_FIRSTLIGHT_COMPLETE", "bash_complete")
    ahead.begin_for([])
    assert ahead._unasked == []


def test_an_answer_counts_where_no_more_threads_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert LiveMachine().child(ChildScript("asked", "print('{\"a\": 1}')")).answer == {"a": 1}


def test_an_answer_counts_although_a_process_of_the_childs_keeps_the_pipe_open() -> None:
    forks = ChildScript("forks", "import os, time\nprint('{\"a\": 1}', flush=True)\nos.fork() or time.sleep(30)")
    said = LiveMachine().child(forks, timeout_s=1.5)
    assert (said.answer, said.complaint) == ({"a": 1}, "")
