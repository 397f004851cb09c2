"""How often `firstlight lint` is right about files that were judged by hand before it saw them.

    python -m benchmarks.lint_corpus tests/lint/corpus            counts, then what was missed and what is false
    python -m benchmarks.lint_corpus tests/lint/corpus --misses   these in full, with what was expected
    python -m benchmarks.lint_corpus tests/lint/corpus --out results/lint-corpus.json

A case is a folder with the file and case.json: what is right to say on each of six machines. A finding is right where
machine, code and severity agree and it stands in the same instruction, step or service; `may` counts for nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from firstlight.diagnosis.finding import Question
from firstlight.emit.imagined import parse_machine
from firstlight.errors import BadInput
from firstlight.facts.document import read_machine_or_facts
from firstlight.lint.dockerfile import parse_dockerfile
from firstlight.lint.judge import Given, lint
from firstlight.tables import load

RECORDED = Path(__file__).parents[1] / "tests" / "machines"
MACHINES = {
    "h100-570": "H100, driver 570",
    "rtx5090-580": "RTX 5090, driver 580",
    "v100-535": "V100, driver 535",
    "h200x8-595": "8x H200, driver 595",
    "orin": "orin-torch-pypi",
    "gh200": "gh200-torch-pypi",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing said or expected: torch-needs-newer-driver, blocks, line 3, in the lines 3 to 5."""

    case: str
    machine: str
    code: str
    severity: str
    line: int
    block: tuple[int, int]
    why: str

    def agrees(self, other: Claim) -> bool:
        return self.code == other.code and self.block == other.block

    def __str__(self) -> str:
        return f"{self.case} {self.machine}:{self.line}: {self.severity} [{self.code}] {self.why}"


@dataclass(frozen=True, slots=True)
class Score:
    """The claims of all cases: right, false, and missed."""

    right: tuple[Claim, ...]
    false: tuple[Claim, ...]
    missed: tuple[Claim, ...]
    expected: int

    def precision(self, *severities: str) -> float:
        right = sum(each.severity in severities for each in self.right)
        false = sum(each.severity in severities for each in self.false)
        return right / (right + false) if right + false else 1.0

    @property
    def recall(self) -> float:
        return 1 - len(self.missed) / self.expected if self.expected else 1.0


@cache
def question(machine: str) -> Question:
    """The machine of a case as lint is asked about it."""
    name = MACHINES[machine]
    recorded = RECORDED / name
    facts = read_machine_or_facts(str(recorded)) if recorded.exists() else parse_machine(name, load())
    return Question(facts, load())


def blocks_of(file: str, text: str) -> list[tuple[int, int]]:
    """The stretches of lines in which a line number may differ: instructions, services, steps, commands."""
    lines = text.splitlines()
    if file.lower().endswith((".yml", ".yaml")):
        return _blocks(lines, re.compile(r"---|  \S|\s*- (?:name|uses|run|image|id):"))
    if file.lower().endswith(".lock"):
        return _blocks(lines, re.compile(r"\[\["))
    try:
        starts = [each.line for each in parse_dockerfile(text, file)]
        return [(first, last - 1) for first, last in zip(starts, [*starts[1:], len(lines) + 1], strict=True)]
    except BadInput:
        ends = [number for number, line in enumerate(lines, 1) if not line.rstrip().endswith("\\")]
        return [(before + 1, end) for before, end in zip([0, *ends], ends, strict=False)]


def _blocks(lines: list[str], start: re.Pattern[str]) -> list[tuple[int, int]]:
    starts = [1, *(number for number, line in enumerate(lines, 1) if number > 1 and start.match(line))]
    return [(first, last - 1) for first, last in zip(starts, [*starts[1:], len(lines) + 1], strict=True)]


def _claim(row: dict[str, Any], case: str, machine: str, blocks: list[tuple[int, int]]) -> Claim:
    line = row["line"]
    block = next((each for each in blocks if each[0] <= line <= each[1]), (line, line))
    return Claim(case, machine, row["code"], row.get("severity", ""), line, block, row.get("why", ""))


def given_of(folder: Path, case: dict[str, Any]) -> Given:
    """The file of a case with its options: --target STAGE and --build-arg NAME=VALUE."""
    options = iter(case.get("options", []))
    target, arguments = "", []
    for option in options:
        name, equals, value = option.partition("=")
        value = value if equals else next(options)
        if name == "--target":
            target = value
        elif name == "--build-arg":
            key, _, content = value.partition("=")
            arguments.append((key, content))
        else:
            raise SystemExit(f"{folder.name}: option {option} is not known; accepted: --target, --build-arg.")
    return Given(case["file"], (folder / case["file"]).read_text(), target, tuple(arguments))


