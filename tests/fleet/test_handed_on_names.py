"""What is handed on has one pseudonym a host, for every name that leads to it; commands on the screen lead to it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from firstlight.cli.fleet_words import parse_words
from firstlight.cli.main import run
from firstlight.fleet.inventory import ansible_program
from firstlight.fleet.ssh import Reached, where_ssh_goes
from firstlight.fleet.target import Target, parse_target
from firstlight.report.host_names import pseudonyms_for, real_names

MACHINES = Path(__file__).parents[1] / "machines"
H200 = MACHINES / "h200/machine.json"


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ssh that answers -G as the real one does and reaches nobody, saying what ssh says then."""
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncase " $* " in *" -G "*) exec /usr/bin/ssh "$@";; esac\n'
        'for host; do :; done\nset -- $(printf "%s\\n" "$@" | tail -n 2)\n'
        'echo "ssh: Could not resolve hostname $1: Name or service not known" >&2\nexit 255\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


@pytest.mark.skipif(not ansible_program("ansible-inventory"), reason="no ansible-core here")
def test_neither_names_of_dns_nor_short_names_are_handed_on(
    tmp_path: Path, ssh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory, page, junit = tmp_path / "hosts.yml", tmp_path / "fleet.html", tmp_path / "fleet.xml"
    inventory.write_text("all:\n  hosts:\n    n1: {ansible_host: secret-node.example.org, ansible_user: ann}\n    b:\n")
    call = ["fleet", "doctor", "-i", str(inventory), "--html", str(page), "--junit", str(junit)]
    assert run([*call, "--json"]) == 4
    document = capsys.readouterr().out
    assert [row["reason"] for row in json.loads(document)["rows"]] == [
        "ssh: Could not resolve hostname host-a: Name or service not known",
        "ssh: Could not resolve hostname host-b: Name or service not known",
    ]
    for text in (document, page.read_text(), junit.read_text()):
        assert "secret-node" not in text
    assert run(["fleet", "plan", "-i", str(inventory), "--json"]) == 4
    document = capsys.readouterr().out
    assert {host for row in json.loads(document)["rows"] for host in row["hosts"]} == {"host-a", "host-b"}
    assert "secret-node" not in document
    assert run(["fleet", "plan", "-i", str(inventory), "--json", "--identify"]) == 4
    assert "secret-node.example.org" in capsys.readouterr().out


def test_every_name_that_leads_to_a_host_is_hidden() -> None:
    config = Reached(Target("n1", "n1"), "10.9.8.7", "22", "ann", "pod-x7", "bob@bastion.example.org:2222,second")
    names = pseudonyms_for(["n1", "is"], [config, Reached(Target("is", "is"))])
    said = names.apply("ann@N1.corp.example: key of pod-x7 at 10.9.8.7 by bastion.example.org and second; n10 stays")
    assert said == "<address>: key of host-b at host-b by jump-host and jump-host; n10 stays"
    assert names.apply("Permission denied for ann") == "Permission denied for user-a"
    assert real_names(["n1"]).apply("ann@n1") == "ann@n1"


def test_a_name_in_a_proxy_command_is_one_of_the_way(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host n1\n  ProxyCommand ssh -W %h:%p ann@gate.example.org\n")
    assert where_ssh_goes(parse_target("n1"), config=str(config)).jumps == ("gate.example.org",)


def test_the_next_command_for_a_recorded_machine_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my rec"
    folder.mkdir()
    for name in ("n1", "n2", "n3"):
        shutil.copyfile(H200, folder / f"{name}.json")
    (folder / "n1.json").write_text(H200.read_text().replace("580.159.04", "580.126.09"))
    assert run(["fleet", "doctor", "--facts", str(folder), "--goal", "train"]) == 3
    call = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert call == ["firstlight", "doctor", "--facts", str(folder / "n1.json"), "--goal", "train"]
    assert run(call[1:]) == 0
    shutil.copytree(MACHINES / "h200", folder / "n1")
    assert run(["fleet", "doctor", "--facts", str(folder)]) == 2  # n1 and n1.json are one name


def test_a_host_of_an_inventory_is_named_as_a_command_line_names_it() -> None:
    assert Target("n1", "10.0.0.7", "ann", 2222).spec == "ann@10.0.0.7:2222"
    assert Target("n1", "fe80::1", port=22).spec == "[fe80::1]:22"
    for given in ("node01", "root@pod:2222", "fe80::1", "[fe80::1]:22"):
        assert parse_target(parse_target(given).spec).words == parse_target(given).words


def test_the_files_of_a_plan_are_shown_for_the_machine_that_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    facts = str(MACHINES / "cuda-lib64-first")
    assert run(["plan", "--facts", facts, "--goal", "train"]) == 0
    *_, before, call = capsys.readouterr().out.splitlines()
    assert before == "what is written into each file is shown by"
    words = shlex.split(call)
    assert words == ["firstlight", "plan", "--goal", "train", "--facts", facts, "--diff"]
    assert run(words[1:]) == 0


def test_options_of_apply_alone_are_not_given_to_plan() -> None:
    words = parse_words(("--with", "a", "--want", "torch", "--no-verify", "--with=b", "--goal", "train"))
    assert words.for_plan == ("--want", "torch", "--goal", "train")


def test_doctor_of_a_host_begins_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')  # the host is this machine
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(["doctor", "--host", "node01"]) in (0, 1)  # whatever this machine is like
    assert capsys.readouterr().out.startswith("node01\n")
    assert run(["doctor", "--host", "node01", "--json"]) in (0, 1)
    assert "node01" not in capsys.readouterr().out
