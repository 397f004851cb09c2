"""What `libs` says of a damaged dependency and of a preload that the loader ignores."""

from __future__ import annotations

from pathlib import Path

from firstlight.libraries.closing import close
from firstlight.report.libs_text import Detail, libs_text
from firstlight.tables import load
from tests.libraries.library_wheels import build_library
from tests.libraries.trees import Tree


def _said(tree: Tree, target: Path, **environ: str) -> tuple[bool, str]:
    seen = tree.look(str(target), **environ)
    text = libs_text(seen, close(tree.around(**environ), seen, load()), Detail.SHORT)
    return seen.sound, " ".join(text.split())


def test_a_cut_dependency_is_told_and_a_preload_that_is_not_there_blocks_nothing(tree: Tree, tmp_path: Path) -> None:
    below = build_library(tmp_path / "libbelow.so.1")
    above = build_library(tmp_path / "libabove.so", needs=(below,), runpath="$ORIGIN")
    sound, said = _said(tree, above, LD_PRELOAD=f"/no/such.so:{above.parent}")
    assert sound
    assert "OK: all " in said
    assert "/no/such.so of LD_PRELOAD is not loaded (cannot open shared object file): the loader warns" in said
    assert "is not loaded (cannot read file data: Is a directory)" in said
    below.write_bytes(below.read_bytes()[:5000])
    sound, said = _said(tree, above)
    assert not sound
    blocked = f"BLOCKED: 1 library is missing or damaged; loading ends with: {below}: cut short: 5000 of "
    assert blocked in " ".join(said.split())
