"""CUTLASS: trees and wheels, with the commit read from git's own files."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.cutlass import CutlassFacts, CutlassWheel, commit_of, probe_cutlass
from firstlight.facts.known import Known, Unknown
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode

VERSION = "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 3\n#define CUTLASS_PATCH 0\n"


def put(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def tree(root: Path, path: str, version: str = VERSION) -> Path:
    put(root, f"{path}/include/cutlass/version.h", version)
    put(root, f"{path}/include/cute/tensor.hpp")
    return root / path.lstrip("/")


def machine_of(root: Path, **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ=environ, host=replace(LiveMachine().host, home="/home/ada"))


def git(folder: Path, *words: str) -> str:
    options = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "gc.auto=0")
    done = subprocess.run(("git", *options, *words), cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def committed(folder: Path) -> str:
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return git(folder, "rev-parse", "HEAD")


def test_a_tree_is_found_once_by_all_its_names(tmp_path: Path) -> None:
    tree(tmp_path, "/opt/cutlass")
    [found] = probe_cutlass(
        machine_of(tmp_path, CUTLASS_HOME="/opt/cutlass", CUTLASS_PATH="/opt/cutlass/include")
    ).trees
    assert found.path == "/opt/cutlass"
    assert found.found_by == ("CUTLASS_HOME", "CUTLASS_PATH", "/opt/cutlass")
    assert found.version == Known("4.3.0", seen_in="/opt/cutlass/include/cutlass/version.h")
    assert found.commit == Unknown("/opt/cutlass is not a git work tree")
    assert found.has_cute


def test_trees_at_home_and_in_wheels_are_found(tmp_path: Path) -> None:
    tree(tmp_path, "/home/ada/cutlass")
    tree(tmp_path, "/venv/site-packages/cutlass_library/source")
    (tmp_path / "venv/site-packages/nvidia_cutlass_dsl-4.8.1.dist-info").mkdir()
    facts = probe_cutlass(machine_of(tmp_path), site_packages=("/venv/site-packages",))
    assert [each.path for each in facts.trees] == ["/home/ada/cutlass", "/venv/site-packages/cutlass_library/source"]
    assert facts.wheels == (CutlassWheel("nvidia_cutlass_dsl", "4.8.1", "/venv/site-packages"),)


@pytest.mark.parametrize("text", ["", "#define CUTLASS_MAJOR 4\n", "#define CUTLASS_MAJOR x\n", "\0\xff" * 50])
def test_a_version_header_without_numbers_gives_no_version(tmp_path: Path, text: str) -> None:
    tree(tmp_path, "/opt/cutlass", text)
    [found] = probe_cutlass(machine_of(tmp_path)).trees
    assert isinstance(found.version, Unknown)


def test_headers_without_cute_or_version_are_an_old_tree(tmp_path: Path) -> None:
    put(tmp_path, "/usr/local/cutlass/include/cutlass/cutlass.h")
    [found] = probe_cutlass(machine_of(tmp_path)).trees
    assert not found.has_cute
    assert found.version == Unknown("/usr/local/cutlass/include/cutlass/version.h: no such file")


def test_no_cutlass_is_no_tree(tmp_path: Path) -> None:
    (tmp_path / "opt/cutlass").mkdir(parents=True)
    assert probe_cutlass(machine_of(tmp_path, CUTLASS_DIR="nowhere")) == CutlassFacts((), ())


def test_the_commit_of_a_branch_a_detached_head_and_packed_references(tmp_path: Path) -> None:
    folder = tree(tmp_path, "/opt/cutlass")
    commit = committed(folder)
    machine = machine_of(tmp_path)
    assert commit_of(machine, "/opt/cutlass") == Known(commit, seen_in="/opt/cutlass/.git/refs/heads/main")
    git(folder, "pack-refs", "--all")
    assert not (folder / ".git/refs/heads/main").exists()
    assert commit_of(machine, "/opt/cutlass") == Known(commit, seen_in="/opt/cutlass/.git/packed-refs")
    git(folder, "checkout", "-q", "--detach")
    assert commit_of(machine, "/opt/cutlass") == Known(commit, seen_in="/opt/cutlass/.git/HEAD")


def test_the_commit_of_a_worktree_is_found_through_its_git_file(tmp_path: Path) -> None:
    folder = tree(tmp_path, "/src/cutlass")
    commit = committed(folder)
    git(folder, "worktree", "add", "-q", "-b", "side", str(tmp_path / "opt/cutlass"))
    git(folder, "pack-refs", "--all")
    # git writes absolute paths; the tree is seen from its own root
    pointer = tmp_path / "opt/cutlass/.git"
    pointer.write_text(pointer.read_text().replace(str(tmp_path), ""))
    assert commit_of(machine_of(tmp_path), "/opt/cutlass") == Known(commit, seen_in="/src/cutlass/.git/packed-refs")


def test_the_commit_of_a_submodule_is_found_through_a_relative_git_file(tmp_path: Path) -> None:
    put(tmp_path, "/src/.git/modules/cutlass/HEAD", "0" * 40 + "\n")
    put(tmp_path, "/src/third_party/cutlass/.git", "gitdir: ../../.git/modules/cutlass\n")
    assert commit_of(machine_of(tmp_path), "/src/third_party/cutlass") == Known(
        "0" * 40, seen_in="/src/.git/modules/cutlass/HEAD"
    )


@pytest.mark.parametrize("head", ["", "ref: ../../etc/passwd", "ref: refs/../../x", "ref: refs/heads/gone", "\0" * 9])
def test_a_head_that_leads_nowhere_gives_no_commit(tmp_path: Path, head: str) -> None:
    put(tmp_path, "/opt/cutlass/.git/HEAD", head)
    assert isinstance(commit_of(machine_of(tmp_path), "/opt/cutlass"), Unknown)


@pytest.mark.parametrize("text", ["", "gitdir: ", "gitdir: /no\0where", "something else"])
def test_a_git_file_that_leads_nowhere_gives_no_commit(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/opt/cutlass/.git", text)
    assert isinstance(commit_of(machine_of(tmp_path), "/opt/cutlass"), Unknown)


def test_the_answer_can_be_written_down_and_replayed(tmp_path: Path) -> None:
    committed(tree(tmp_path, "/opt/cutlass"))
    recording = RecordingMachine(machine_of(tmp_path))
    facts = probe_cutlass(recording)
    assert probe_cutlass(RecordedMachine(recording.evidence)) == facts
    assert decode(CutlassFacts, json.loads(json.dumps(encode(facts))), "cutlass") == facts
