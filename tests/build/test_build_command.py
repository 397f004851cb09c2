"""The command itself without a compiler: a dry run leaves nothing behind, and --json fits its schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from firstlight.build.fault import stops
from firstlight.build.fetching import near_releases
from firstlight.build.flags import parse_flag
from firstlight.build.keys import mark_done
from firstlight.build.places import KeptBuild
from firstlight.build.planning import bringing_step, source_of, source_spec
from firstlight.build.progress import BuildStatus
from firstlight.build.request import Target, parse_target
from firstlight.build.spec import Stage, write_spec
from firstlight.cli.build import request_of
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.report.build_json import ended_document, status_document
from tests.build.standin import make_standin
from tests.build.test_build_sources import spec_in

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/build-1.json").read_text())


def fits(document: Any) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(document)


def dry_run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(tmp_path / "state"), "TMPDIR": str(tmp_path / "tmp")}
    argv = [sys.executable, "-m", "firstlight", "build", *words, "--python", sys.executable, "--dry-run"]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def test_a_dry_run_of_an_sdist_reads_it_and_leaves_nothing_behind(tmp_path: Path) -> None:
    make_standin(tmp_path / "standin-1.0", units=1)
    (tmp_path / "tmp").mkdir()
    archive = tmp_path / "standin-1.0.tar.gz"
    subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(archive), "standin-1.0"], check=True)
    done = dry_run(tmp_path, str(archive), "--json", "--flag", "USE_LUOD=1")
    document = json.loads(done.stdout)
    fits(document)
    assert (done.returncode, document["ending"], document["project"]["name"]) == (1, "refused", "standin")
    assert document["flags"][0]["nearest"] == ["USE_LOUD"]
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "state/builds").exists()


def test_a_folder_that_is_no_project_is_refused_before_anything_is_written_down(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(tmp_path / "state")}
    argv = [sys.executable, "-m", "firstlight", "build", str(tmp_path / "empty"), "--yes"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "no project: accepted is a folder with" in done.stderr) == (2, True), done.stderr
    assert not list((tmp_path / "state").rglob("*.json"))
    assert not (tmp_path / "state/builds").exists()


def test_another_project_than_the_one_asked_for_is_refused(tmp_path: Path) -> None:
    tree = make_standin(tmp_path / "tree", units=1)
    done = dry_run(tmp_path, "other==1", "--source", str(tree))
    assert done.returncode == 1
    assert "other==1 was asked for, but the tree is standin 1.0" in " ".join(done.stdout.split())


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    given = dict.fromkeys(("features_on", "features_off", "build_dir", "prefix", "only", "toolkit"), "")
    more = {
        "patches": (),
        "flags": (),
        "archs": "auto",
        "jobs": None,
        "max_minutes": 0,
        "wheel_only": False,
        "no_deps": False,
    }
    with pytest.raises(BadInput, match="--source '/nowhere': no such folder"):
        request_of("x==1", {**given, **more, "source": "/nowhere"})
    assert request_of("x==1", {**given, **more, "source": str(tmp_path)}).flags == ()
    assert parse_flag("A=1").name == "A"


def test_what_is_said_of_a_build_that_ended_or_is_kept_fits_the_schema(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b", wheel_only=True)
    source = source_spec("x-1", spec.folder, source_of(Target("x"), str(tmp_path), ()))
    write_spec(source)
    mark_done(spec, Stage.COMPILE, {"minutes": 30.0, "units": 6})
    assert ended_document(spec, Known(2.0, "--rate")) == {"wheel": "", "proofs": [], "minutes": 30.0, "money": 1.0}
    status = BuildStatus("x-1", Stage.WHEEL, 1, "", 0.0, 0.0, 1.0, 0, 2, 1, -1, "few", 0, 0, "", (), "/log")
    kept = KeptBuild(spec.folder, source, spec)
    fits(status_document(kept, status))
    fits(status_document(None, None))
    row = {"id": "x-1", "target": "x", "folder": spec.folder, "bytes": 1, **status_document(kept, None)}
    fits({"schema": "firstlight.build/1", "builds": [row]})


def test_what_was_typed_wrong_ends_with_2_and_begins_nothing(tmp_path: Path) -> None:
    tree = make_standin(tmp_path / "tree", units=1)
    followed = dry_run(tmp_path, str(tree), "--follow")
    assert (followed.returncode, "--follow goes with --status" in followed.stderr) == (2, True)
    spaced = make_standin(tmp_path / "a tree", units=1)
    refused = dry_run(tmp_path, str(spaced))
    assert (refused.returncode, "space-in-path" in refused.stdout) == (2, True)
    assert not (tmp_path / "state/builds").exists()


def test_a_name_without_a_version_is_told_what_it_lacks() -> None:
    for text in ("flash-attn", "flash-attn>=2.8"):
        with pytest.raises(BadInput, match="a release is named with its version, flash-attn==VERSION"):
            parse_target(text)


def test_a_release_without_an_sdist_is_refused_with_those_that_have_one() -> None:
    there = ["0.0.30", "0.0.31.post1", "0.0.32.post1", "0.0.35", "0.0.36.dev1", "no-version"]
    assert near_releases("0.0.32", there) == ["0.0.31.post1", "0.0.32.post1", "0.0.35"]
    assert near_releases("9", there) == ["0.0.35"]
    assert near_releases("1.0", ["1.0rc1"]) == ["1.0rc1"]
    assert near_releases("1.0", []) == []


@pytest.mark.parametrize("words", [("--dry-run",), ("--yes",)])
def test_a_folder_that_takes_nothing_is_refused_at_once(tmp_path: Path, words: tuple[str, ...]) -> None:
    tree = make_standin(tmp_path / "tree", units=1)
    argv = [sys.executable, "-m", "firstlight", "build", str(tree), "--build-dir", "/proc/x", *words]
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("firstlight: /proc/x: the build cannot be kept there"), done.stderr


def test_torch_is_pytorch_at_its_tag_and_other_releases_come_from_the_index() -> None:
    torch = source_of(Target("torch==2.9.1", "torch", "2.9.1"), "", ())
    assert (torch.url, torch.ref, torch.release) == ("https://github.com/pytorch/pytorch.git", "v2.9.1", "")
    assert source_of(Target("x==1", "x", "1"), "", ()).release == "x==1"
    assert source_of(Target("torch==2.9.1", "torch", "2.9.1"), "/src", ()).folder == "/src"


def test_what_a_tree_is_built_with_becomes_a_step_that_is_taken_back() -> None:
    fault = stops("build-requirements", "x", "y", command="/venv/bin/python -m pip install 'setuptools>=70' wheel")
    step = bringing_step(fault)
    assert step.commands == (("/venv/bin/python", "-m", "pip", "install", "setuptools>=70", "wheel"),)
    assert step.done_when[0].expected == "setuptools>=70\nwheel"
    assert step.undo == (("/venv/bin/python", "-m", "pip", "uninstall", "--yes", "setuptools", "wheel"),)
