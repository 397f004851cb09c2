"""`fleet add`: files that the real ssh reads as they are meant, and that keep what is in them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from firstlight.cli.main import run
from firstlight.fleet.inventory import from_file
from tests.schemas import fits

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/fleet-add-1.json").read_text())


def _ssh_reads(config: Path, name: str) -> dict[str, str]:
    done = subprocess.run(["ssh", "-F", str(config), "-G", name], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_a_pod_keeps_its_key_under_its_id_when_its_address_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a folder"
    config = folder / "ssh_config"
    folder.mkdir()
    config.write_text("ServerAliveInterval 7\n\nHost mine\n    Port 99\n")
    for address in ("root@203.0.113.7:22022", "root@203.0.113.9:41000"):
        assert run(["fleet", "add", "pod1", address, "--pod", "a1b2", "--folder", str(folder), "--json"]) == 0
        fits(json.loads(capsys.readouterr().out), SCHEMA)
    seen = _ssh_reads(config, "pod1")
    assert (seen["hostname"], seen["port"], seen["user"]) == ("203.0.113.9", "41000", "root")
    assert seen["hostkeyalias"] == "pod-a1b2"
    assert seen["stricthostkeychecking"] == "true"
    assert seen["userknownhostsfile"] == f"{folder}/known_hosts"
    assert _ssh_reads(config, "mine")["port"] == "99"
    assert seen["serveraliveinterval"] == "7"
    assert config.read_text().count("Host pod1") == 1
    assert [each.name for each in from_file(str(folder / "hosts"))] == ["pod1"]


def test_a_pod_that_is_added_again_without_its_id_keeps_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path)
    assert run(["fleet", "add", "pod1", "root@203.0.113.7", "--pod", "a1b2", "--folder", folder]) == 0
    assert run(["fleet", "add", "other", "root@203.0.113.8", "--folder", folder]) == 0
    assert run(["fleet", "add", "pod1", "root@203.0.113.9:41000", "--folder", folder]) == 0
    assert "It is pod a1b2 as before" in capsys.readouterr().out
    seen = _ssh_reads(tmp_path / "ssh_config", "pod1")
    assert (seen["hostname"], seen["hostkeyalias"]) == ("203.0.113.9", "pod-a1b2")
    assert _ssh_reads(tmp_path / "ssh_config", "other")["hostkeyalias"] == "other"


def test_an_address_with_its_interface_is_read_by_ssh(tmp_path: Path) -> None:
    assert run(["fleet", "add", "here", "fe80::1%eth0", "--folder", str(tmp_path)]) == 0
    assert _ssh_reads(tmp_path / "ssh_config", "here")["hostname"] == "fe80::1%eth0"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pod1", "root@a b"), "is not a host"),
        (("*", "a"), "is not a name for a host"),
        (("a b", "a"), "is not a name for a host"),
        (("pod1", "a", "--pod", "../x"), "--pod"),
        (("pod1", "a:0"), "is not a port"),
    ],
)
def test_what_ssh_would_read_otherwise_is_refused(
    words: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fleet", "add", *words, "--folder", str(tmp_path / "f")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "f").exists()
