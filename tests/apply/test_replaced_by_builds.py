"""A step that replaces something is not done because that something is there: source builds, and files of conda."""

from __future__ import annotations

import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from firstlight.apply.conditions import all_met, proved
from firstlight.apply.executor import _by_this_firstlight, _compiles
from firstlight.versions import ComputeCapability
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import BuildFromSource, InstallConda
from tests.diagnosis.rule_case import facts_of
from tests.ways.machines import at, made

LIBSTDCXX = InstallConda("libstdcxx-ng", "conda-forge", "", "lib/libstdc++.so.6")


def test_a_source_build_is_not_done_by_the_torch_that_it_replaces() -> None:
    [build] = made(at("h100-driver-570"), BuildFromSource("torch", "2.9.0", (ComputeCapability(9, 0),)))
    wanted = build.done_when[0].expected.partition("==")[2]
    assert not fnmatchcase("2.9.0+cu130", wanted)
    assert not fnmatchcase("2.9.0+fl.cu130.sm100", wanted), "for another GPU"
    assert fnmatchcase("2.9.0+fl.cu130.sm90", wanted)


def test_what_is_built_is_a_release_or_the_main_branch() -> None:
    where = at("h100-driver-570", extras=Extras(home="/root"))
    targets = [made(where, BuildFromSource("torch", version, ()))[0].commands[0][2] for version in ("2.9.0", "")]
    assert targets == ["torch==2.9.0", "git+https://github.com/pytorch/pytorch.git"]
    [flash] = made(where, BuildFromSource("flash-attn", "2.8.3", ()))
    assert flash.commands[0][2] == "flash-attn==2.8.3"


def test_firstlight_of_a_plan_is_the_one_that_carries_it_out() -> None:
    own = (sys.executable, "-m", "firstlight", "build", "x")
    assert _by_this_firstlight(("firstlight", "build", "x")) == own
    assert _by_this_firstlight(("env", "CC=gcc-13", "firstlight", "build", "x")) == ("env", "CC=gcc-13", *own)
    assert _by_this_firstlight(("env", "A=1", "python3")) == ("env", "A=1", "python3")
    assert _compiles(["env", "CC=gcc-13", "firstlight", "build", "x"])
    assert not _compiles(["firstlight", "libs"])


def test_a_conda_package_without_its_file_is_installed_again(tmp_path: Path) -> None:
    facts = facts_of("conda-without-libstdcxx-link")
    environments = tuple(replace(each, prefix=str(tmp_path)) for each in facts.python.environments)
    [step] = made(at(replace(facts, python=replace(facts.python, environments=environments))), LIBSTDCXX)
    assert "--force-reinstall" in step.commands[0]
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta/libstdcxx-ng-15.2.0-h8f9b012_7.json").write_text("{}")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libstdc++.so.6").symlink_to("libstdc++.so.6.0.34")
    assert not proved(step.done_when).holds, "the link leads nowhere"
    (tmp_path / "lib/libstdc++.so.6.0.34").write_bytes(b"")
    assert proved(step.done_when).holds
    assert not all_met(step.done_when).holds, "an old file is a file too"