def reader_of(folder: Path) -> Any:
    """What reads the files beside a case's own, as `lint` is given it."""

    def read(path: str) -> str | None:
        beside = Path(os.path.normpath(folder / path))
        return beside.read_text() if folder in beside.parents and beside.is_file() else None

    return read


def score_of(folder: Path) -> Score:
    """One case on its six machines."""
    case = json.loads((folder / "case.json").read_text())
    given = given_of(folder, case)
    blocks = blocks_of(given.file, given.text)
    right, false, missed, count = [], [], [], 0
    for machine in MACHINES:
        expected = [_claim(row, folder.name, machine, blocks) for row in case["machines"].get(machine, [])]
        may = [_claim(row, folder.name, machine, blocks) for row in case.get("may", [])]
        try:
            findings = lint(given, question(machine), read=reader_of(folder)).findings
        except BadInput as error:
            if machine == next(iter(MACHINES)):
                sys.stderr.write(f"{folder.name}: not read: {error}\n"[:160] + "\n")
            findings = ()
        rows = [{"code": f.code, "severity": f.severity.value, "line": f.line, "why": f.saw} for f in findings]
        said = [_claim(row, folder.name, machine, blocks) for row in rows]
        for each in said:
            agreeing = [other for other in expected if other.agrees(each)]
            if any(other.severity == each.severity for other in agreeing):
                right.append(each)
            elif agreeing or not any(other.agrees(each) for other in may):
                false.append(each)
        same = {(each.code, each.block, each.severity) for each in said}
        missed += [each for each in expected if (each.code, each.block, each.severity) not in same]
        count += len(expected)
    return Score(tuple(right), tuple(false), tuple(missed), count)


def total(scores: list[Score]) -> Score:
    """All cases as one."""
    return Score(
        tuple(each for score in scores for each in score.right),
        tuple(each for score in scores for each in score.false),
        tuple(each for score in scores for each in score.missed),
        sum(score.expected for score in scores),
    )


def report(score: Score, cases: int) -> str:
    """The figures, then the false and the missed by code."""
    lines = [
        f"{cases} cases on {len(MACHINES)} machines; {score.expected} things to say",
        f"precision of blocks {score.precision('blocks'):.3f} (at least 0.97)",
        f"precision of the rest {score.precision('degrades', 'note'):.3f} (at least 0.92)",
        f"recall {score.recall:.3f} (at least 0.9)",
    ]
    for title, claims in (("false", score.false), ("missed", score.missed)):
        counts = Counter(f"{each.severity} {each.code}" for each in claims)
        lines += [f"{title}: {len(claims)}", *(f"  {number:4} {name}" for name, number in counts.most_common())]
    return "\n".join(lines) + "\n"


def document(score: Score, cases: int, folder: Path) -> dict[str, Any]:
    """What is in results/lint-corpus.json: the first runs as they were written down then, and what lint says now."""
    now = {
        "files": cases,
        "machines": len(MACHINES),
        "to_say": score.expected,
        "precision_blocks": round(score.precision("blocks"), 3),
        "precision_rest": round(score.precision("degrades", "note"), 3),
        "recall": round(score.recall, 3),
        "false": [str(each) for each in score.false],
        "missed": [str(each) for each in score.missed],
    }
    first = json.loads((folder / "first_runs.json").read_text())
    return {"made_by": "benchmarks/lint_corpus.py", "first_runs": first, "now": now}


def main() -> None:
    parser = argparse.ArgumentParser(description="Precision and recall of `firstlight lint` on judged files.")
    parser.add_argument("folder", type=Path, nargs="+", help="a folder of cases, each with case.json")
    parser.add_argument("--only", default="*", metavar="NAMES", help="cases of these names alone, e.g. 'img-*'")
    parser.add_argument("--misses", action="store_true", help="print each false and each missed one")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there, with those of first runs")
    options = parser.parse_args()
    cases = [path for each in options.folder for path in sorted(each.glob(f"{options.only}/case.json"))]
    folders = [path.parent.resolve() for path in cases]
    score = total([score_of(folder) for folder in folders])
    sys.stdout.write(report(score, len(folders)))
    if options.out is not None:
        options.out.write_text(json.dumps(document(score, len(folders), options.folder[0]), indent=1) + "\n")
    if options.misses:
        sys.stdout.write("".join(f"FALSE  {each}\n" for each in score.false))
        sys.stdout.write("".join(f"MISSED {each}\n" for each in score.missed))


if __name__ == "__main__":
    main()
