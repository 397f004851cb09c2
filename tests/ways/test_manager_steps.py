"""Packages by each manager: what is run, how it is known to be done, and what undo runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.facts.containers import ContainerKind
from firstlight.tables import load
from firstlight.tables.system_rows import Family
from firstlight.ways.at import At
from firstlight.ways.back import BackKind, argv_of, state_of
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import (
    BuildModules,
    Flavour,
    ForbidModule,
    HoldPackages,
    InstallDriver,
    InstallPackages,
    LoadModules,
    RemovePackages,
    SetUpRepository,
)
from firstlight.ways.platform import EarlyImage, Manager, platform_of
from firstlight.ways.step import CheckKind, Step, StepKind
from firstlight.ways.steps import steps_of
from firstlight.ways.traits import by_person
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import facts_of

TABLES = load()
SYSTEMS = {
    Manager.DNF: (Family.RHEL, "9.4"),
    Manager.YUM: (Family.RHEL, "7"),
    Manager.TDNF: (Family.AZURE, "3.0"),
    Manager.ZYPPER: (Family.SUSE, "15.6"),
    Manager.PACMAN: (Family.ARCH, ""),
    Manager.APT: (Family.DEBIAN, "13"),
}
REMOVES = {
    Manager.DNF: (BackKind.REMOVE_RPM, ("dnf", "remove", "--assumeyes", "thing")),
    Manager.YUM: (BackKind.REMOVE_YUM, ("yum", "remove", "--assumeyes", "thing")),
    Manager.TDNF: (BackKind.REMOVE_TDNF, ("tdnf", "remove", "--assumeyes", "thing")),
    Manager.ZYPPER: (BackKind.REMOVE_ZYPPER, ("zypper", "--non-interactive", "remove", "thing")),
    Manager.PACMAN: (BackKind.REMOVE_PACMAN, ("pacman", "--remove", "--noconfirm", "thing")),
}
EVERY = pytest.mark.parametrize("manager", REMOVES, ids=lambda each: each.value)


def at(manager: Manager, **changes: object) -> At:
    facts = facts_of("h100-driver-570")
    family, release = SYSTEMS[manager]
    platform = replace(
        platform_of(facts), family=family, release=release, manager=manager, is_root=True, container=ContainerKind.NONE
    )
    return At(facts, TABLES, replace(platform, **changes), Extras(), "t")  # type: ignore[arg-type]


def made(where: At, way: Way) -> list[Step]:
    return list(steps_of(way, where))


@EVERY
def test_undo_removes_by_the_manager_that_installed(manager: Manager) -> None:
    [step] = made(at(manager), InstallPackages(("thing",)))
    kind, argv = REMOVES[manager]
    [back] = step.back
    assert (back.kind, argv_of(back)) == (kind, argv)
    assert step.kind is StepKind.APT


@EVERY
def test_what_was_installed_before_is_asked_for_so_that_undo_leaves_it(manager: Manager) -> None:
    asks = state_of(REMOVES[manager][0], "thing")
    assert asks[0] in ("rpm", "pacman")
    assert asks[-1] == "thing"


@EVERY
def test_done_is_asked_of_the_database_and_not_of_the_manager(manager: Manager) -> None:
    [step] = made(at(manager), InstallPackages(("thing",)))
    [done] = step.done_when
    assert (done.kind, done.argv[0]) == (CheckKind.COMMAND, "pacman" if manager is Manager.PACMAN else "rpm")
    [gone] = made(at(manager), RemovePackages(("thing",)))
    assert gone.done_when[0].argv[-1] == "thing"


def test_a_version_is_told_as_each_manager_takes_it() -> None:
    way = InstallPackages(("thing",), version="1.2")
    said = {manager: made(at(manager), way)[0].commands[0][-1] for manager in SYSTEMS}
    assert said == {
        Manager.DNF: "thing-1.2", Manager.YUM: "thing-1.2", Manager.TDNF: "thing-1.2", Manager.ZYPPER: "thing=1.2",
        Manager.PACMAN: "thing", Manager.APT: "thing=1.2",
    }  # fmt: skip


def test_a_stream_is_chosen_before_the_driver_is_installed_from_it() -> None:
    way = InstallDriver(580, Flavour.OPEN, ("kmod-nvidia-open-dkms",), stream="nvidia-driver:580-open")
    [step] = made(at(Manager.DNF), way)
    assert [argv[:3] for argv in step.commands] == [
        ("dnf", "module", "reset"), ("dnf", "module", "enable"), ("dnf", "install", "--assumeyes"),
    ]  # fmt: skip
    assert argv_of(step.back[0]) == ("dnf", "remove", "--assumeyes", "kmod-nvidia-open-dkms")


def test_a_branch_with_a_star_is_known_by_its_beginning() -> None:
    [step] = made(at(Manager.DNF), InstallDriver(580, Flavour.OPEN, ("nvidia-open",), version="580*"))
    assert step.commands[-1][-1] == "nvidia-open-580*"
    assert step.done_when[0].argv[-2:] == ("nvidia-open", "580")


@pytest.mark.parametrize(
    ("manager", "first", "back"),
    [
        (Manager.DNF, ("dnf", "versionlock", "add", "thing"), ("dnf", "versionlock", "delete", "thing")),
        (Manager.YUM, ("yum", "versionlock", "add", "thing"), ("yum", "versionlock", "delete", "thing")),
        (Manager.ZYPPER, ("zypper", "addlock", "thing"), ("zypper", "removelock", "thing")),
        (Manager.APT, ("apt-mark", "hold", "thing"), ("apt-mark", "unhold", "thing")),
    ],
)
def test_a_package_is_held_and_let_go_by_its_manager(
    manager: Manager, first: tuple[str, ...], back: tuple[str, ...]
) -> None:
    [step] = made(at(manager), HoldPackages(("thing",)))
    assert (step.commands[0], argv_of(step.back[0])) == (first, back)


def test_where_a_manager_cannot_hold_a_person_does() -> None:
    for manager in (Manager.TDNF, Manager.PACMAN):
        assert "not known here" in by_person(HoldPackages(("thing",)), at(manager).platform)


@pytest.mark.parametrize(
    ("manager", "tool", "argv"),
    [
        (Manager.APT, EarlyImage.INITRAMFS_TOOLS, ("update-initramfs", "-u")),
        (Manager.DNF, EarlyImage.DRACUT, ("dracut", "--force")),
        (Manager.PACMAN, EarlyImage.MKINITCPIO, ("mkinitcpio", "-P")),
    ],
)
def test_the_early_image_is_made_anew_by_the_tool_of_the_system(
    manager: Manager, tool: EarlyImage, argv: tuple[str, ...]
) -> None:
    [step] = made(at(manager, early_image=tool), ForbidModule("nouveau"))
    assert step.commands == (argv,)
    assert [argv_of(back) for back in step.back] == [argv]


def test_modules_are_built_by_dkms_or_akmods() -> None:
    [dkms] = made(at(Manager.DNF), BuildModules("5.14.0", ""))
    assert dkms.commands[-1] == ("dkms", "autoinstall", "-k", "5.14.0")
    [akmods] = made(at(Manager.DNF), BuildModules("5.14.0", "", by="akmods"))
    assert akmods.commands == (("akmods", "--force", "--rebuild", "--kernels", "5.14.0"),)
    assert "not known here" in by_person(BuildModules("6.1", "", by="akmods"), at(Manager.PACMAN).platform)


def test_debians_own_parts_come_as_a_file_beside_the_list() -> None:
    [step] = made(at(Manager.APT), SetUpRepository("debian-nonfree"))
    [change] = step.files
    assert (step.kind, change.path) == (StepKind.FILE, "/etc/apt/sources.list.d/firstlight-nonfree.sources")
    assert "Suites: trixie\nComponents: contrib non-free non-free-firmware\n" in change.after


@pytest.mark.parametrize("name", ["nvidia", "rpmfusion", "epel", "debian-nonfree"])
def test_a_repository_that_the_tables_do_not_have_is_a_persons(name: str) -> None:
    assert "is not known here" in by_person(SetUpRepository(name), at(Manager.PACMAN).platform)


def test_zypper_is_told_a_version_without_its_release_and_that_it_may_be_an_older_one() -> None:
    [step] = made(at(Manager.ZYPPER), InstallPackages(("nvidia-compute-G06",), version="550.100-*"))
    assert step.commands == (("zypper", "--non-interactive", "install", "--oldpackage", "nvidia-compute-G06=550.100"),)


def test_dkms_builds_one_source_where_it_is_named() -> None:
    [step] = made(at(Manager.PACMAN), BuildModules("7.0.12-zen1-1-zen", "", source="nvidia/595.84"))
    assert step.commands[-1] == ("dkms", "install", "nvidia/595.84", "-k", "7.0.12-zen1-1-zen")


def test_in_a_container_what_is_the_kernels_is_done_on_the_host_and_says_so() -> None:
    [step] = made(at(Manager.APT, container=ContainerKind.PROXMOX), LoadModules(("nvidia_uvm",)))
    assert (step.kind, step.title) == (StepKind.MANUAL, "load nvidia_uvm on the host")
