"""--help of the benchmarks whose arguments are plain words: the docstring, and nothing is begun."""

from __future__ import annotations

import sys


def print_usage(doc: str | None, *, least: int) -> None:
    """Ends the program with its docstring where help is asked for (0), or fewer words than `least` are given (2)."""
    given = sys.argv[1:]
    asked = bool({"-h", "--help"} & set(given))
    if asked or len(given) < least:
        print((doc or "").strip(), file=sys.stdout if asked else sys.stderr)
        sys.exit(0 if asked else 2)
