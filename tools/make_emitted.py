"""Golden files of `firstlight emit`: every kind for eight recorded machines. Run: python -m tools.make_emitted"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from firstlight.emit.kinds import NAMES, emit
from firstlight.emit.subject import Asked, Choices, Subject, subject_of
from firstlight.facts.look import Look, look_at
from firstlight.plan.request import Request
from firstlight.tables import load

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/emit/golden"
# compat and a mixed set; a healthy one; CUDA 12 on an old driver; another wheel; two indexes; Arm; Blackwell; a pod
MACHINES = (
    "h100-driver-570",
    "h200-healthy",
    "h100-driver-550-cu128",
    "v100-torch-cu130",
    "vllm-torch-2-9",
    "gh200-torch-pypi",
    "b200-driver-610",
    "runpod-ssh",
)
CHOICES = Choices(image="registry.example.com/team/torch:1", name="firstlight")


def golden_subject(machine: str) -> Subject:
    """The subject of a recorded machine with nothing wanted but what it needs."""
    facts = look_at(Look(facts_file=str(ROOT / "tests/machines" / machine)))
    made_for = f"the machine of {machine}"
    return subject_of(facts, Asked(Request()), made_for=made_for, tables=load(), choices=CHOICES)


def golden_files(machine: str) -> Iterator[tuple[str, str]]:
    """Path below tests/emit/golden and text of every file, e.g. h200-healthy/bash/pod_setup.sh."""
    subject = golden_subject(machine)
    for kind in NAMES:
        for file in emit(kind, subject).files:
            # Python that is kept as data must not be taken for a module of the project by the tools that check those
            suffix = ".golden" if file.name.endswith(".py") else ""
            yield f"{machine}/{kind}/{file.name}{suffix}", file.text


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for machine in MACHINES:
        for name, text in golden_files(machine):
            path = GOLDEN / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
