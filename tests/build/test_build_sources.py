"""Archives, patches, checkouts and wheels: what is brought here, and what is refused."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.build.backend import Backend
from firstlight.build.engines import environment_for, wheel_engine
from firstlight.build.fault import Weight
from firstlight.build.fetching import fetch, missing_submodules, patch_tree, source_holds, submodules
from firstlight.build.keys import holds, key_of, mark_done, what_changed
from firstlight.build.patching import patch_state
from firstlight.build.planning import id_of, source_of, source_spec
from firstlight.build.project import read_project
from firstlight.build.remote_ref import moved_ref
from firstlight.build.request import Target, parse_target
from firstlight.build.spec import (
    SCHEMA,
    BuildSpec,
    Setting,
    Source,
    SourceSpec,
    Stage,
    digest_of,
    read_spec,
    write_spec,
)
from firstlight.build.tree_state import commit_of
from firstlight.build.wheel_finish import finish_wheel, with_local
from firstlight.errors import BadInput, CouldNotAct, CouldNotLook
from tests.build.standin import git, make_part, make_standin

PATCH = "--- a/part.h\n+++ b/part.h\n@@ -1 +1 @@\n-#define PART 1\n+#define PART 2\n"


def spec_in(folder: Path, **more: object) -> BuildSpec:
    spec = BuildSpec(
        schema=SCHEMA, id="x-1", folder=str(folder), tree=str(folder / "tree"), source=Source("x"), commit="",
        edits=(), tree_digest="t", name="x", version="1.0", backend=Backend.SETUPTOOLS, python="/usr/bin/python3",
        settings=(), defines=(), removed=("CFLAGS",), archs=("9.0",), sms=("sm_90",), toolkit="/usr/local/cuda",
        toolkit_version="13.0.88", compiler="g++ 12.2.0", kinds=(), jobs=2, targets=(), only="", links=(), prefix="",
        wheel_only=False, max_minutes=0, local="fl.cu130.sm90",
    )  # fmt: skip
    return replace(spec, **more)  # type: ignore[arg-type]


def source_in(folder: Path, source: Source) -> SourceSpec:
    folder.mkdir(exist_ok=True)
    return source_spec("x-1", str(folder), source)


def test_a_patch_applies_once_and_is_known_to_be_in(tmp_path: Path) -> None:
    tree = make_standin(tmp_path / "tree", units=1) / "part"
    (tmp_path / "p.diff").write_text(PATCH)
    assert patch_state(str(tree), str(tmp_path / "p.diff"))[0] == "applies"
    spec = source_in(tmp_path / "b", source_of(Target("x"), str(tree), (str(tmp_path / "p.diff"),)))
    patch_tree(spec)
    patch_tree(spec)
    assert (tree / "part.h").read_text() == "#define PART 2\n"
    assert source_holds(spec, Stage.PATCH)
    (tree / "part.h").write_text("#define PART 3\n")
    state, hunk = patch_state(str(tree), str(tmp_path / "p.diff"))
    assert (state, "FAILED" in hunk) == ("conflicts", True)
    with pytest.raises(CouldNotAct, match="does not apply"):
        patch_tree(spec)


def test_a_checkout_with_submodules_comes_whole_and_a_moved_tag_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("COUNT", "1"), ("KEY_0", "protocol.file.allow"), ("VALUE_0", "always")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    tree = make_standin(tmp_path / "tree", units=1, submodule=True)
    git(tree, "tag", "v1")
    spec = source_in(tmp_path / "b", source_of(parse_target(f"git+file://{tree}@v1"), "", ()))
    fetch(spec)
    assert missing_submodules(spec.tree) == ("part",)
    assert not source_holds(spec, Stage.SUBMODULES)
    (tmp_path / "part-remote").rename(tmp_path / "away")
    with pytest.raises(CouldNotLook, match="git submodule did not get the source"):
        submodules(spec)
    (tmp_path / "away").rename(tmp_path / "part-remote")
    submodules(spec)
    assert missing_submodules(spec.tree) == ()
    assert (Path(spec.tree) / "part/part.h").exists()
    (tree / "more.txt").write_text("more")
    git(tree, "add", "more.txt")
    git(tree, "commit", "-m", "more")
    git(tree, "tag", "--force", "v1")
    with pytest.raises(BadInput, match=r"was .* when this build began"):
        fetch(spec)
    assert source_holds(spec, Stage.FETCH), "nothing is fetched any more, and yet the tag is looked at"
    with pytest.raises(BadInput, match=r"the tag v1 is .* it moved"):
        list(moved_ref(spec, login=""))
    with pytest.raises(BadInput, match="no such tag"):
        fetch(replace(spec, source=replace(spec.source, ref="v9")))


def test_a_branch_that_moved_is_told_and_the_build_goes_on_where_it_began(tmp_path: Path) -> None:
    tree = make_part(tmp_path / "tree")
    spec = source_in(tmp_path / "b", source_of(parse_target(f"git+file://{tree}"), "", ()))
    fetch(spec)
    began = commit_of(spec.tree)
    assert list(moved_ref(spec, login="")) == []
    git(tree, "commit", "--allow-empty", "-m", "more")
    [said] = moved_ref(spec, login="")
    assert (said.code, said.weight, began[:12] in said.saw) == ("branch-moved", Weight.NOTE, True)
    fetch(spec)
    assert commit_of(spec.tree) == began
    tree.rename(tmp_path / "gone")
    [said] = moved_ref(spec, login="")
    assert (said.code, said.weight) == ("remote-not-asked", Weight.NOTE)


def test_a_folder_that_is_no_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"pyproject\.toml or a setup\.py"):
        read_project(str(tmp_path))
    with pytest.raises(BadInput, match="no such folder"):
        read_project(str(tmp_path / "gone"))


def test_a_spec_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b", settings=(Setting("USE_X", "1"),))
    write_spec(spec)
    assert read_spec(spec.folder) == spec
    assert digest_of(spec) == digest_of(replace(spec, jobs=3)), "the memory of the moment decides, nobody agrees to it"
    assert digest_of(spec) != digest_of(replace(spec, compiler="g++ 13"))


def test_a_stage_holds_until_something_it_is_made_from_changes(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b")
    (tmp_path / "b").mkdir()
    mark_done(spec, Stage.CONFIGURE, {})
    assert holds(spec, Stage.CONFIGURE)
    assert holds(replace(spec, jobs=9, prefix="/y", max_minutes=3), Stage.CONFIGURE)
    changed = replace(spec, settings=(Setting("USE_X", "1"),), compiler="g++ 13")
    assert not holds(changed, Stage.CONFIGURE)
    assert what_changed(spec, changed) == ("USE_X was not set and is 1", "the compiler changed: g++ 12.2.0 -> g++ 13")
    assert key_of(spec, Stage.CONFIGURE) != key_of(spec, Stage.WHEEL)


def test_variables_that_would_leak_in_are_left_out(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, settings=(Setting("USE_X", "1"),))
    found = environment_for(
        spec, wheel_engine(spec, 3), {"CFLAGS": "-O0", "HOME": "/h", "PATH": "/bin", "MAX_JOBS": "64"}
    )
    assert (found.get("CFLAGS"), found["HOME"], found["USE_X"], found["MAX_JOBS"]) == (None, "/h", "1", "3")
    assert found["PATH"] == "/usr/bin:/usr/local/cuda/bin:/bin"


def raw_wheel_in(folder: Path) -> Path:
    path = folder / "x-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/__init__.py", "")
        file.writestr("x-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: x\nVersion: 1.0\n\nVersion: 1.0\n")
        file.writestr(
            "x-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("x-1.0.dist-info/RECORD", "")
    return path


def test_the_finished_wheel_says_what_it_was_built_from_and_nothing_of_the_machine(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, settings=(Setting("USE_X", "1"), Setting("CUDA_HOME", "/home/somebody/cuda")))
    os.makedirs(spec.wheels)
    raw = raw_wheel_in(tmp_path)
    first = Path(finish_wheel(str(raw), spec))
    data = first.read_bytes()
    assert first.name == "x-1.0+fl.cu130.sm90-py3-none-any.whl"
    with zipfile.ZipFile(first) as file:
        info = "x-1.0+fl.cu130.sm90.dist-info"
        about = json.loads(file.read(f"{info}/firstlight-build.json"))
        assert b"\nVersion: 1.0+fl.cu130.sm90\n\nVersion: 1.0\n" in file.read(f"{info}/METADATA")
        recorded = {line.split(",")[0] for line in file.read(f"{info}/RECORD").decode().splitlines()}
        assert recorded == set(file.namelist())
    assert (about["flags"], about["archs"], about["toolkit"]) == ({"USE_X": "1"}, ["9.0"], "13.0.88")
    assert "somebody" not in json.dumps(about)
    assert Path(finish_wheel(str(raw), spec)).read_bytes() == data, "the same inputs give the same file"


@pytest.mark.parametrize(("version", "local"), [("1.0", "1.0+fl.cpu"), ("1.0+cu130", "1.0+cu130.fl.cpu")])
def test_a_local_version_goes_behind_one_that_is_there(version: str, local: str) -> None:
    assert with_local(version, "fl.cpu") == local


def test_the_id_of_a_build_stays_while_target_and_python_do() -> None:
    target = parse_target("flash-attn==2.8.3")
    source = source_of(target, "", ())
    assert id_of(target, source, "/a/python") == id_of(target, source, "/a/python")
    assert id_of(target, source, "/a/python") != id_of(target, source, "/b/python")
    assert id_of(target, source, "/a/python").startswith("flash-attn-2.8.3-")
