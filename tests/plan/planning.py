"""Parts that the tests of plans share: a machine as a question, an option made by hand, little wheels and indexes."""

from __future__ import annotations

import subprocess
import zipfile
from functools import cache
from pathlib import Path

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.known import Unknown
from firstlight.plan.option import Cost, Keeps, Kind, Option
from firstlight.plan.options import rank_options
from firstlight.plan.request import Ranked, Request
from firstlight.tables import load
from firstlight.ways.diffs import unified_diff
from firstlight.ways.step import FileChange
from firstlight.ways.way import Proof, Reversible, Risk, Way
from tests.diagnosis.rule_case import MACHINES, facts_of

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
_UNKNOWN = Unknown("made by hand")


def question_of(machine: str, goal: Goal = Goal.INFER) -> Question:
    """A machine under tests/machines, to be planned for."""
    return Question(facts_of(machine), TABLES, goal)


@cache
def ranked_of(machine: str, goal: Goal = Goal.INFER) -> Ranked:
    """The options of that machine as the planner ranks them."""
    question = question_of(machine, goal)
    return rank_options(question, judge(question, RULES), Request(goal=goal))


def option_of(kind: Kind, *ways: Way, title: str = "made by hand") -> Option:
    """An option with only what steps are made from."""
    return Option(
        id=f"{kind.value}:by-hand",
        kind=kind,
        title=title,
        ways=ways,
        because=("driver-too-old-for-wheel",),
        stays=(),
        after=(),
        unsure=(),
        proof=Proof.GUESSED,
        proof_by="a test",
        keeps=Keeps.ALL,
        satisfies=(),
        leaves_out=(),
        cost=Cost(_UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN),
        needs_root=False,
        reversible=Reversible.YES,
        risk=Risk.LOW,
    )


def patched(change: FileChange, folder: Path) -> str:
    """What patch(1) makes of the file with our diff."""
    file, diff = folder / "file", folder / "diff"
    file.write_bytes(change.before.encode())
    diff.write_bytes(unified_diff(change).encode())
    subprocess.run(["patch", "--quiet", "--binary", str(file), str(diff)], check=True, capture_output=True)
    return file.read_bytes().decode() if file.exists() else ""


def write_wheel(folder: Path, name: str, version: str, *, requires: tuple[str, ...] = ()) -> Path:
    """A wheel that holds nothing but its name, as pip and uv take it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "")
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def write_index(folder: Path, wheels: tuple[Path, ...]) -> None:
    """A PEP 503 index of wheels: one folder for each project, with links."""
    by_project: dict[str, list[Path]] = {}
    for wheel in wheels:
        by_project.setdefault(wheel.name.split("-")[0].replace("_", "-").lower(), []).append(wheel)
    for project, files in by_project.items():
        place = folder / project
        place.mkdir(parents=True, exist_ok=True)
        for file in files:
            (place / file.name).write_bytes(file.read_bytes())
        links = "".join(f'<a href="{file.name.replace("+", "%2B")}">{file.name}</a>\n' for file in files)
        (place / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")
    names = "".join(f'<a href="{project}/">{project}</a>\n' for project in by_project)
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{names}</body></html>\n")
