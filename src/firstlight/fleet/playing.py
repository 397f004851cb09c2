"""One play of Ansible over some hosts of a run: its files, its child process, and what becomes of each host.

ansible-playbook is a child process with a session of its own. Whatever it says to a host goes through bounded_ssh.py,
and what a host answers comes back through a file of lines, which are read as data.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from firstlight.errors import BadInput
from firstlight.fleet.children import on_host
from firstlight.fleet.inventory import INSTALL, ansible_program
from firstlight.fleet.outcomes import outcome_of
from firstlight.fleet.questions import NEWEST_FIRST
from firstlight.fleet.refused import why_not
from firstlight.fleet.reply import LOOK_S, REPLY_LIMIT
from firstlight.fleet.run import FleetRun, HostEnd, HostOutcome, HostRun, Verb
from firstlight.fleet.ssh import Said, strict_words
from firstlight.fleet.target import Target
from firstlight.fleet.tool import Tool
from firstlight.frozen import dataclass
from firstlight.visible import one_line

_CHILDREN = Path(__file__).parent / "children"
_ASK, _BRING, _WORK = "ask", "bring", "work"
_OF_ANSIBLE = "Failed to connect to the host via ssh: "  # what it puts before the words of ssh
_BRING_S = 600
_WAIT_S = 15  # a host is given this long before it says that it is still at work; far below the limit of an answer
_ROUNDS = 3000  # of those: half a day, then the host is left at work
_MODULES = {Verb.BENCH: "firstlight.fleet.children.measuring"}  # a call for each GPU
_WORDS = {
    Verb.APPLY: ("apply", "--yes", "--json"),
    Verb.UNDO: ("undo", "--yes", "--json"),
    Verb.VERIFY: ("verify", "--json"),
    Verb.BENCH: (on_host.KEPT,),
}


@dataclass(frozen=True, slots=True)
class Play:
    """Some hosts of a run, the folder that is worked in, and firstlight for those that lack it."""

    run: FleetRun
    targets: tuple[Target, ...]
    folder: str
    tool: Tool
    forks: int = 16


def play(played: Play, told: Callable[[HostOutcome], None]) -> None:
    """Do it on every host of the play; `told` hears of each change as it comes. KeyboardInterrupt ends the child."""
    program = ansible_program("ansible-playbook")
    if not program:
        raise BadInput(f"this needs Ansible, which is not installed; install it with: {INSTALL}")
    token = secrets.token_hex(8)
    lines = f"{played.folder}/told-{token}.jsonl"
    _write_files(played, token)
    Path(lines).touch(mode=0o600)
    with open(f"{played.folder}/ansible.log", "ab") as log, open(lines, "rb") as reading:
        process = _started(program, played, log=log, lines=lines)
        hearing = _Hearing(played, token, told)
        try:
            while process.poll() is None:
                hearing.read(reading)
                time.sleep(0.1)
        finally:
            _stop(process)
            hearing.read(reading)
            os.unlink(lines)
    hearing.close(process.returncode, f"{played.folder}/ansible.log")


class _Hearing:
    """Reads the lines of the callback as they come."""

    def __init__(self, played: Play, token: str, told: Callable[[HostOutcome], None]) -> None:
        self._played, self._token, self._told = played, token, told
        self._hosts = {host.name: host for host in played.run.hosts}
        self._targets = {target.name: target for target in played.targets}
        self._open = set(self._targets)
        self._rest = b""

    def read(self, reading: IO[bytes]) -> None:
        *whole, self._rest = (self._rest + reading.read()).split(b"\n")
        for line in whole:
            self._hear(json.loads(line))

    def _hear(self, line: dict[str, Any]) -> None:
        name, what, task = line["host"], line["what"], line["task"]
        if name not in self._open:
            return
        host = self._hosts[name]
        if what == "asked" and task == _WORK:
            self._tell(HostOutcome(replace(host, end=HostEnd.AT_WORK, reason="")))
        elif what == "unreachable":
            self._open.discard(name)
            self._tell(HostOutcome(self._lost(host, line, task)))
        elif what == "failed" or (what == "answered" and task == _WORK):
            self._open.discard(name)
            self._tell(self._answered(host, line))

    def _tell(self, outcome: HostOutcome) -> None:
        self._hosts[outcome.host.name] = outcome.host
        self._told(outcome)

    def _lost(self, host: HostRun, line: dict[str, Any], task: str) -> HostRun:
        """A connection that was lost while it worked does not end the work."""
        text = line.get("msg", "").rpartition(_OF_ANSIBLE)[2]
        found = why_not(Said(b"", text, 255), self._targets[host.name], config=self._played.run.engine.ssh_config)
        reason = one_line(str(found))
        if task == _WORK:
            return replace(
                host, end=HostEnd.AT_WORK, reason=f"the connection was lost, and its work continues: {reason}"
            )
        return replace(host, end=HostEnd.UNREACHABLE, reason=reason)

    def _answered(self, host: HostRun, line: dict[str, Any]) -> HostOutcome:
        if line["rc"] == on_host.AT_WORK:
            return HostOutcome(replace(host, end=HostEnd.AT_WORK, reason="it was still at work when we stopped asking"))
        if f"firstlight-{self._token}-begin" in line.get("stdout", ""):
            return outcome_of(host, self._played.run.verb, line["stdout"], token=self._token)
        texts = (line.get(name, "").strip() for name in ("stderr", "stdout", "msg"))
        said = next((text.splitlines()[-1] for text in texts if text), "it said nothing")
        return HostOutcome(replace(host, end=HostEnd.FAILED, reason=one_line(said)[:300]))

    def close(self, code: int, log: str) -> None:
        """Hosts of which Ansible said nothing at all: it did not get as far."""
        silent = [name for name in self._open if self._hosts[name].end is HostEnd.NOT_ASKED]
        if silent and code > 0 and len(silent) == len(self._targets):
            raise BadInput(f"ansible-playbook ended with {code} before it asked a host: {_last_error(log)}")


def _last_error(log: str) -> str:
    lines = [line for line in Path(log).read_text("utf-8", "replace").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "nothing")[:300]


def _started(program: str, played: Play, *, log: IO[bytes], lines: str) -> subprocess.Popen[bytes]:
    engine, folder = played.run.engine, played.folder
    hosts = ("--inventory", engine.inventory, "--limit", f"@{folder}/limit", "--forks", str(played.forks))
    argv = (program, *hosts, "--extra-vars", f"@{folder}/vars.json", *engine.passed_on, f"{folder}/playbook.json")
    environment = {
        **os.environ,
        "ANSIBLE_CALLBACK_PLUGINS": str(_CHILDREN / "ansible_callbacks"),
        "ANSIBLE_CALLBACKS_ENABLED": "firstlight_told",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_PYTHON_INTERPRETER": "auto_silent",
        "ANSIBLE_REMOTE_TEMP": "~/.local/state/firstlight/fleet/ansible",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_SSH_RETRIES": "0",
        "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
        "ANSIBLE_SSH_USETTY": "0",
        "FIRSTLIGHT_TOLD": lines,
    }
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the child and of its ssh: work on the hosts is in sessions of its own there."""
    for number, patience_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=patience_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _write_files(played: Play, token: str) -> None:
    folder = Path(played.folder)
    (folder / "limit").write_text("".join(f"{target.name}\n" for target in played.targets))
    short, long = folder / "ssh", folder / "ssh-long"
    for path, limit_s in ((short, LOOK_S), (long, _BRING_S)):
        words = (sys.executable, "-I", str(_CHILDREN / "bounded_ssh.py"), str(limit_s), str(REPLY_LIMIT))
        before = (*strict_words(config=played.run.engine.ssh_config), "--firstlight")
        path.write_text(f'#!/bin/sh\nexec {shlex.join((*words, *before))} "$@"\n')
        path.chmod(0o700)
    archive = folder.parent / f"tool-{played.tool.sha256[:16]}.zip"  # one for all runs
    if not archive.exists():
        part = folder / archive.name
        part.write_bytes(played.tool.data)
        os.replace(part, archive)
    (folder / "playbook.json").write_text(json.dumps([_playbook(archive, short=short, long=long)], indent=1))
    variables = {
        "ansible_connection": "ssh",
        "ansible_ssh_executable": "{{ firstlight_ssh }}",
        "firstlight_program": _program(),
        "firstlight_requests": dict(_requests(played, token)),
    }
    (folder / "vars.json").write_text(json.dumps(variables))


