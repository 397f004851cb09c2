"""A target for another arch: a library of the system is told apart from one that a package has to bring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firstlight.cli.main import run
from firstlight.machine.live import LiveMachine
from tests.schemas import fits
from tools.machines.elf_writer import ElfSpec, make_elf

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/libs-1.json").read_text())
HERE = LiveMachine().host.arch
THERE = "aarch64" if HERE == "x86_64" else "x86_64"


def _folder(tmp_path: Path, *needed: str, arch: str = THERE) -> str:
    (tmp_path / "libthing.so").write_bytes(make_elf(ElfSpec(arch=arch, needed=("libc.so.6", *needed))))
    return f"{tmp_path}/"


def test_a_library_of_the_system_is_named_with_its_package_and_is_not_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, "libnuma.so.1", "libthird.so.3")
    assert run(["libs", folder, "--arch", THERE]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"libc.so.6: of the system, and this machine is not {THERE}" in said
    assert "libnuma.so.1: not a CUDA library; from the packages of the system there: libnuma1 (Debian bookworm)" in said
    assert "libthird.so.3: in no package that the tables know; whether an" in said
    assert "missing" not in said


def test_the_document_has_the_name_and_the_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["libs", _folder(tmp_path, "libnuma.so.1"), "--arch", THERE, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    fits(document, SCHEMA)
    assert document["missing"] == []
    assert document["not_judged"] == ["libc.so.6", "libnuma.so.1"]
    assert ("libnuma.so.1", "libnuma1") in [(each["name"], each["package"]) for each in document["elsewhere"]]


@pytest.mark.parametrize("name", ["libcudss.so.0", "libcudss.so.7", "libshm.so", "libcuda.so.1"])
def test_what_a_package_or_the_driver_brings_is_missing_all_the_same(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["libs", _folder(tmp_path, name), "--arch", THERE, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in document["missing"]] == [name]


def test_for_this_arch_the_system_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["libs", _folder(tmp_path, "libnobody-has.so.1", arch=HERE), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in document["missing"]] == ["libnobody-has.so.1"]
    assert document["not_judged"] == []
