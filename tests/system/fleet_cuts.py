"""`fleet apply` with apt and an index, once over six hosts, then with its connections cut at random moments.

    python -m tests.system.fleet_cuts --count 20 --seed 29 --out results/fleet-cuts.json
    python -m tests.system.fleet_cuts --count 8 --seed 30 --at-work --out results/fleet-cuts-at-work.json

Real Ansible, ssh, apt, dpkg and pip on roots of their own. A cut kills what serves the connections of both hosts while
the call of the operator is under way; then --retry is called until it is done, and undo takes everything back. With
--at-work the moments are counted from when a host has begun to work, else from the start of the call, and the six hosts
are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.fleet_hosts import Host, free_port
from tests.system.fleet_lab import STATE, Lab, Ran, cut, files, jobs, journal
from tests.system.fleet_stores import COMPAT, WANTS, stores

ROOT = Path(__file__).parents[2]
NODES = ("node01", "node02", "node03", "node04", "node05", "node06")
GOOD, FAILS, LOST = NODES[:4], NODES[4], NODES[5]
PAIR = NODES[:2]
_MOST_CALLS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--at-work", action="store_const", const=_work_begun, default=_at_once, dest="begun")
    options = parser.parse_args()
    began = time.perf_counter()
    names = PAIR if options.begun is _work_begun else NODES
    with tempfile.TemporaryDirectory(prefix="fleet-cuts") as folder, stores(Path(folder), names) as (lab, index):
        six = six_hosts(lab) if names is NODES else {"wrong": []}
        print(json.dumps(six), flush=True)
        cuts: list[dict[str, Any]] = []
        dice = random.Random(options.seed)
        longest_s = one_whole(lab, options.begun)
        while (
            sum(bool(each["processes_cut"]) for each in cuts) < options.count
        ):  # one that came too late is not counted
            cuts.append(one_cut(lab, Moments(dice, longest_s, options.begun), len(cuts) + 1))
            print(json.dumps(cuts[-1]), flush=True)
        asked = len(index.asked)
    document = {
        "schema": "firstlight.fleet-cuts/1",
        "date": time.strftime("%Y-%m-%d"),
        "command": f"python -m tests.system.fleet_cuts {' '.join(sys.argv[1:])}",
        "commit": _said("git", "rev-parse", "--short=12", "HEAD"),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, {_said('ssh', '-V') or 'ssh'}",
        "load": round(os.getloadavg()[0], 1),
        "seconds": round(time.perf_counter() - began, 1),
        "asked_of_the_index": asked,
        "six_hosts": six if names is NODES else "left out",
        "uncut_s": round(longest_s, 1),
        "counted": sum(bool(each["processes_cut"]) for each in cuts),
        "wrong": sum(bool(each["wrong"]) for each in cuts),
        "cuts": cuts,
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{document['counted']} cuts, {document['wrong']} wrong, wrong over six hosts: {six['wrong']}")


def six_hosts(lab: Lab) -> dict[str, Any]:
    """Four done, one fails, one is lost; --retry touches those two alone; again changes nothing; undo to the byte."""
    wrong: list[str] = []
    before = {name: whole(host) for name, host in lab.hosts.items()}
    [port] = lab.hosts[LOST].ports
    lab.lose(LOST, port=free_port())
    lab.on(FAILS, f"mkdir -p /{STATE} && echo a file where a folder has to be > /{STATE}/machines")
    first = lab.fleet(*words(lab, *NODES))
    wanted = {**dict.fromkeys(GOOD, "done"), FAILS: "failed", LOST: "not reached over ssh"}
    _hold(wrong, (first.code, first.ends) == (1, wanted), f"first: {first.code} {_ends(first)}")
    _hold(wrong, all(_has_both(lab.hosts[name]) for name in GOOD), "torch or the package is not there")
    after = {name: (journal(lab.hosts[name]), jobs(lab.hosts[name])) for name in GOOD}
    lab.lose(LOST, port=port)
    lab.on(FAILS, f"rm /{STATE}/machines")
    second = lab.fleet("apply", "--retry", "--yes", "--json")
    _hold(wrong, (second.code, set(second.ends.values())) == (0, {"done"}), f"retry: {second.code} {_ends(second)}")
    now = {name: (journal(lab.hosts[name]), jobs(lab.hosts[name])) for name in GOOD}
    _hold(wrong, now == after, "retry touched a host that was done")
    mended = {name: (whole(host), journal(host)) for name, host in lab.hosts.items()}
    again = lab.fleet(*words(lab, *NODES))
    _hold(
        wrong, (again.code, set(again.ends.values())) == (0, {"nothing to do"}), f"again: {again.code} {_ends(again)}"
    )
    same = {name: (whole(host), journal(host)) for name, host in lab.hosts.items()}
    _hold(wrong, same == mended, "the second run changed something")
    undone = lab.fleet("undo", "--yes", "--json")
    _hold(
        wrong, (undone.code, undone.ends) == (0, dict.fromkeys(NODES, "done")), f"undo: {undone.code} {_ends(undone)}"
    )
    _hold(wrong, not (odd := _odd(before, lab, NODES)), f"undo left: {odd}")
    return {"first": first.ends, "retry": second.ends, "again": again.ends, "undo": undone.ends, "wrong": wrong}


def _at_once(started: subprocess.Popen[str]) -> None:
    """From the start of the call on."""


def _work_begun(started: subprocess.Popen[str]) -> None:
    """From the first host on that has begun to work."""
    assert started.stderr is not None
    while (line := started.stderr.readline()) and ": at work" not in line:
        pass


@dataclass(frozen=True)
class Moments:
    """When a cut comes: at random, up to so many seconds after what is waited for."""

    dice: random.Random
    longest_s: float
    begun: Callable[[subprocess.Popen[str]], None]


def one_whole(lab: Lab, begun: Callable[[subprocess.Popen[str]], None]) -> float:
    """How long a call takes that nobody cuts, from what is waited for on; taken back at once."""
    began = time.perf_counter()
    started = lab.begun(*words(lab, *PAIR))
    if begun is _work_begun:
        begun(started)
        began = time.perf_counter()
    started.communicate(timeout=300)
    assert started.returncode == 0
    took = time.perf_counter() - began
    assert lab.fleet("undo", "--yes").code == 0
    return took


def one_cut(lab: Lab, moments: Moments, number: int) -> dict[str, Any]:
    """Cut once, pick up, compare, take back; every fourth time firstlight has to be brought anew."""
    wrong: list[str] = []
    if number % 4 == 0:
        for name in PAIR:
            lab.on(name, f"rm -rf /{STATE}/fleet/tool-*")
    before = {name: whole(lab.hosts[name]) for name in PAIR}
    counts = {name: len(jobs(lab.hosts[name])) for name in PAIR}
    moment_s = moments.dice.uniform(0, 0.95 * moments.longest_s)
    started = lab.begun(*words(lab, *PAIR))
    moments.begun(started)
    time.sleep(moment_s)
    killed = 0
    while not killed and started.poll() is None:  # between two questions of Ansible there is no connection
        killed = sum(cut(lab.hosts[name]) for name in PAIR)
    out, err = started.communicate(timeout=300)
    codes = [started.returncode]
    first = {each["name"]: each["end"] for each in json.loads(out)["hosts"]} if out.startswith("{") else {}
    while codes[-1] and len(codes) < _MOST_CALLS:
        codes.append(lab.fleet("apply", "--retry", "--yes", "--json").code)
    _hold(wrong, codes[-1] == 0, f"not done after {len(codes)} calls: {err[-300:]}")
    for name in PAIR:
        new = len(jobs(lab.hosts[name])) - counts[name]
        _hold(wrong, new == 1, f"{name}: {new} jobs were started")
        _hold(wrong, _has_both(lab.hosts[name]), f"{name}: torch or the package is not there")
    undone = lab.fleet("undo", "--yes", "--json")
    _hold(wrong, undone.code == 0, f"undo: {undone.code} {_ends(undone)}")
    _hold(wrong, not (odd := _odd(before, lab, PAIR)), f"undo left: {odd}")
    for name in PAIR:  # the oldest jobs are forgotten from 20 on, and these are counted
        lab.on(name, f"rm -rf /{STATE}/fleet/jobs")
    return {
        "number": number,
        "moment_s": round(moment_s, 2),
        "brought_anew": number % 4 == 0,
        "processes_cut": killed,
        "ends_after_the_cut": first,
        "exit_codes": codes,
        "wrong": wrong,
    }


def words(lab: Lab, *names: str) -> tuple[str, ...]:
    hosts = ("--hosts", ",".join(names), "--ssh-config", str(lab.room.config))
    return ("apply", "--yes", "--json", *hosts, "--", *WANTS)


def whole(host: Host) -> tuple[dict[str, tuple[int, bytes]], str]:
    """Every file outside of /var, and what dpkg and apt say of every package."""
    form = "${db:Status-Abbrev} ${Package} ${Version}\\n"
    asked = f"dpkg-query -W -f '{form}'; apt-mark showmanual"
    config = host.folder.parent / "ssh_config"
    done = subprocess.run(["ssh", "-F", str(config), host.name, asked], capture_output=True, text=True, check=True)
    return files(host), done.stdout


def _has_both(host: Host) -> bool:
    installed = whole(host)[1]
    torch = list(host.upper.glob("opt/train/lib/python3.*/site-packages/torch/__init__.py"))
    return f"ii  {COMPAT} 580.95.05" in installed and len(torch) == 1


def _odd(before: dict[str, tuple[dict[str, tuple[int, bytes]], str]], lab: Lab, names: tuple[str, ...]) -> list[str]:
    """What is not as it was, e.g. "node01: etc/ld.so.cache"."""
    found = []
    for name in names:
        (old, packages), (new, now) = before[name], whole(lab.hosts[name])
        found += [f"{name}: {path}" for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
        found += [f"{name}: packages"] if packages != now else []
    return found


def _ends(ran: Ran) -> str:
    return ran.out[-300:] + ran.err[-600:]


def _hold(wrong: list[str], right: object, else_said: str) -> None:
    if not right:
        wrong.append(else_said)


def _said(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    return (done.stdout or done.stderr).strip()


if __name__ == "__main__":
    main()
