"""Many kills of every kind of step. Run: python -m tests.system.kills --count 200 --out results/kills.json"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.apply.debs import Repository
from tests.system.apt_room import HOME, add_package, in_a_room
from tests.system.kills.cases import Case, cases, furnish_sources
from tests.system.kills.trial import Kill, Phase, Seen, Target, Then, apply_case, lay_out, seconds_of, tried, undo_case


def kills(seed: int, count: int, names: tuple[str, ...]) -> Iterator[Kill]:
    """The kills of a seed: every kind in turn, each in both directions and at all three targets before one repeats."""
    chance = random.Random(seed)
    ways = {name: _shuffled(chance) for name in names}
    for number in range(count):
        name = names[number % len(names)]
        phase, target = ways[name][number // len(names) % len(ways[name])]
        yield Kill(name, phase, target, chance.choice(tuple(Then)), round(chance.random(), 3))


def _shuffled(chance: random.Random) -> list[tuple[Phase, Target]]:
    ways = [(phase, target) for phase in Phase for target in Target]
    chance.shuffle(ways)
    return ways


def run(seed: int, count: int, only: str = "") -> list[Seen]:
    """Kill until so many came while it was at work; one that came too late is kept in the result and not counted."""
    furnish_sources()
    repository = Repository(HOME / "repository")
    os.environ["APT_CONFIG"] = str(repository.config)
    add_package(repository, "part")
    add_package(repository, "main", depends="part")
    subprocess.run(["apt-get", "update"], check=True, capture_output=True)
    known = {case.name: case for case in cases() if only in ("", case.name)}
    seconds = {name: _measured(case) for name, case in known.items()}
    seen: list[Seen] = []
    for number, kill in enumerate(kills(seed, 3 * count, tuple(known)), 1):
        chance = random.Random(f"{seed}-{number}")
        taken = seconds[kill.case]
        found = tried(known[kill.case], kill, taken[kill.phase], chance)
        # settles where most kills come while it is at work, at any load of the machine
        taken[kill.phase] *= 1.02 if found.at_work else 0.85
        seen.append(found)
        if found.wrong:
            print(f"kill {number}: {_words(kill)}: {found.wrong}", flush=True)
        if sum(each.at_work for each in seen) == count:
            break
    return seen


def _words(kill: Kill) -> str:
    return f"{kill.case}, {kill.target.value} in {kill.phase.value} at {kill.share}, then {kill.then.value}"


def _measured(case: Case) -> dict[Phase, float]:
    (HOME / "journal").mkdir(exist_ok=True)
    lay_out(case)
    return {Phase.APPLY: seconds_of(apply_case, case), Phase.UNDO: seconds_of(undo_case, case)}


def document(seen: list[Seen], *, seed: int, seconds: float) -> dict[str, Any]:
    """The result as it is kept: no name of the machine, every kill with its place in the seed."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    wrong = [found for found in seen if found.wrong]
    return {
        "schema": "firstlight.kills/1", "seed": seed, "count": len(seen), "commit": commit,
        "command": f"python -m tests.system.kills --count {sum(found.at_work for found in seen)} --seed {seed}",
        "python": ".".join(map(str, sys.version_info[:3])), "seconds": round(seconds, 1),
        "at_work": sum(found.at_work for found in seen), "wrong": len(wrong),
        "not_compared": [
            "the bytes of .pyc files, which hold the second their source was written; that they are there is compared",
        ],
        "by_kind": _counted(seen, "case"), "by_target": _counted(seen, "target"), "by_phase": _counted(seen, "phase"),
        "kills": [_row(found) for found in seen],
    }  # fmt: skip


def _counted(seen: list[Seen], what: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each in seen:
        value = getattr(each.kill, what)
        row = found.setdefault(value if isinstance(value, str) else value.value, {"kills": 0, "at_work": 0, "wrong": 0})
        row["kills"] += 1
        row["at_work"] += each.at_work
        row["wrong"] += bool(each.wrong)
    return found


def _row(found: Seen) -> dict[str, Any]:
    kill = found.kill
    return {
        "kind": kill.case, "phase": kill.phase.value, "target": kill.target.value, "share": kill.share,
        "then": kill.then.value, "at_work": found.at_work, "wrong": found.wrong,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=20261116)
    parser.add_argument("--only", default="", help="one kind of step")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.count} kills", flush=True)
    out = given.out.absolute() if given.out else None

    def work() -> None:
        began = time.monotonic()
        seen = run(given.seed, given.count, given.only)
        made = document(seen, seed=given.seed, seconds=time.monotonic() - began)
        print(
            f"{made['count']} kills, {made['at_work']} at work, {made['wrong']} wrong, {made['seconds']} s", flush=True
        )
        if out:
            out.write_text(json.dumps(made, indent=1) + "\n")
        assert not made["wrong"], f"seed {given.seed}: {made['wrong']} of {made['count']} kills went wrong"

    in_a_room(work)


if __name__ == "__main__":
    main()
