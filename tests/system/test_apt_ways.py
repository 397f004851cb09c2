"""Ways of system packages as steps, by the real apt and dpkg in a room of their own: there, held, gone and back."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from firstlight.apply.conditions import all_met
from firstlight.apply.executor import Acting, StepFailed
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.kinds import HoldPackages, InstallPackages, RemovePackages
from firstlight.ways.platform import Manager
from firstlight.ways.step import Step
from firstlight.ways.way import Way
from tests.apply.acting import acting
from tests.apply.debs import Repository
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.system.apt_room import FILES, HOME, add_package, in_a_room, states
from tests.ways.machines import at, made, on

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own"),
    pytest.mark.skipif(shutil.which("apt-get") is None or shutil.which("gpg") is None, reason="needs apt and gpg"),
]


class Room:
    """A repository with `main` in two versions, which needs `part`."""

    def __init__(self) -> None:
        self.repository = Repository(HOME / "repository")
        os.environ["APT_CONFIG"] = str(self.repository.config)
        add_package(self.repository, "part")
        add_package(self.repository, "main", "1.0", depends="part")
        add_package(self.repository, "main", "2.0", depends="part")
        subprocess.run(["apt-get", "update"], env=self.repository.env, check=True, capture_output=True)

    def step(self, way: Way) -> Step:
        where = at("a100-no-driver")
        [step] = made(on(where, replace(where.platform, is_root=True, manager=Manager.APT)), way)
        return step

    def _acting(self) -> Acting:
        return replace(acting(HOME), env=self.repository.env)

    def apply(self, step: Step) -> None:
        act(self._acting(), Asked((step,), "d", "o", "t"))
        assert all_met(step.done_when).holds

    def undo(self) -> None:
        doing = self._acting()
        for run in newest_to_undo(doing):
            undo(doing, run)


def _held() -> list[str]:
    return subprocess.run(["apt-mark", "showhold"], capture_output=True, text=True, check=True).stdout.split()


def test_packages_come_in_a_version_are_held_go_and_come_back() -> None:
    def work() -> None:
        room = Room()
        empty = states()
        install = room.step(InstallPackages(("main",), brings=(f"{FILES}/main/one",), version="1.*"))
        assert not all_met(install.done_when).holds
        room.apply(install)
        there = states()
        assert "installed main 1.0" in there
        assert "installed part 1.0" in there
        room.apply(room.step(HoldPackages(("main",))))
        assert _held() == ["main"]
        room.undo()
        assert (_held(), states()) == ([], there)
        room.apply(room.step(RemovePackages(("main",), purge=True)))
        assert "main" not in states().partition("manual")[0]
        room.undo()
        assert states() == there
        room.undo()
        assert states() == empty

    in_a_room(work)


def test_another_version_than_the_one_that_is_there_is_not_taken_for_it() -> None:
    def work() -> None:
        room = Room()
        room.apply(room.step(InstallPackages(("main",), version="1.*")))
        newer = room.step(InstallPackages(("main",), version="2.*"))
        assert not all_met(newer.done_when).holds
        room.apply(newer)
        assert "installed main 2.0" in states()

    in_a_room(work)


def test_a_held_package_is_not_replaced_and_a_free_one_is() -> None:
    def work() -> None:
        room = Room()

        def apt(*words: str) -> int:
            argv = ["apt-get", "--yes", *words]
            return subprocess.run(argv, env=room.repository.env, check=False, capture_output=True).returncode

        room.apply(room.step(InstallPackages(("main",), version="1.*")))
        there = states()
        room.apply(room.step(HoldPackages(("main",))))
        assert apt("install", "main=2.0") != 0
        assert apt("upgrade") == 0
        assert "installed main 1.0" in states()
        room.undo()
        assert states() == there
        assert apt("install", "main=2.0") == 0
        assert "installed main 2.0" in states()

    in_a_room(work)


_KERNEL = "linux-modules-nvidia-580-server-open-6.8.0-60-generic"
_FLAVOUR = "linux-modules-nvidia-580-server-open-generic-6.8"


def _driver_built_here() -> Room:
    """Ubuntu's driver as its packages need each other: only the modules of the flavour stand in for nvidia-dkms."""
    room = Room()
    dkms, add = "nvidia-dkms-580-server-open", room.repository.add
    for name, needs, stands_in in (
        (dkms, "", ""),
        ("nvidia-driver-580-server-open", f"{dkms} (>= 1.0)", ""),
        (_KERNEL, "", ""),
        (_FLAVOUR, _KERNEL, f"{dkms} (= 1.0), nvidia-prebuilt-kernel"),
    ):
        add(name, "1.0", files={f"{FILES}/{name}": name}, depends=needs, provides=stands_in)
    subprocess.run(["apt-get", "update"], env=room.repository.env, check=True, capture_output=True)
    room.apply(room.step(InstallPackages(("nvidia-driver-580-server-open",))))
    return room


def test_modules_that_dkms_built_go_and_the_driver_stays_where_the_systems_own_stand_in_for_them() -> None:
    def work() -> None:
        room = _driver_built_here()
        there = states()
        room.apply(room.step(InstallPackages((_KERNEL, _FLAVOUR))))
        room.apply(room.step(RemovePackages(("nvidia-dkms-*",), alone=True)))
        assert "installed nvidia-dkms-580-server-open" not in states()
        assert "installed nvidia-driver-580-server-open" in states()
        room.undo()
        room.undo()
        assert states() == there

    in_a_room(work)


def test_nothing_is_removed_where_the_driver_would_go_with_it() -> None:
    def work() -> None:
        room = _driver_built_here()
        room.apply(room.step(InstallPackages((_KERNEL,))))
        there = states()
        with pytest.raises(StepFailed) as caught:
            room.apply(room.step(RemovePackages(("nvidia-dkms-*",), alone=True)))
        said = "nvidia-driver-580-server-open needs it and would go too, so nothing was removed."
        assert (caught.value.tail[-1], states()) == (said, there)

    in_a_room(work)
