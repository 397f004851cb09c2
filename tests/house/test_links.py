"""Every link of the pages leads to a file of this tree, and to a heading that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:)([^()\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub makes anchors of them, e.g. apply-and-undo."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize(
    "folder", sorted({page.parent for page in PAGES}), ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_links_of_a_folder_lead_somewhere(folder: Path) -> None:
    lost = []
    for page in (each for each in PAGES if each.parent == folder):
        for target in LINK.findall(re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)):
            path, _, anchor = target.partition("#")
            there = (folder / path).resolve() if path else page
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
                lost.append(f"{page.name}: {target}")
    assert lost == []


def test_a_lost_heading_is_seen() -> None:
    assert "apply-and-undo" in anchors(ROOT / "docs/tested.md")
    assert "nowhere" not in anchors(ROOT / "docs/tested.md")
