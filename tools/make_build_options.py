"""Writes the table build_options: python -m tools.make_build_options DAY PROJECT VERSION SOURCE TREE ...

Four words for each release, oldest first, e.g. torch 2.6.0 "Debian source package pytorch 2.6.0+dfsg-7" DIR.
The trees are read, not run. Options and variables of the environment are kept, and cache entries of the top file;
plain variables are not.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from firstlight.build.reads import BY_ENVIRONMENT, ReadKind
from firstlight.build.source_reads import read_source

TABLE = Path(__file__).parents[1] / "src/firstlight/tables/data/build_options.json"
KEPT = (ReadKind.OPTION, ReadKind.DEPENDENT_OPTION, *BY_ENVIRONMENT)
ABOUT = (
    "Names that the build of a project reads, with the first and the last of the releases that were read. A name "
    "that is missing may be read by another release: `firstlight build --dry-run` asks the tree at hand."
)


def rows_of(releases: list[tuple[str, str, str, str]], date: str) -> list[dict[str, Any]]:
    """One row for each project, name and kind."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for project, version, source, tree in releases:
        for read in read_source(tree).reads:
            file = read.where.rpartition(":")[0]
            top_entry = read.kind is ReadKind.CACHE and os.path.dirname(file) == ""
            if (read.kind not in KEPT and not top_entry) or file.startswith(("third_party/", "external_libs/")):
                continue
            row = rows.setdefault((project, read.name, read.kind.value), {"first": version})
            row.update(
                project=project, name=read.name, kind=read.kind.value, last=version, where=file, default=read.default,
                source=f"{source}, the files of its build", date=date, confidence="measured",
            )  # fmt: skip
    order = ("project", "name", "kind", "first", "last", "where", "default", "source", "date", "confidence")
    return [{key: row[key] for key in order} for _, row in sorted(rows.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("day", help="of the reading, e.g. 2026-11-18")
    parser.add_argument("release", nargs="+", help="PROJECT VERSION SOURCE TREE, four words each, oldest first")
    given = parser.parse_args()
    words = given.release
    if len(words) % 4:
        parser.error(f"{len(words)} words; a release is four: PROJECT VERSION SOURCE TREE")
    releases = [(words[at], words[at + 1], words[at + 2], words[at + 3]) for at in range(0, len(words), 4)]
    rows = rows_of(releases, given.day)
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    text = f'{{\n "subject": "build_options",\n "about": {json.dumps(ABOUT)},\n "rows": [\n{lines}\n ]\n}}\n'
    TABLE.write_text(text, encoding="utf-8")
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main()
