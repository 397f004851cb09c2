"""`facts --json` live and replayed are equal; a machine that hangs, floods or hides is bounded and says so."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from firstlight.facts.collect import Facts, collect
from firstlight.facts.document import read_machine_or_facts, to_text
from firstlight.facts.known import Unknown
from firstlight.machine.live import LiveMachine

FIRSTLIGHT = [sys.executable, "-m", "firstlight"]


def _firstlight(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FIRSTLIGHT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        timeout=60,
    )


def test_live_and_replayed_documents_are_equal(tmp_path: Path) -> None:
    folder = str(tmp_path / "here")
    live = _firstlight("facts", "--json", "--record", folder)
    assert live.returncode == 0, live.stderr
    replayed = _firstlight("facts", "--json", "--facts", folder)
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout) == json.loads(live.stdout)
    assert replayed.stdout == live.stdout


def test_a_document_read_back_prints_the_same_document_and_text(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(_firstlight("facts", "--json", "--facts", "example:h100-driver-570").stdout)
    assert _firstlight("facts", "--json", "--facts", str(path)).stdout == path.read_text()
    from_example = _firstlight("facts", "--facts", "example:h100-driver-570").stdout
    assert _firstlight("facts", "--facts", str(path)).stdout == from_example


def test_an_existing_recording_is_never_overwritten(tmp_path: Path) -> None:
    folder = str(tmp_path / "here")
    assert _firstlight("facts", "--json", "--record", folder).returncode == 0
    before = (tmp_path / "here" / "machine.json").read_text()
    again = _firstlight("facts", "--json", "--record", folder)
    assert again.returncode == 2
    assert "holds machine.json already" in again.stderr
    assert (tmp_path / "here" / "machine.json").read_text() == before


def _tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _look(tmp_path: Path, tools: dict[str, str], files: dict[str, str] | None = None) -> tuple[Facts, float]:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in tools.items():
        _tool(folder, name, script)
    for path, text in (files or {}).items():
        where = tmp_path / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)
    start = time.monotonic()
    facts = collect(LiveMachine(root=str(tmp_path), environ={"PATH": f"{folder}:/bin:/usr/bin"}))
    return facts, time.monotonic() - start


def test_a_hanging_nvidia_smi_is_bounded_and_unknown(tmp_path: Path) -> None:
    facts, took = _look(tmp_path, {"nvidia-smi": "#!/bin/sh\nexec sleep 600\n"})
    assert took < 40
    assert isinstance(facts.driver.kernel_version, Unknown)
    assert "timed out" in facts.driver.kernel_version.reason
    assert facts.gpus.devices == ()


def test_a_flood_from_nvidia_smi_is_cut_and_unknown(tmp_path: Path) -> None:
    facts, took = _look(tmp_path, {"nvidia-smi": "#!/bin/sh\nexec head -c 100000000 /dev/zero\n"})
    assert took < 20
    assert isinstance(facts.driver.kernel_version, Unknown)
    assert "too much output" in facts.driver.kernel_version.reason


def test_a_machine_with_nothing_in_it_gives_facts_all_the_same(tmp_path: Path) -> None:
    facts, _ = _look(tmp_path, {})
    assert facts.gpus.devices == ()
    assert json.loads(to_text(facts))["schema"] == "firstlight.facts/1"


def test_absurd_files_do_not_break_the_look(tmp_path: Path) -> None:
    garbage = "\x00\xff\x1b[2J" * 200
    paths = (
        "/sys/module/nvidia/version", "/proc/driver/nvidia/version", "/etc/os-release", "/proc/self/mounts",
        "/proc/self/status", "/proc/meminfo", "/proc/cpuinfo", "/proc/self/cgroup", "/etc/ld.so.cache", "/etc/group",
        "/usr/local/cuda/version.json", "/etc/nv_tegra_release", "/proc/device-tree/model", "/etc/docker/daemon.json",
        "/sys/bus/pci/devices/0000:18:00.0/vendor", "/sys/bus/pci/devices/0000:18:00.0/class",
    )  # fmt: skip
    files = dict.fromkeys(paths, garbage)
    facts, _ = _look(tmp_path, {}, files)
    assert isinstance(facts.driver.kernel_version, Unknown)


@pytest.mark.skipif(os.getuid() != 0, reason="dropping to another user needs root")
def test_an_unreadable_proc_is_unknown_with_the_reason(tmp_path: Path) -> None:
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        where = tmp_path / path.lstrip("/")
        where.parent.mkdir(parents=True)
        where.write_text("580.95.05\n")
        where.chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest-of-" in str(folder):
            folder.chmod(0o755)
    code = (
        "import os, sys; os.setgid(65534); os.setuid(65534); sys.dont_write_bytecode = True\n"
        "from firstlight.facts.collect import collect\nfrom firstlight.machine.live import LiveMachine\n"
        f"facts = collect(LiveMachine(root={str(tmp_path)!r}, environ={{}}))\n"
        "print(facts.driver.kernel_version.reason)"
    )
    source = str(Path(__file__).parents[2] / "src")
    interpreter = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    copied = tmp_path / "src"
    subprocess.run(["cp", "-r", source, str(copied)], check=True)
    done = subprocess.run(
        [interpreter, "-c", code], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(copied)}, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert "permission denied" in done.stdout


def test_no_probe_runs_a_shell_string() -> None:
    source = Path(__file__).parents[2] / "src" / "firstlight"
    for path in source.rglob("*.py"):
        text = path.read_text()
        assert "shell=True" not in text, path
        assert "os.system(" not in text, path
        assert "os.popen(" not in text, path


MACHINES = sorted((Path(__file__).parents[1] / "machines").glob("*/machine.json"))


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.parent.name)
def test_every_recorded_machine_replays_to_a_document_that_reads_back(path: Path, tmp_path: Path) -> None:
    facts = read_machine_or_facts(str(path.parent))
    saved = tmp_path / "facts.json"
    saved.write_text(to_text(facts))
    assert read_machine_or_facts(str(saved)) == facts


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.parent.name)
def test_every_path_of_a_reconstructed_machine_cites_its_source(path: Path) -> None:
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["kind"] in ("recorded", "reconstructed")
    if document["kind"] == "reconstructed":
        assert document["about"]
        for name, seen in document["paths"].items():
            assert seen.get("source"), name
