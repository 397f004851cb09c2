"""docs/tables.md: every lookup that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

from firstlight.tables import load

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_every_lookup_of_the_page_is_one_of_the_tables() -> None:
    first = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {name for cell in first for name in re.findall(r"`([a-z_]+)\(", cell)}
    assert len(named) > 20
    assert [name for name in sorted(named) if not hasattr(load(), name)] == []
