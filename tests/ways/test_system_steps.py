"""What steps of the system's packages say of themselves: the way back, the version, and what stays."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from firstlight.facts.containers import ContainerKind
from firstlight.plan.plan import plan_for
from firstlight.report.plan_text import plan_text, steps_text
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import BuildModules, InstallPackages, RemovePackages
from firstlight.ways.platform import Manager
from firstlight.ways.traits import reversible
from firstlight.ways.way import Reversible
from tests.plan.planning import question_of, ranked_of
from tests.ways.machines import at, made, on

FABRIC = InstallPackages(("nvidia-fabricmanager-580",), version="580.105.08*")


def test_the_fabric_manager_of_before_comes_back_in_its_version() -> None:
    [step] = made(at("h200-other-fabric-manager"), FABRIC)
    assert step.commands[0][-2:] == ("--allow-downgrades", "nvidia-fabricmanager-580=580.105.08*")
    [back] = step.undo
    assert back[-2:] == ("--allow-downgrades", "nvidia-fabricmanager-590=590.48.01*")
    assert "the package nvidia-fabricmanager-580 is installed in version 580.105.08*" in steps_text((step,))


def test_in_a_container_apts_lists_are_fetched_first_and_elsewhere_they_are_there() -> None:
    where = at("a100-no-driver")
    way = InstallPackages(("ninja-build",))
    platform = replace(where.platform, is_root=True, manager=Manager.APT, container=ContainerKind.DOCKER)
    [inside] = made(on(where, platform), way)
    assert inside.commands == (("apt-get", "update"), ("apt-get", "install", "--yes", "ninja-build"))
    [outside] = made(on(where, replace(platform, container=ContainerKind.NONE)), way)
    assert outside.commands == inside.commands[1:]
    [fedora] = made(on(where, replace(platform, manager=Manager.DNF)), way)
    assert [argv[0] for argv in fedora.commands] == ["dnf"]


def test_where_no_fabric_manager_was_the_new_one_is_removed() -> None:
    where = at("h200-other-fabric-manager")
    health = replace(
        where.facts.health, fabric_manager_version=at("a100-no-driver").facts.health.fabric_manager_version
    )
    [step] = made(at(replace(where.facts, health=health)), FABRIC)
    assert step.undo[0][-3:] == ("remove", "--yes", "nvidia-fabricmanager-580")


def test_packages_that_go_come_back_in_part_and_purged_settings_do_not() -> None:
    assert reversible(RemovePackages(("libcudnn9-cuda-12",))) is Reversible.PARTLY
    [purged] = made(at("wsl2-linux-libcuda"), RemovePackages(("libnvidia-compute-535",), purge=True))
    assert "Their settings under /etc go with them" in purged.note


def test_dkms_without_a_source_of_nvidias_modules_fails_in_words(tmp_path: Path) -> None:
    where = at("a100-no-driver")
    host = replace(where.platform, is_root=True, container=ContainerKind.NONE, manager=Manager.APT)
    [build] = made(on(where, host), BuildModules("6.8.0-60-generic", ""))
    assert "the next start of the machine may load them" in build.note
    dkms = tmp_path / "dkms"

    def looked(status: str) -> subprocess.CompletedProcess[str]:
        dkms.write_text(f"#!/bin/sh\necho '{status}'\n")
        dkms.chmod(0o755)
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(build.commands[0], env=env, capture_output=True, text=True, check=False)

    assert looked("nvidia/580.105.08, 6.8.0-55-generic, x86_64: installed").returncode == 0
    lacking = looked("zfs/2.2.2, 6.8.0-60-generic, x86_64: installed")
    assert lacking.returncode == 1
    assert "dkms has no source of the nvidia modules to build" in lacking.stdout


def test_a_plan_names_the_command_that_has_the_diff() -> None:
    question = question_of("h200-compat-stale")
    found = ranked_of("h200-compat-stale")
    plan = plan_for(question, found.options[0], extras=Extras(home="/root"))
    assert "`firstlight plan --diff` shows what is written" in "".join(map(str, plan_text(question, plan, found)))
