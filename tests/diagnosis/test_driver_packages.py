"""Which driver a machine is told to install: never the open module, or a branch, that does not drive its GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.driver_packages import architecture_of_id
from firstlight.diagnosis.driver_rules import DRIVER_RULES
from firstlight.diagnosis.finding import Finding, Question
from firstlight.diagnosis.judge import judge
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.tables import load
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import AskPerson, Flavour, InstallDriver, InstallPackages
from tests.diagnosis.rule_case import facts_of, ways_of

TABLES = load()
PASCAL_ON_470 = override(facts_of("docker-host-no-toolkit"), ("driver=470.256.02",))


def _with_device(facts: Facts, device_id: str) -> Facts:
    """The machine with another GPU on its PCI bus and no trace of a driver package."""
    pci = tuple(replace(each, device_id=Known(device_id, "/sys")) for each in facts.gpus.pci)
    driver = replace(facts.driver, packages=Unknown("dpkg's folder was not read"))
    return replace(facts, gpus=replace(facts.gpus, pci=pci), driver=driver)


def _found(facts: Facts, code: str) -> Finding:
    finding = judge(Question(facts, TABLES), DRIVER_RULES).of(code)
    assert finding is not None
    return finding


def _driver(facts: Facts, code: str) -> InstallDriver:
    """The one driver that a finding is answered with."""
    [driver] = {way for ways in ways_of(_found(facts, code)) for way in ways if isinstance(way, InstallDriver)}
    return driver


def _as_root(facts: Facts) -> Facts:
    return override(facts, ("ability.is_root=true", "ability.uid=0"))


def test_pascal_is_told_to_take_the_last_branch_with_the_proprietary_module() -> None:
    driver = _driver(_as_root(PASCAL_ON_470), "driver-too-old-for-wheel")
    assert driver == InstallDriver(580, Flavour.PROPRIETARY, ("nvidia-driver-580-server",))


def test_elsewhere_than_on_ubuntu_the_branch_is_named_and_no_package() -> None:
    facts = _as_root(override(PASCAL_ON_470, ("place.os_id=debian",)))
    assert _driver(facts, "driver-too-old-for-wheel") == InstallDriver(580, Flavour.PROPRIETARY)


def test_where_the_driver_is_not_this_systems_a_person_changes_it() -> None:
    for platform, what in (
        ("wsl2", "update the NVIDIA driver in Windows to branch 580"),
        ("jetson", "update JetPack to a release with CUDA 12"),
    ):
        facts = _as_root(override(PASCAL_ON_470, (f"place.platform={platform}",)))
        asked = [way for ways in ways_of(_found(facts, "driver-too-old-for-wheel")) for way in ways]
        assert what in [words_asked(way) for way in asked if isinstance(way, AskPerson)]


@pytest.mark.parametrize(
    ("device_id", "package"),
    [
        ("0x1db6", "nvidia-driver-580-server"),  # V100
        ("0x1b06", "nvidia-driver-580-server"),  # GTX 1080 Ti
        ("0x15f8", "nvidia-driver-580-server"),  # P100
        ("0x17c8", "nvidia-driver-580-server"),  # GTX 980 Ti
        ("0x1e04", "nvidia-driver-580-server-open"),  # RTX 2080 Ti
        ("0x20b0", "nvidia-driver-580-server-open"),  # A100
        ("0x2901", "nvidia-driver-580-server-open"),  # B200
    ],
)
def test_without_a_driver_the_pci_id_tells_which_module_drives_the_gpu(device_id: str, package: str) -> None:
    facts = _with_device(facts_of("a100-no-driver"), device_id)
    assert _driver(facts, "driver-not-loaded").packages == (package,)


def test_a_signed_module_for_volta_is_not_the_open_one() -> None:
    facts = _with_device(facts_of("secure-boot"), "0x1db6")
    first, *_ = ways_of(_found(facts, "secure-boot-blocks-module"))
    assert first[0] == InstallPackages(
        ("linux-modules-nvidia-580-server-6.8.0-60-generic", "linux-modules-nvidia-580-server-generic-6.8")
    )


@pytest.mark.parametrize(
    ("kernel", "installed", "package"),
    [
        ("5.15.0-60-generic", "nvidia-dkms-580-server-open", "linux-modules-nvidia-580-server-open-generic-5.15"),
        (
            "6.8.0-60-lowlatency",
            "nvidia-dkms-580-server-open",
            "linux-modules-nvidia-580-server-open-lowlatency-6.8",
        ),
        ("6.8.0-1029-gcp", "nvidia-dkms-580-server-open", "linux-modules-nvidia-580-server-open-gcp-6.8"),
        ("6.8.0-1060-azure-fde", "nvidia-dkms-580-server-open", "linux-modules-nvidia-580-server-open-azure-fde-6.8"),
        ("6.8.0-60-generic", "nvidia-driver-580-open", "linux-modules-nvidia-580-open-generic-6.8"),
        ("6.8.0-60-generic", "nvidia-dkms-580", "linux-modules-nvidia-580-generic-6.8"),
    ],
)
def test_the_signed_modules_of_the_kernels_flavour_and_of_the_drivers_own_packages(
    kernel: str, installed: str, package: str
) -> None:
    facts = facts_of("secure-boot")
    facts = replace(
        facts, place=replace(facts.place, kernel_release=kernel),
        driver=replace(facts.driver, packages=Known((installed,), "dpkg")),
    )  # fmt: skip
    first, *_ = ways_of(_found(facts, "secure-boot-blocks-module"))
    assert isinstance(first[0], InstallPackages)
    assert first[0].packages[1] == package


@pytest.mark.parametrize("device_id", ["", "not read", "0x2204", "0x0fc6"])
def test_an_id_that_is_not_listed_tells_no_architecture(device_id: str) -> None:
    assert architecture_of_id(device_id) == ""
