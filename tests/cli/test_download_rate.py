"""How fast downloads are: stated, measured by what came in, or assumed and said so."""

from __future__ import annotations

import functools
import http.server
import json
import random
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.apply.account import Account, State, Taken
from firstlight.apply.download_rate import NAME, keep_rate, kept_rate, measured_rate
from firstlight.apply.place import machine_folder
from firstlight.cli.download_rate import at_the_rate_here, parse_rate
from firstlight.cli.main import run
from firstlight.errors import BadInput
from firstlight.facts.known import Known, Origin, Unknown
from firstlight.facts.look import Look
from firstlight.machine.live import LiveMachine
from firstlight.plan.request import Request
from firstlight.tables import load
from firstlight.ways.costs import ASSUMED_SPEED
from firstlight.ways.step import Step, StepKind
from tests.plan.planning import write_wheel

TABLES = load()
MACHINE = "example:h100-driver-570"


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50MB/s", 50e6), ("50 MB/s", 50e6), ("1.2GB/s", 1.2e9), ("400Mbit/s", 50e6), ("1GiB/s", 2**30), ("800kB/s", 8e5),
     ("1Gbit", 125e6)],
)  # fmt: skip
def test_a_rate_is_a_number_with_its_unit(text: str, rate: float) -> None:
    assert parse_rate(text) == Known(rate, "--download-rate")


@pytest.mark.parametrize("text", ["fast", "50", "-5MB/s", "0MB/s", "1e9MB/s", "50 apples/s", "400mbps", "9999999GB/s"])
def test_another_rate_is_refused_with_what_is_accepted(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="accepted is a number with its unit"):
        parse_rate(text)
    for verb in ("plan", "doctor"):
        assert run([verb, "--facts", MACHINE, "--download-rate", text]) == 2
        assert "--download-rate" in capsys.readouterr().err


def test_every_option_with_known_minutes_has_its_money(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--options", "--rate", "2.69", "--facts", MACHINE, "--json"]) == 0
    options = json.loads(capsys.readouterr().out)["options"]
    known = [option for option in options if option["minutes"]["value"] is not None]
    assert len(known) >= 4
    for option in known:
        assert option["money"]["value"] == pytest.approx(option["minutes"]["value"] / 60 * 2.69)


def test_a_stated_rate_shortens_the_minutes_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for rate in ((), ("--download-rate", "1GB/s")):
        assert run(["plan", "--options", "--facts", MACHINE, *rate]) == 0
        texts.append(capsys.readouterr().out)
    assert "at 50 MB/s (assumed) 81 s" in texts[0]
    assert "at 1000 MB/s (--download-rate) 4 s" in texts[1]


def test_what_was_measured_here_is_used_here_and_not_for_a_saved_machine(here: LiveMachine) -> None:
    keep_rate(here, (_taken(90_000_000, 3.0),), TABLES)
    found = at_the_rate_here(Request(), Look()).download_rate
    assert isinstance(found, Known)
    assert found.seen_in.startswith("measured by apply on 20")
    assert found.origin is Origin.SEEN
    assert at_the_rate_here(Request(), Look(facts_file=MACHINE)).download_rate == ASSUMED_SPEED
    stated = Request(download_rate=Known(1e9, "--download-rate"))
    assert at_the_rate_here(stated, Look()) == stated


def test_without_a_measurement_the_assumption_stays(here: LiveMachine) -> None:
    assert isinstance(kept_rate(here), Unknown)
    assert at_the_rate_here(Request(), Look()).download_rate == ASSUMED_SPEED


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"bytes_per_second": -1, "on": "2026-11-16"}',
             '{"bytes_per_second": true, "on": "2026-11-16"}',
             '{"bytes_per_second": 1e300, "on": "2026-11-16"}', '{"bytes_per_second": 5000000, "on": "\\u001b[2J"}'],
)  # fmt: skip
def test_a_file_that_holds_no_rate_is_as_none(here: LiveMachine, text: str) -> None:
    (Path(machine_folder(here)) / NAME).write_text(text)
    assert isinstance(kept_rate(here), Unknown)


def test_a_file_that_others_can_write_is_not_believed(here: LiveMachine) -> None:
    keep_rate(here, (_taken(90_000_000, 3.0),), TABLES)
    (Path(machine_folder(here)) / NAME).chmod(0o666)
    assert isinstance(kept_rate(here), Unknown)


def test_the_start_of_pip_and_unpacking_are_not_counted_as_download() -> None:
    found = measured_rate((_taken(1_000_000_000, 47.5),), TABLES)
    assert found == Known(1e9 / (47.5 - 1.5 - 26.0), "fetch")


@pytest.mark.parametrize(
    "taken",
    [(), ("failed",), ("cached",), ("small",)],
)
def test_a_step_that_tells_nothing_of_the_network_is_no_measurement(taken: tuple[str, ...]) -> None:
    cases = {
        "failed": _taken(90_000_000, 3.0, state=State.FAILED),
        "cached": _taken(90_000_000, 0.5, received=1_000_000),
        "small": _taken(100_000, 0.5),
    }
    assert isinstance(measured_rate(tuple(cases[each] for each in taken), TABLES), Unknown)


def test_a_real_pip_is_measured_by_what_came_in(here: LiveMachine, tmp_path: Path, server: str) -> None:
    step = _step(8_000_000)
    account = Account()
    account.begins(step)
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--no-index")
    subprocess.run((*pip, "--find-links", server, "--dest", str(tmp_path / "got"), "big"), check=True)
    taken = account.ended(step, "there")
    assert isinstance(taken.received_bytes, Known)
    assert taken.received_bytes.value >= 8_000_000
    keep_rate(here, (taken,), TABLES)
    kept = kept_rate(here)
    assert isinstance(kept, Known)
    assert kept.value >= 8_000_000 / taken.seconds


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveMachine:
    """This machine with an empty state folder of its own."""
    monkeypatch.setenv("FIRSTLIGHT_STATE_DIR", str(tmp_path / "state"))
    machine = LiveMachine()
    Path(machine_folder(machine)).mkdir(parents=True, mode=0o700)
    return machine


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A page with one wheel of 8 MB that does not shrink."""
    folder = tmp_path / "wheels"
    wheel = write_wheel(folder, "big", "1.0")
    with zipfile.ZipFile(wheel, "a") as file:
        file.writestr("big/data.bin", random.Random(1).randbytes(8_000_000))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/"
        serving.shutdown()


def _step(size: int) -> Step:
    return Step(
        id="01-fetch", kind=StepKind.PIP, title="fetch", because="want", commands=(), files=(), needs_root=False,
        done_when=(), back=(), seconds=Unknown("not measured"), bytes=Known(size, "test"),
    )  # fmt: skip


def _taken(size: int, seconds: float, *, state: State = State.DONE, received: int = -1) -> Taken:
    came = size if received < 0 else received
    return Taken(_step(size), state, seconds, Unknown("test"), "", Known(came, "test"))