def _playbook(archive: Path, *, short: Path, long: Path) -> dict[str, Any]:
    """Ask whether firstlight is there, bring it where it is not, and have it work until it has ended."""
    call = "{{ firstlight_program }} {{ firstlight_requests[inventory_hostname]['%s'] }}"
    return {
        "name": "firstlight on every host",
        "hosts": "all",
        "gather_facts": False,
        "vars": {"firstlight_ssh": str(short)},
        "tasks": [
            {
                "name": _ASK,
                "ansible.builtin.raw": call % _ASK,
                "register": "firstlight_asked",
                "changed_when": False,
                "failed_when": f"firstlight_asked.rc not in [0, {on_host.NO_TOOL}]",
            },
            {
                "name": _BRING,
                "ansible.builtin.copy": {
                    "src": str(archive),
                    "dest": f"~/.local/state/firstlight/fleet/{archive.name}",
                    "mode": "0600",
                },
                "when": f"firstlight_asked.rc == {on_host.NO_TOOL}",
                "vars": {"firstlight_ssh": str(long)},
            },
            {
                "name": _WORK,
                "ansible.builtin.raw": call % _WORK,
                "register": "firstlight_worked",
                "until": f"firstlight_worked.rc != {on_host.AT_WORK}",
                "retries": _ROUNDS,
                "delay": 1,
                "failed_when": "firstlight_worked.rc != 0",
            },
        ],
    }


