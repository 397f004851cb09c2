"""Every document that a verb prints has a schema: the literals in the code, and four verbs' own output."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from firstlight.cli.main import cli

ROOT = Path(__file__).parents[2] / "src" / "firstlight"
SCHEMAS = ROOT / "schemas"
# kept on disk for firstlight itself, or of an earlier version that is refused with what to do; none is printed
NOT_PRINTED = {"built-1", "choice-1", "choice-fits-1", "download-rate-1", "machine-1", "diagnosis-1"}


def _valid(document: Any) -> None:
    name = document["schema"].removeprefix("firstlight.").replace("/", "-")
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text())).validate(document)


def test_every_name_of_a_document_in_the_code_has_a_schema() -> None:
    named = {
        f"{kind}-{version}"
        for path in ROOT.rglob("*.py")
        for kind, version in re.findall(r'"firstlight\.([a-z-]+)/(\d)"', path.read_text())
    }
    assert len(named) > 30
    assert named - {path.stem for path in SCHEMAS.iterdir()} == NOT_PRINTED


def test_what_mcp_and_emit_agents_print_and_keep_is_valid(tmp_path: Path) -> None:
    def printed(*words: str) -> Any:
        done = CliRunner().invoke(cli, list(words))
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    _valid(printed("mcp", "--json"))
    _valid(printed("emit", "agents", "--out", str(tmp_path), "--json"))
    kept = json.loads((tmp_path / ".firstlight" / "agents.json").read_text())
    _valid(kept)
    assert kept["files"]
    taken = printed("emit", "agents", "--remove", "--out", str(tmp_path), "--json")
    _valid(taken)
    assert taken["removed"]


def test_what_guard_test_prints_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["emit", "agents", "--tool", "cursor", "--out", str(tmp_path)])
    done = CliRunner().invoke(cli, ["guard", "test", "--json"])
    document = json.loads(done.stdout)
    _valid(document)
    assert document["fired"]
    assert document["broken"]


def test_what_emit_build_prints_is_valid(tmp_path: Path) -> None:
    """Of an sdist that is here, which is not unpacked for it."""
    setup = b"from setuptools import setup\nsetup(name='small', version='1')\n"
    with tarfile.open(tmp_path / "small-1.tar.gz", "w:gz") as archive:
        for name, data in (("setup.py", setup), ("PKG-INFO", b"Metadata-Version: 2.1\nName: small\nVersion: 1\n")):
            member = tarfile.TarInfo(f"small-1/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    words = ["emit", "bash", "--build", str(tmp_path / "small-1.tar.gz"), "--archs", "9.0", "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output + str(done.exception)
    document = json.loads(done.stdout)
    _valid(document)
    assert document["sdist"]["name"] == "sources/small-1.tar.gz"
