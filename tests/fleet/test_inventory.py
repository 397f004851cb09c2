"""Inventories as teams have them, read by the real ansible-inventory; what cannot be used is refused before any ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.cli.main import run
from firstlight.errors import BadInput
from firstlight.fleet.inventory import ansible_program, from_file
from firstlight.fleet.target import Target

needs_ansible = pytest.mark.skipif(
    shutil.which("ansible-inventory", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") is None,
    reason="needs ansible-core",
)
INI = "[gpu]\nnode[01:03] ansible_user=root\n[gpu:vars]\nansible_port=2222\n[login]\nhead ansible_host=fe80::1\n"
YAML = """\
gpu:
  hosts:
    node01: {ansible_host: 10.0.0.7, ansible_port: 22022}
    node02:
"""


def test_one_host_a_line_needs_no_ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    file = tmp_path / "hosts"
    file.write_text("# the cluster\nnode01\nroot@pod:2222  # rented\n\nroot@[fe80::1]:22\n")
    assert from_file(str(file)) == (
        Target("node01", "node01"),
        Target("root@pod:2222", "pod", "root", 2222),
        Target("root@[fe80::1]:22", "fe80::1", "root", 22),
    )


@needs_ansible
def test_ini_with_ranges_groups_and_variables(tmp_path: Path) -> None:
    file = tmp_path / "inventory.ini"
    file.write_text(INI)
    found = {each.name: each for each in from_file(str(file))}
    assert found["node02"] == Target("node02", "node02", "root", 2222)
    assert found["head"] == Target("head", "fe80::1")
    assert len(found) == 4


@needs_ansible
def test_a_folder_with_yaml_and_variables_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(YAML)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/gpu.yml").write_text("ansible_user: ubuntu\n")
    found = from_file(str(tmp_path))
    assert found == (Target("node01", "10.0.0.7", "ubuntu", 22022), Target("node02", "node02", "ubuntu"))


@needs_ansible
@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("empty.ini", "", "names no host"),
        (
            "cyclic.yml",
            "a:\n  children:\n    b:\n      children:\n        a:\n",
            "the inventory is cyclic, a group is inside itself",
        ),
        ("cyclic.ini", "[a:children]\nb\n[b:children]\na\n", "the inventory is cyclic"),
        ("spaces.yml", 'all:\n  hosts:\n    "node 01":\n', "is not a host"),
        ("proxy.yml", 'all:\n  hosts:\n    "-oProxyCommand=touch x":\n', "is not a host"),
        ("proxy_of.yml", 'all:\n  hosts:\n    a: {ansible_host: "-oProxyCommand=touch x"}\n', "is not a host"),
        ("port.yml", "all:\n  hosts:\n    a: {ansible_port: 70000}\n", "is not a port"),
        ("damaged.yml", "all: [\n", "ansible-inventory|names no host"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=says):
        from_file(str(tmp_path / name))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--hosts", ""), "--hosts is empty"),
        (("--hosts", ","), "no host was given"),
        (("--hosts", "a,a"), "was given twice"),
        (("--hosts", "a,-oProxyCommand=touch x"), "is not a host"),
        (("--hosts", "node 01"), "is not a host"),
        (("--hosts", "localhost:22,LOCALHOST"), "are the same host"),
        (("--hosts", ",".join(f"n{number}" for number in range(10_000))), "10,000 hosts were given"),
        (("--slurm", "--help"), "is the name of a partition"),
        (("--facts", "/nowhere"), "no such file"),
        (("-i", "/nowhere"), "no such file"),
        ((), "no hosts were named"),
        (("--hosts", "a", "--slurm", "gpu"), "--hosts and --slurm were given"),
        (("--hosts", "a", "--python", "rel"), "accepted for other hosts: an absolute path"),
        (("--hosts", "localhost,127.0.0.1"), "are the same host"),
        (("--hosts", "a,b,c", "--ssh-config", "/nonexistent"), "--ssh-config '/nonexistent': cannot be read"),
        (("--hosts", "a", "--junit", "/nonexistent/x.xml"), "--junit /nonexistent/x.xml: there is no folder"),
    ],
    ids=range(16),
)
def test_a_bad_call_is_one_line_and_exit_2(
    given: tuple[str, ...],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "ssh"
    log.write_text('#!/bin/sh\ncase " $* " in *" -G "*) exec /usr/bin/ssh "$@";; esac\ntouch "$0.called"\n')
    log.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(["fleet", "doctor", *given]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "ssh.called").exists()  # nobody was connected to


def test_ten_thousand_hosts_of_a_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("".join(f"n{number}\n" for number in range(10_000)))
    with pytest.raises(BadInput, match="10,000 hosts were given; at most 1,000"):
        from_file(str(file))


@needs_ansible
def test_a_vault_is_the_teams_own_and_its_words_are_shown_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password, wrong, inventory = tmp_path / "password", tmp_path / "wrong", tmp_path / "hosts.yml"
    password.write_text("of the vault\n")
    wrong.write_text("another\n")
    inventory.write_text("all: {hosts: {node01: {ansible_host: 127.0.0.1}}}\n")
    kept = tmp_path / "group_vars/all.yml"
    kept.parent.mkdir()
    kept.write_text("ansible_port: 1\nansible_become_password: correct-horse-battery\n")
    program = ansible_program("ansible-vault")
    argv = [program, "encrypt", "--vault-password-file", str(password), str(kept)]
    subprocess.run(argv, check=True, capture_output=True)
    for verb in ("doctor", "plan"):
        words = ["fleet", verb, "-i", str(inventory), "--json"]
        assert run([*words, "--vault-password-file", str(password)]) == 4  # read; nobody listens at that port
        told = capsys.readouterr()
        assert "port 1: Connection refused" in told.out
        assert run(words) == 2
        said = capsys.readouterr().err
        assert "--vault-password-file FILE" in said
        assert run([*words, "--vault-password-file", str(wrong)]) == 2
        more = capsys.readouterr().err
        assert "Another password" in more
        assert "correct-horse-battery" not in told.out + told.err + said + more
