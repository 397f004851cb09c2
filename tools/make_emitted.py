"""Golden files of `firstlight emit`: every kind for eight recorded machines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from firstlight import __version__
from firstlight.emit.kinds import NAMES, emit
from firstlight.emit.kit import runs_on
from firstlight.emit.subject import Asked, Choices, Subject, subject_of
from firstlight.facts.look import Look, look_at
from firstlight.own_wheel import OwnWheel
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
# stands for firstlight's own, whose digest is another after every change of the source
WHEEL = OwnWheel(f"firstlight-{__version__}-py3-none-any.whl", b"", hashlib.sha256(b"").hexdigest())
BASE = f"registry.example.com/team/cuda:13.0@sha256:{WHEEL.sha256}"  # stands for one: the digest is of no image
CHOICES = Choices(image="registry.example.com/team/torch:1", name="firstlight")


def made() -> dict[Path, str]:
    """Every golden file with its text; no other file is in that folder."""
    return {GOLDEN / name: text for machine in MACHINES for name, text in golden_files(machine)}


def golden_subject(machine: str) -> Subject:
    """The subject of a recorded machine with nothing wanted but what it needs."""
    facts = look_at(Look(facts_file=str(ROOT / "tests/machines" / machine)))
    made_for = f"the machine of {machine}"
    made = subject_of(facts, Asked(Request()), made_for=made_for, tables=load(), choices=CHOICES)
    return replace(made, wheel=WHEEL)


def golden_files(machine: str) -> Iterator[tuple[str, str]]:
    """Path below tests/emit/golden and text of every file, e.g. h200-healthy/bash/pod_setup.sh."""
    subject = golden_subject(machine)
    for kind in NAMES:
        if kind == "kit" and not runs_on(subject):
            continue
        for file in emit(kind, _with_base(subject) if kind == "kit" else subject).files:
            # Python that is kept as data must not be taken for a module of the project by the tools that check those
            suffix = ".golden" if file.name.endswith(".py") else ""
            yield f"{machine}/{kind}/{file.name}{suffix}", file.text


def _with_base(subject: Subject) -> Subject:
    return replace(subject, choices=replace(subject.choices, image="", base=BASE))
