"""Module and libraries of different versions, and modules that are not there any more: how each system mends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.driver_module_answers import module_let_in
from firstlight.diagnosis.driver_module_rules import driver_library_mismatch, driver_not_loaded, uvm_not_loaded
from firstlight.diagnosis.finding import Question
from firstlight.facts.collect import Facts
from firstlight.facts.document import replay
from firstlight.facts.known import Known, Unknown
from firstlight.tables import load
from firstlight.versions import DriverVersion
from firstlight.ways import kinds
from firstlight.ways.asks import words_asked
from firstlight.ways.effects import after_all
from firstlight.ways.managers import of_driver
from tests.diagnosis.rule_case import ways_of
from tools.machines import distro_image_held, distro_rpm_held, distro_vendor_held, fresh_distro_machines
from tools.machines.reconstruction import Reconstruction

TABLES = load()


def facts_from(machine: Reconstruction) -> Facts:
    """The facts of a rebuilt machine."""
    return replay(machine.document(), "")


def version(text: str) -> Known[DriverVersion]:
    """A driver's version as a fact."""
    return Known(DriverVersion.parse(text), "t")


@pytest.mark.parametrize(("driver", "told"), [("575.64", "575.64-*"), ("575.64.03", "575.64.03*")])
def test_a_short_version_is_told_so_that_the_longer_one_does_not_fit(driver: str, told: str) -> None:
    assert of_driver(DriverVersion.parse(driver)) == told


def test_a_module_that_akmods_left_behind_is_built_anew_and_a_restart_alone_is_not_enough() -> None:
    facts = facts_from(distro_rpm_held.rhel_9_stale_kmod())
    [found] = driver_library_mismatch(Question(facts, TABLES))
    first, back = ways_of(found)
    assert first == (kinds.BuildModules(facts.place.kernel_release, "", by="akmods"), kinds.Restart())
    assert back == (kinds.InstallPackages(("nvidia-driver-cuda-libs",), version="575.64-*"),)
    for ways, now in (((kinds.Restart(),), "575.64"), (first, "575.64.03")):
        after = after_all(ways, facts, TABLES).driver.kernel_version
        assert isinstance(after, Known)
        assert str(after.value) == now


def test_libraries_older_than_the_module_do_not_have_it_built_anew() -> None:
    facts = facts_from(distro_rpm_held.rhel_9_stale_kmod())
    older = replace(facts, driver=replace(facts.driver, nvml_library_version=version("570.133.20")))
    [found] = driver_library_mismatch(Question(older, TABLES))
    assert not any(isinstance(way, kinds.BuildModules) for ways in ways_of(found) for way in ways)


def test_an_image_with_both_gives_way_to_the_one_before_and_older_libraries_do_not_come_with_it() -> None:
    facts = facts_from(distro_image_held.aurora_image_mismatch())
    [found] = driver_library_mismatch(Question(facts, TABLES))
    [(back, restart)] = ways_of(found)
    assert isinstance(back, kinds.AskPerson)
    assert back.commands[0][-2:] == ("rpm-ostree", "rollback")
    assert restart == kinds.Restart()
    assert "image of this system" in found.means
    older = replace(facts, driver=replace(facts.driver, nvml_library_version=version("550.135")))
    [found] = driver_library_mismatch(Question(older, TABLES))
    [(taken_out,)] = ways_of(found)
    assert isinstance(taken_out, kinds.AskPerson)
    assert "older" in words_asked(taken_out)


def test_a_module_whose_folder_an_upgrade_took_away_is_not_loaded() -> None:
    facts = facts_from(distro_vendor_held.arch_kernel_not_restarted())
    [found] = uvm_not_loaded(Question(facts, TABLES))
    assert ways_of(found) == [(kinds.Restart(),)]
    assert "6.17.5-arch1-1 has" in found.saw
    there = replace(facts, driver=replace(facts.driver, kernels_with_module=Unknown("the running kernel has it")))
    [found] = uvm_not_loaded(Question(there, TABLES))
    assert isinstance(ways_of(found)[0][0], kinds.LoadModules)


def test_signed_modules_are_of_the_branch_whose_libraries_are_here() -> None:
    facts = facts_from(distro_vendor_held.leap_15_pubkey_not_enrolled())
    installs = [way for one in module_let_in(Question(facts, TABLES)) for way in one.ways]
    assert not any(isinstance(way, kinds.InstallPackages) for way in installs)  # SUSE signs 580, here are 550's
    fitting = replace(facts, driver=replace(facts.driver, nvml_library_version=version("580.95.05")))
    first = module_let_in(Question(fitting, TABLES))[0].ways[0]
    assert isinstance(first, kinds.InstallPackages)
    assert "signed" in first.packages[0]


def test_the_key_that_suses_package_made_is_found() -> None:
    key = facts_from(distro_vendor_held.leap_15_pubkey_not_enrolled()).fleet.boot.key_file
    assert isinstance(key, Known)
    assert key.value.startswith("/usr/share/nvidia-pubkeys/")


@pytest.mark.parametrize(
    ("machine", "variant"),
    [
        (distro_rpm_held.fedora_40_open_gt1030, "kernel-open"),
        (distro_rpm_held.fedora_40_open_gt1030_near_miss, "kernel"),
    ],
)
def test_what_negativos_packages_build_is_read(machine: object, variant: str) -> None:
    assert callable(machine)
    assert facts_from(machine()).place.boot.module_variant == Known(variant, "/etc/nvidia/kernel.conf")


def test_sources_of_the_old_version_are_exchanged_before_they_are_built() -> None:
    facts = facts_from(fresh_distro_machines.fedora_43_half_upgraded())
    [found] = driver_library_mismatch(Question(facts, TABLES))
    first, back = ways_of(found)
    build = kinds.BuildModules(facts.place.kernel_release, "", by="akmods")
    assert first == (kinds.InstallPackages(("akmod-nvidia",), version="580.142-*"), build, kinds.Restart())
    assert back == (kinds.InstallPackages(("xorg-x11-drv-nvidia-cuda-libs",), version="580.126.18*"),)


def test_dkms_is_told_which_source_where_it_would_keep_the_old_one() -> None:
    facts = facts_from(fresh_distro_machines.arch_zen_dkms_stale())
    [found] = driver_library_mismatch(Question(facts, TABLES))
    [first] = ways_of(found)  # pacman has no older libraries to go back to
    assert first == (kinds.BuildModules(facts.place.kernel_release, "", source="nvidia/595.84"), kinds.Restart())


def test_what_could_not_be_built_for_this_kernel_is_not_built_again() -> None:
    facts = facts_from(fresh_distro_machines.debian_13_surface_kernel())
    [found] = driver_not_loaded(Question(facts, TABLES))
    assert "550.163.01 could not be built for it (/var/lib/dkms/nvidia-current/550.163.01/build/make.log)" in found.saw
    every = [way for ways in ways_of(found) for way in ways]
    assert not any(isinstance(way, kinds.BuildModules) for way in every)
    assert not any(isinstance(way, kinds.InstallDriver) and way.branch == 550 for way in every)
    assert isinstance(facts.driver.module_builds, Known)
    elsewhere = replace(facts.driver.module_builds.value.failed[0], kernel="6.16.0")
    builds = replace(facts.driver.module_builds.value, failed=(elsewhere,))
    other = replace(facts, driver=replace(facts.driver, module_builds=Known(builds, "t")))
    [found] = driver_not_loaded(Question(other, TABLES))
    assert isinstance(ways_of(found)[0][0], kinds.BuildModules)
