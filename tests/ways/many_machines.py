"""python -m tests.ways.many_machines COUNT SEED: random machines and ways, and the result as JSON."""

from __future__ import annotations

import json
import random
import sys
import time

from tests.ways.edits import KINDS, Edit
from tests.ways.random_machines import NAMES, WAYS, Case, faults_of


def main(count: int, seed: int) -> None:
    chosen = random.Random(seed)
    begun = time.monotonic()
    faults = []
    for _ in range(count):
        edits = tuple(Edit(chosen.choice(KINDS), chosen.randrange(100_000)) for _ in range(chosen.randrange(5)))
        case = Case(chosen.choice(NAMES), edits, tuple(chosen.choices(WAYS, k=chosen.randrange(1, 4))))
        faults += [f"{case}: {fault}" for fault in faults_of(case)]
    result = {
        "what": "recorded machines with random edits: judged and planned; the first option and other ways done twice",
        "command": f"python -m tests.ways.many_machines {count} {seed}",
        "cases": count,
        "seed": seed,
        "machines": len(NAMES),
        "ways": len(WAYS),
        "seconds": round(time.monotonic() - begun, 1),
        "faults": faults,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
