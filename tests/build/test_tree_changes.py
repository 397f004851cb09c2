"""Edits of a checkout and patches that come and go: what is built is what lies there, and the wheel says so."""

from __future__ import annotations

import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.build.fetching import fetch, patch_tree, source_holds
from firstlight.build.keys import key_of, what_changed
from firstlight.build.patching import applied_patches
from firstlight.build.planning import source_of, source_spec, source_steps
from firstlight.build.request import Target, parse_target
from firstlight.build.spec import SourceSpec, Stage
from firstlight.build.tree_state import read_tree_state
from firstlight.build.wheel_finish import finish_wheel
from firstlight.errors import CouldNotAct
from firstlight.report.build_text import source_text
from tests.build.standin import git, make_standin
from tests.build.test_build_sources import PATCH, raw_wheel_in, spec_in

NEW_FILE = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.cpp").write_text("int a;\n")
    (tree / ".gitignore").write_text("ignored.txt\n")
    git(tree, "init", "--initial-branch=main")
    git(tree, "add", ".")
    git(tree, "commit", "-m", "tree")
    return tree


def test_an_edit_of_a_checkout_changes_every_key_and_is_said(checkout: Path, tmp_path: Path) -> None:
    clean = read_tree_state(str(checkout))
    (checkout / "build").mkdir()
    (checkout / "build/a.o").write_text("made")
    (checkout / "ignored.txt").write_text("made")
    assert read_tree_state(str(checkout)) == clean, "what a build leaves is no edit"
    (checkout / "a.cpp").write_text("int b;\n")  # the same size, within the same second
    edited = read_tree_state(str(checkout))
    assert (edited.commit, edited.edits) == (clean.commit, ("a.cpp",))
    (checkout / "a.cpp").write_text("int c;\n")
    again = read_tree_state(str(checkout))
    specs = [
        spec_in(tmp_path, commit=each.commit, edits=each.edits, tree_digest=each.digest)
        for each in (clean, edited, again)
    ]
    for stage in (Stage.CONFIGURE, Stage.COMPILE, Stage.WHEEL):
        assert len({key_of(each, stage) for each in specs}) == 3
    assert what_changed(specs[0], specs[1]) == ("files of the tree changed: a.cpp",)
    assert source_text(specs[1]).endswith("dirty: 1 file differs from that commit (a.cpp)")
    assert "dirty" not in source_text(specs[0])


def test_a_new_file_a_removed_one_and_an_edit_in_a_submodule_are_edits(tmp_path: Path) -> None:
    tree = make_standin(tmp_path / "tree", units=1, submodule=True)
    clean = read_tree_state(str(tree))
    (tree / "part/part.h").write_text("#define PART 7\n")
    (tree / "src/more.cpp").write_text("")
    (tree / "src/unit_0.cpp").unlink()
    found = read_tree_state(str(tree))
    assert clean.edits == ()
    assert found.edits == ("part", "part/part.h", "src/more.cpp", "src/unit_0.cpp")


def test_the_wheel_says_dirty(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, commit="1a2b", edits=("a.cpp",))
    Path(spec.wheels).mkdir()
    with zipfile.ZipFile(finish_wheel(str(raw_wheel_in(tmp_path)), spec)) as file:
        (about,) = (file.read(name) for name in file.namelist() if name.endswith("firstlight-build.json"))
    assert json.loads(about)["dirty"] is True


def sdist(folder: Path) -> Path:
    tree = folder / "x-1"
    tree.mkdir()
    (tree / "part.h").write_text("#define PART 1\n")
    subprocess.run(["tar", "-C", str(folder), "-czf", str(folder / "x-1.tar.gz"), "x-1"], check=True)
    return folder / "x-1.tar.gz"


def with_patches(folder: Path, target: Target, *patches: Path) -> SourceSpec:
    folder.mkdir(exist_ok=True)
    return source_spec("x-1", str(folder), source_of(target, "", tuple(map(str, patches))))


def test_a_patch_that_is_left_out_the_next_time_is_taken_out(tmp_path: Path) -> None:
    first, second = tmp_path / "first.diff", tmp_path / "second.diff"
    first.write_text(PATCH)
    second.write_text(NEW_FILE)
    target = parse_target(str(sdist(tmp_path)))
    both = with_patches(tmp_path / "b", target, first, second)
    fetch(both)
    patch_tree(both)
    tree = Path(both.tree)
    assert (tree / "part.h").read_text() == "#define PART 2\n"
    assert (tree / "new.txt").exists()
    none = with_patches(tmp_path / "b", target)
    assert [each.id for each in source_steps(none, "python3")] == ["fetch", "submodules", "patch"]
    assert not source_holds(none, Stage.PATCH)
    patch_tree(none)
    assert source_holds(none, Stage.PATCH)
    assert sorted(each.name for each in tree.iterdir()) == ["part.h"]
    assert (tree / "part.h").read_text() == "#define PART 1\n"
    assert applied_patches(none.folder) == ()
    assert [each.id for each in source_steps(none, "python3")] == ["fetch", "submodules"]


def test_a_patch_that_says_something_else_under_its_old_name_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "p.diff"
    path.write_text(PATCH)
    target = parse_target(str(sdist(tmp_path)))
    spec = with_patches(tmp_path / "b", target, path)
    fetch(spec)
    patch_tree(spec)
    path.write_text(PATCH.replace("PART 2", "PART 3"))
    later = with_patches(tmp_path / "b", target, path)
    assert not source_holds(later, Stage.PATCH)
    patch_tree(later)
    assert (Path(spec.tree) / "part.h").read_text() == "#define PART 3\n"
    built = [spec_in(tmp_path, source=each.source) for each in (spec, later)]
    assert key_of(built[0], Stage.WHEEL) != key_of(built[1], Stage.WHEEL)
    assert what_changed(*built) == ("the patches changed: p.diff -> p.diff",)
    (Path(spec.tree) / "part.h").write_text("#define PART 9\n")
    with pytest.raises(CouldNotAct, match="cannot be taken out"):
        patch_tree(replace(later, source=replace(later.source, patches=(), patch_sums=())))


def test_a_patch_that_was_in_the_tree_before_is_not_ours_to_take_out(tmp_path: Path) -> None:
    path = tmp_path / "p.diff"
    path.write_text(PATCH)
    tree = tmp_path / "own"
    tree.mkdir()
    (tree / "part.h").write_text("#define PART 2\n")
    target = Target(str(tree), folder=str(tree))
    patch_tree(with_patches(tmp_path / "b", target, path))
    patch_tree(with_patches(tmp_path / "b", target))
    assert (tree / "part.h").read_text() == "#define PART 2\n"
