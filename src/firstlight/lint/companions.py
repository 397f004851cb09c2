"""The projects built against torch that an image has (torchvision, vllm), and which release an install leaves."""

from __future__ import annotations

import re

from firstlight.diagnosis.finding import Question
from firstlight.frozen import dataclass
from firstlight.lint.images import Image
from firstlight.lint.model import Install, ProjectAsked
from firstlight.specifiers import newest, satisfies
from firstlight.tables.pin_rows import PackagePins
from firstlight.tables.torch_rows import Companion
from firstlight.versions import TorchVersion


@dataclass(frozen=True, slots=True)
class Present:
    """A project that is in the image, e.g. torchvision 0.20.1; version '' where it is not known."""

    project: str
    version: str


def present_in_base(image: Image, question: Question) -> tuple[Present, ...]:
    """What the base image brings: torchvision 0.20.1 and torchaudio 2.5.1 with torch 2.5.1."""
    return tuple(Present(each, _fitting(each, "", question, image.torch)) for each in image.companions)


def kept(asked: ProjectAsked, install: Install, present: tuple[Present, ...]) -> Present | None:
    """What is there and meets a requirement, so that the installer leaves it: 'Requirement already satisfied'."""
    there = next((each for each in present if each.project == asked.project), None)
    if there is None or install.upgrades or asked.address:
        return None
    return there if not asked.spec or satisfies(there.version, asked.spec) is True else None


def release_left(
    asked: ProjectAsked, install: Install, question: Question, *, present: tuple[Present, ...]
) -> Companion | PackagePins | None:
    """The release of a project after an install that does not name torch: the one there, else the newest."""
    there = kept(asked, install, present)
    if there is not None:
        return question.tables.companion(asked.project, there.version.partition("+")[0])
    version = _of_address(asked) if asked.address else _fitting(asked.project, asked.spec, question, None)
    return question.tables.companion(asked.project, version)


def _of_address(asked: ProjectAsked) -> str:
    """0.21.0 of .../torchvision-0.21.0%2Brocm6.4-cp312-...whl; '' of a repository."""
    match = re.search(
        rf"/{re.escape(asked.project)}-(\d[\d.]*(?:\.?post\d+)?)[^/]*\.whl", asked.address.replace("_", "-")
    )
    return "" if match is None else match.group(1)


def present_after(
    install: Install, question: Question, *, present: tuple[Present, ...], torch: TorchVersion | None
) -> tuple[Present, ...]:
    """What is in the image after an install that left this torch, with what the projects pin of each other."""
    found = {each.project: each for each in present}
    known = {row.project for row in question.tables.companions}
    for asked in install.requirements:
        if asked.project not in known or kept(asked, install, tuple(found.values())) is not None:
            continue
        version = "" if asked.address else asked.exact or _fitting(asked.project, asked.spec, question, torch)
        found[asked.project] = Present(asked.project, version)
        row = question.tables.companion(asked.project, version.partition("+")[0])
        pins = () if row is None or "--no-deps" in install.options else row.pins(question.facts.place.arch)
        for pin in pins:
            there = found.get(pin.project)
            if pin.project in known and (there is None or satisfies(there.version, pin.spec) is not True):
                found[pin.project] = Present(pin.project, pin.version)
    return tuple(found.values())


def torches_admitted(install: Install, asked: ProjectAsked, question: Question) -> tuple[frozenset[str], str]:
    """The torch releases that the others of one install leave open, and which one: {'2.7.1'}, torchvision==0.22.1.

    Empty where they hold nothing: a project without a bound goes with whatever torch is the newest.
    """
    if asked.exact or asked.address or install.tool == "conda" or {"--no-deps", "--pre"} & set(install.options):
        return frozenset(), ""
    admitted, by = frozenset[str](), ""
    for each in install.requirements:
        rows = [row for row in question.tables.companions if row.project == each.project]
        fitting = [row for row in rows if each.spec and satisfies(row.version, each.spec)]
        pins = [pin for row in fitting if (pin := row.pin("torch")) is not None and pin.version]
        open_ = newest(tuple(row.version for row in rows)) in {row.version for row in fitting}
        if each.address or open_ or not pins or len(pins) < len(fitting):
            continue
        here = frozenset(pin.version for pin in pins if not asked.spec or satisfies(pin.version, asked.spec))
        both = here & admitted if admitted else here
        if both:
            admitted, by = both, f"{each.project}{each.spec}"
    return admitted, by


def _fitting(project: str, spec: str, question: Question, torch: TorchVersion | None) -> str:
    """The newest release that the tables know for a specifier and a torch; '' of none."""
    rows = [row for row in question.tables.companions if row.project == project]
    if spec:
        rows = [row for row in rows if satisfies(row.version, spec)]
    if torch is not None:  # a release that pins no torch (torchaudio 2.11.0) only where none goes with this one
        pinned = [row for row in rows if (pin := row.pin("torch")) is not None and pin.admits(torch)]
        rows = pinned or [row for row in rows if row.pin("torch") is None]
    return newest(tuple(row.version for row in rows))
