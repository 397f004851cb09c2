"""Runs over a fleet: batches, ends and exit codes, what is kept, and who holds a run; no host is asked."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.cli.fleet_words import parse_words
from firstlight.cli.main import run
from firstlight.errors import AnotherIsActing, BadInput
from firstlight.fleet.inventory import ansible_program, selected
from firstlight.fleet.run import Engine, FleetRun, HostEnd, HostRun, Made, Verb, again, batches, run_document, run_of
from firstlight.fleet.run_folder import Shelf, file_name
from firstlight.report.fleet_run_text import run_text
from firstlight.report.layout import plain
from tests.schemas import fits

SCHEMAS = Path(__file__).parents[2] / "src/firstlight/schemas"
RUN = FleetRun(
    "20261118T060000Z-3f2a9c", Verb.APPLY, "2026-11-18T06:00:00Z", "ann@desk", ("--no-verify",),
    (
        HostRun("node01", end=HostEnd.DONE, digest="a" * 64, made=(Made(1, "a" * 64),), steps=("write a file",)),
        HostRun("node02", end=HostEnd.DONE, digest="a" * 64, made=(Made(1, "a" * 64),), steps=("write a file",)),
        HostRun("node03", end=HostEnd.UNREACHABLE, reason="ssh: Connection refused"),
    ),
    Engine("/etc/hosts.yml"),
)  # fmt: skip


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setenv("FIRSTLIGHT_STATE_DIR", str(tmp_path))
    return Shelf(str(tmp_path / "fleet"))


def test_a_run_that_cannot_be_kept_is_said_with_what_to_set(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "fleet").write_text("a file where a folder was to be")
    for keep in (lambda: shelf.write(RUN), lambda: shelf.held(RUN).__enter__(), lambda: shelf.made(RUN.id)):
        with pytest.raises(BadInput, match=r"the run cannot be kept there \(.*\); set FIRSTLIGHT_STATE_DIR"):
            keep()


def test_batches_grow_and_the_last_size_is_repeated() -> None:
    names = tuple(f"n{number:02d}" for number in range(30))
    assert [len(batch) for batch in batches(names, "1,10%,100%")] == [1, 3, 26]
    assert [len(batch) for batch in batches(names, "10")] == [10, 10, 10]
    assert batches(names, "") == (names,)
    assert [name for batch in batches(names, "7") for name in batch] == list(names)


@pytest.mark.parametrize("given", ["0", "-1", "x", "1,,2", "200%", "%", "1.5", "9999999"])
def test_a_size_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(BadInput, match="--serial"):
        batches(("a", "b"), given)


def test_the_exit_code_is_the_worst_of_the_hosts() -> None:
    assert RUN.exit_code == 4
    assert replace(RUN, hosts=RUN.hosts[:2]).exit_code == 0
    assert RUN.with_host(HostRun("node01", end=HostEnd.FAILED)).exit_code == 1
    assert RUN.with_host(HostRun("node03", end=HostEnd.AT_WORK)).exit_code == 4
    assert RUN.with_host(HostRun("node03", end=HostEnd.NOTHING)).exit_code == 0


@pytest.mark.parametrize(
    ("end", "attempt"),
    [(HostEnd.FAILED, 2), (HostEnd.AT_WORK, 1), (HostEnd.UNREACHABLE, 1), (HostEnd.NOT_ASKED, 1)],
)
def test_work_that_failed_begins_anew_and_work_that_may_go_on_is_picked_up(end: HostEnd, attempt: int) -> None:
    asked = again(HostRun("a", end=end, reason="x", made=(Made(1),)))
    assert asked == HostRun("a", attempt, made=(Made(1),))


def test_a_run_is_kept_read_back_and_fits_its_schema(shelf: Shelf) -> None:
    shelf.write(RUN)
    assert shelf.read(RUN.id) == RUN
    assert shelf.ids() == (RUN.id,)
    document = json.loads(Path(shelf.folder(RUN.id), "run.json").read_text())
    fits(document, json.loads((SCHEMAS / "fleet-run-1.json").read_text()))
    assert run_of(document, "x") == RUN


@pytest.mark.parametrize("broken", ["[]", "{}", "{", '{"schema": "firstlight.fleet-run/2"}'])
def test_a_folder_that_holds_no_run_is_refused(shelf: Shelf, broken: str) -> None:
    shelf.write(RUN)
    Path(shelf.folder(RUN.id), "run.json").write_text(broken)
    with pytest.raises(BadInput):
        shelf.read(RUN.id)


def test_a_run_that_another_user_could_have_written_is_not_carried_out(shelf: Shelf) -> None:
    shelf.write(RUN)
    os.chmod(Path(shelf.folder(RUN.id), "run.json"), 0o666)
    with pytest.raises(BadInput, match="others may write"):
        shelf.read(RUN.id)


def test_whoever_comes_second_is_told_who_has_the_run_and_since_when(shelf: Shelf) -> None:
    shelf.write(RUN)
    with (
        shelf.held(RUN),
        pytest.raises(AnotherIsActing, match=r"@\S+ since 20\S+Z, process \d+") as told,
        shelf.held(RUN),
    ):
        pass
    assert told.value.exit_code == 4
    with shelf.held(RUN):
        pass


def test_a_name_of_a_host_is_no_path() -> None:
    assert file_name("root@pod:22") == "root@pod:22"
    assert file_name("../../etc") == "_._.._etc"


def test_equal_hosts_are_one_row_and_those_that_are_not_done_come_first() -> None:
    assert plain(run_text(RUN, "/s")).splitlines()[3:] == [
        "node03       not reached over ssh",
        "    ssh: Connection refused",
        "node[01-02]  done",
        f"    plan {'a' * 16}",
        "    did: write a file",
        "",
        "next",
        "  firstlight fleet apply --retry",
    ]


def test_status_prints_the_newest_run_with_its_exit_code(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.write(RUN)
    assert run(["fleet", "status", "--json"]) == 4
    handed_on = run_of(json.loads(capsys.readouterr().out), "x")
    assert [host.name for host in handed_on.hosts] == ["host-a", "host-b", "host-c"]
    assert (handed_on.who, handed_on.exit_code, handed_on.words) == ("operator", 4, RUN.words)
    assert run(["fleet", "status", "--json", "--identify"]) == 4
    assert run_of(json.loads(capsys.readouterr().out), "x") == RUN
    assert run(["fleet", "status", "--list"]) == 0
    assert capsys.readouterr().out == f"{RUN.id}  apply  3 hosts: 1 not reached over ssh, 2 done\n"
    assert run(["fleet", "status", "../x"]) == 2


@pytest.mark.parametrize("more", [["--serial", "abc"], []])
def test_a_retry_that_is_refused_keeps_what_became_of_every_host(
    shelf: Shelf, capsys: pytest.CaptureFixture[str], tmp_path: Path, more: list[str]
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text("node01\nnode02\n" + ("node03\n" if more else ""))  # or one that is gone
    shelf.write(replace(RUN, engine=Engine(str(inventory))))
    before = Path(shelf.folder(RUN.id), "run.json").read_bytes()
    assert run(["fleet", "apply", "--retry", "--yes", *more]) == 2
    assert ("--serial 'abc'" if more else "is no longer in") in capsys.readouterr().err
    assert Path(shelf.folder(RUN.id), "run.json").read_bytes() == before


def test_a_damaged_run_is_named_and_passed_over(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.write(RUN)
    newer = replace(RUN, id="20261119T060000Z-000000")
    shelf.write(newer)
    Path(shelf.folder(newer.id), "run.json").write_text("{")
    assert run(["fleet", "status", "--list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{newer.id}  cannot be read: ")
    assert second.startswith(f"{RUN.id}  apply  3 hosts")
    assert run(["fleet", "apply", "--hosts", "a"]) == 2  # for want of --yes, behind the run that is passed over
    said = capsys.readouterr().err
    assert f"run {newer.id} is passed over" in said
    assert "Give --yes" in said
    for verb in (["apply", "--retry"], ["undo"]):
        assert run(["fleet", *verb, "--yes"]) == 2
        assert f"run {newer.id} may be the newest" in capsys.readouterr().err


def test_nothing_to_take_back_is_no_fault(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "undo", "--yes"]) == 0
    assert capsys.readouterr().out == "nothing to undo: no run of `firstlight fleet apply` changed a host\n"
    assert run(["fleet", "undo", "--yes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    fits(document, json.loads((SCHEMAS / "fleet-run-1.json").read_text()))
    assert (document["run"], document["hosts"]) == ("", [])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--read-only", "apply", "--yes", "--hosts", "a"], "--read-only was given"),
        (["--read-only", "undo", "--yes"], "--read-only was given"),
        (["--read-only", "verify", "--hosts", "a"], "--read-only was given"),
        (["verify", "--retry"], "there is no run to resume; `firstlight fleet verify"),
        (["verify"], "no hosts were named"),
        (["verify", "--hosts", "a", "--python", "b"], "an absolute path"),
        (["--read-only", "bench", "--hosts", "a"], "--read-only was given"),
        (["bench", "--retry"], "there is no run to resume; `firstlight fleet bench"),
        (["bench"], "no hosts were named"),
        (["bench", "--hosts", "a", "--python", "b"], "an absolute path"),
        (["verify", "--hosts", "a", "--only", "bogus"], "bogus"),
        (["bench", "--hosts", "a", "--runs", "0"], "--runs"),
        (["status"], "there is no run yet"),
        (["apply", "--retry", "--yes"], "there is no run to resume"),
        (["apply", "--retry", "--hosts", "a"], "leave hosts"),
        (["apply", "--retry", "--become"], "leave --become out, or begin another run with it"),
        (["apply", "--retry", "--ssh-config", "c"], "leave --ssh-config out, or begin another run with it"),
        (["apply", "--hosts", "a"], "Give --yes"),
        (["apply", "--hosts", "a", "--yes", "--serial", "abc"], "--serial"),
        (["apply", "--yes"], "no hosts were named"),
        (["apply", "--yes", "--hosts", "root@a:22"], "firstlight fleet add NAME root@a:22"),
        (["apply", "--hosts", "a", "--become-password-file", "/no/such"], "cannot be read"),
        (["apply", "--hosts", "a", "--", "--dry-run"], "No such option"),
        (["apply", "--hosts", "a", "--", "--bogus"], "See `firstlight apply --help`"),
        (["apply", "--hosts", "a", "--", "--help"], "`firstlight apply --help` lists them"),
        (["plan", "--hosts", "a", "--", "--help"], "`firstlight apply --help` lists them"),
        (["plan", "--hosts", "a", "--", "--python", "/a b"], "an absolute path"),
        (["plan", "--hosts", "a", "--", "--want", "==="], "==="),
    ],
)
def test_a_call_that_cannot_be_used_is_refused_before_a_host_is_asked(
    shelf: Shelf, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert run(["fleet", *words]) == 2
    said = capsys.readouterr()
    assert (told in said.err, said.out) == (True, ""), said.err
    assert not Path(shelf.path).exists() or not os.listdir(shelf.path)


def test_a_secret_in_the_words_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInput) as told:
        parse_words(("--want", "torch @ https://ann:hunter2hunter2@pypi.example/simple"))
    assert "hunter2" not in str(told.value)


def test_the_document_names_every_end() -> None:
    schema = json.loads((SCHEMAS / "fleet-run-1.json").read_text())
    ends = schema["$defs"]["HostRun"]["properties"]["end"]["enum"]
    assert ends == [end.value for end in HostEnd]
    fits(run_document(RUN, made_by="x", folder="/x"), schema)


def test_an_inventory_with_a_vault_is_read_with_the_file_of_its_password(tmp_path: Path) -> None:
    program = ansible_program("ansible-vault")
    if not program:
        pytest.skip("needs ansible-core")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.ini").write_text("node01\nnode02\n[gpu]\nnode02\n")
    (tmp_path / "group_vars/gpu.yml").write_text("ansible_host: 10.0.0.7\n")
    (tmp_path / "password").write_text("correct horse\n")
    words = ["encrypt", "--vault-password-file", str(tmp_path / "password"), str(tmp_path / "group_vars/gpu.yml")]
    subprocess.run([program, *words], check=True, capture_output=True)
    with pytest.raises(BadInput, match="ansible-inventory"):
        selected(str(tmp_path / "hosts.ini"))
    engine = Engine(str(tmp_path / "hosts.ini"), "", ("--become", "--vault-password-file", str(tmp_path / "password")))
    [target] = selected(engine.inventory, limit="gpu", vault=engine.vault)
    assert (target.name, target.host) == ("node02", "10.0.0.7")
    with pytest.raises(BadInput, match="--limit 'nobody'"):
        selected(engine.inventory, limit="nobody", vault=engine.vault)
