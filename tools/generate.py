"""Everything in this tree that is made from something else: written anew, or held against what is there.

    python -m tools.generate                    all of it
    python -m tools.generate readme options     these
    python -m tools.generate --check            writes nothing; exit 1 and the names of what is not current

What needs a package index, a GPU or a browser is made by its own command: make_sonames, make_build_options,
make_report_002, make_report_pictures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "src" / "firstlight" / "schemas"
# the name, and the module of tools whose made() gives path and text of every file; in the order in which they follow
WHAT = {
    "schemas": "make_schemas",
    "choice-fits": "make_choice_fits",
    "options": "make_options",
    "emitted": "make_emitted",
    "rule-pages": "make_rule_pages",
    "transcripts": "make_transcripts",
    "by-person": "make_by_person",
    "explain-page": "make_explain_page",
    "library-page": "make_library_page",
    "platforms": "make_platforms",
    "readme": "make_readme",
}
# folders that hold nothing but what is made: what is there besides is taken away
WHOLE = {"emitted": "tests/emit/golden", "rule-pages": "docs/rules", "transcripts": "tests/transcripts"}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: written, or all is current; 1: --check saw what is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"some of {', '.join(WHAT)}; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; name what is not current")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.what if name not in WHAT]:
        parser.error(f"{unknown[0]!r} is not made here; accepted: {', '.join(WHAT)}")
    stale = []
    for name in given.what or WHAT:
        files = files_of(name)
        changed = [path for path, text in files.items() if not path.is_file() or path.read_text() != text]
        changed += left_over(name, files)
        stale += [(name, path) for path in changed]
        if not given.check:
            for path in changed:
                put(path, files.get(path))
            print(f"{name}: {len(files)} files, {len(changed)} written or taken away")
    for name, path in stale if given.check else ():
        print(f"{path.relative_to(ROOT)} is not current; run: python -m tools.generate {name}")
    return 1 if given.check and stale else 0


def files_of(name: str) -> dict[Path, str]:
    """Path and text of every file of that name, as they should be."""
    made: Callable[[], dict[Path, str]] = importlib.import_module(f"tools.{WHAT[name]}").made
    return made()


def left_over(name: str, files: dict[Path, str]) -> list[Path]:
    """What is in a folder that holds nothing else, and is not made any more."""
    if name not in WHOLE:
        return []
    return sorted(path for path in (ROOT / WHOLE[name]).rglob("*") if path.is_file() and path not in files)


def put(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def as_json(document: object) -> str:
    """A document as the files of this tree have it."""
    return json.dumps(document, indent=1) + "\n"


def with_part(text: str, name: str, make: Callable[[], str]) -> str:
    """The text with what stands between the marks of `name` made anew; a text without those marks as it is."""
    marks = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    return marks.sub(lambda found: found.group(1) + make() + found.group(2), text)


if __name__ == "__main__":
    sys.exit(main())
