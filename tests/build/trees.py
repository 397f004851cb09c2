"""What a source tree reads, kept as data: python -m tests.build.trees DIR FILE writes it, tests plan with it.

Plain variables are left out: they are ten times as many, and no flag of a plan here is one.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from firstlight.build.project import Project, read_project
from firstlight.build.reads import ReadKind
from firstlight.build.source_reads import SourceReads, read_source
from firstlight.records import decode, encode

FOLDER = Path(__file__).parent / "trees"
ROOT = "/src/tree"


def read_tree(name: str) -> tuple[Project, SourceReads]:
    """A kept tree, e.g. torch-2.6.0."""
    document: Any = json.loads((FOLDER / f"{name}.json").read_text())
    return decode(Project, document["project"], "project"), decode(SourceReads, document["reads"], "reads")


def main() -> None:
    root, path = sys.argv[1:]
    project, reads = read_project(root), read_source(root)
    kept = tuple(each for each in reads.reads if each.kind is not ReadKind.VARIABLE)
    short = tuple(replace(each, says="") for each in kept)
    document = {
        "project": encode(replace(project, root=ROOT)),
        "reads": encode(replace(reads, root=ROOT, reads=short)),
    }
    Path(path).write_text(json.dumps(document, indent=0) + "\n")


if __name__ == "__main__":
    main()