def _program() -> str:
    """The line that every shell reads alike; the program itself is a word of it, the request comes behind it."""
    text = base64.b64encode(zlib.compress((_CHILDREN / "on_host.py").read_bytes(), 9)).decode()
    new_enough = "import sys; sys.exit(sys.version_info < (3, 10))"
    run = "import base64, sys, zlib; exec(zlib.decompress(base64.b64decode(sys.argv.pop(1))))"
    line = (
        f'for p in {" ".join(NEWEST_FIRST)}; do if "$p" -I -B -c "{new_enough}" </dev/null 2>/dev/null; then '
        f'exec "$p" -I -B -c "{run}" "$1" "$2"; fi; done; echo "there is no Python 3.10 or newer" >&2; exit 1'
    )
    return f"exec sh -c '{line}' sh {text}"


def _requests(played: Play, token: str) -> Iterator[tuple[str, dict[str, str]]]:
    run, hosts = played.run, {host.name: host for host in played.run.hosts}
    words = (*_WORDS[run.verb], *run.words)
    for target in played.targets:
        host = hosts[target.name]
        made = [{"number": each.number, "digest": each.digest} for each in host.made] if run.verb is Verb.UNDO else []
        request = {
            "token": token,
            "job": f"{run.id}-{host.attempt}",
            "who": run.who,
            "module": _MODULES.get(run.verb, "firstlight"),
            "words": words,
            "sha256": played.tool.sha256,
            "takes_back": made,
            "wait_s": _WAIT_S,
        }
        yield target.name, {do: _packed({**request, "do": do}) for do in (_ASK, _WORK)}


def _packed(request: dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(request).encode()).decode()
