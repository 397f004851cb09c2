"""A step that replaces something is not done because that something is there: source builds, and files of conda."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from firstlight.apply.conditions import all_met, proved
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import BuildFromSource, InstallConda
from firstlight.ways.step import CheckKind
from tests.diagnosis.rule_case import facts_of
from tests.ways.machines import at, made

LIBSTDCXX = InstallConda("libstdcxx-ng", "conda-forge", "", "lib/libstdc++.so.6")


def test_a_source_build_is_not_done_by_the_torch_that_it_replaces() -> None:
    _, build = made(at("h100-driver-570"), BuildFromSource("torch", "2.9.0", ()))
    [once] = (each for each in build.done_when if each.kind is CheckKind.ONCE)
    assert all_met((once,)).saw == "another torch is installed"


def test_a_package_of_the_same_number_is_built_past_what_is_installed_and_cached() -> None:
    [build] = made(at("flash-attn-cu12"), BuildFromSource("flash-attn", "2.8.3", ()))
    assert {"--force-reinstall", "--no-deps", "--no-cache-dir"} <= set(build.commands[0])
    [new] = made(at("h100-driver-570"), BuildFromSource("flash-attn", "2.8.3", ()))
    assert "--no-deps" not in new.commands[0], "what it needs comes along where it is new"


def test_each_tag_is_checked_out_into_a_folder_of_its_own() -> None:
    where = at("h100-driver-570", extras=Extras(home="/root"))
    folders = [
        made(where, BuildFromSource("torch", version, ()))[0].commands[0][-1] for version in ("2.9.0", "2.15.0", "")
    ]
    there = "/root/.local/state/firstlight/source/pytorch"
    assert folders == [f"{there}-v2.9.0", f"{there}-v2.15.0", f"{there}-main"]


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
