"""A package may be named by a pattern: it is gone once no package of that pattern is installed. By the real dpkg."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.apply.conditions import look
from firstlight.cli.plan_files import extras_of
from firstlight.machine.live import LiveMachine
from firstlight.ways.kinds import RemovePackages
from firstlight.ways.step import CheckKind, Condition
from tests.diagnosis.rule_case import facts_of
from tests.ways.machines import at, made

pytestmark = pytest.mark.system


def _package(name: str, status: str) -> str:
    lines = (
        f"Package: {name}",
        f"Status: {status}",
        "Architecture: all",
        "Version: 9.23.0-1",
        "Maintainer: nobody <nobody@localhost>",
        "Description: a library",
    )
    return "\n".join(lines) + "\n\n"


@pytest.mark.parametrize(("second", "gone"), [("install ok installed", False), ("deinstall ok config-files", True)])
def test_a_pattern_is_gone_once_none_of_its_packages_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, *, gone: bool
) -> None:
    first = _package("libcudnn9-cuda-12", "deinstall ok config-files")
    (tmp_path / "status").write_text(first + _package("libcudnn9-cuda-13", second))
    for folder in ("info", "updates", "triggers"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path))
    assert look(Condition(CheckKind.APT_ABSENT, "libcudnn9-*")).holds is gone
    assert look(Condition(CheckKind.APT_PACKAGE, "libcudnn9-*")).holds is not gone
    assert look(Condition(CheckKind.APT_ABSENT, "no-such-package-*")).holds


def test_a_pattern_is_told_as_the_packages_that_are_installed_and_taken_back_by_name_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, gone = "install ok installed", "deinstall ok config-files"
    names = (("libcudnn9-cuda-13", there), ("libcudnn9-headers-cuda-13", there), ("libcudnn9-cuda-12", gone))
    (tmp_path / "status").write_text("".join(_package(*each) for each in (*names, ("libcudnn8", there))))
    for folder in ("info", "updates", "triggers"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path))
    extras = extras_of(LiveMachine(), facts_of("cudnn-mix"))
    [step] = made(at("cudnn-mix", extras=extras), RemovePackages(("libcudnn9-*",)))
    found = ("libcudnn9-cuda-13", "libcudnn9-headers-cuda-13")
    assert step.commands == (("apt-get", "remove", "--yes", *found),)
    assert step.title == "remove libcudnn9-cuda-13, libcudnn9-headers-cuda-13"
    assert step.undo == (("apt-get", "install", "--yes", *(f"{each}=9.23.0-1" for each in found)),)
    assert not look(step.done_when[0]).holds
