"""Which driver a machine is told to install: never the open module, or a branch, that does not drive its GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.driver_packages import architecture_of_id
from firstlight.diagnosis.finding import Finding, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.plan.driver_options import driver_options
from firstlight.plan.options import Request
from firstlight.plan.situation import Situation
from firstlight.tables import load
from tests.diagnosis.rule_case import facts_of

TABLES = load()
PASCAL_ON_470 = override(facts_of("docker-host-no-toolkit"), ("driver=470.256.02",))


def _with_device(facts: Facts, device_id: str) -> Facts:
    """The machine with another GPU on its PCI bus and no trace of a driver package."""
    pci = tuple(replace(each, device_id=Known(device_id, "/sys")) for each in facts.gpus.pci)
    driver = replace(facts.driver, packages=Unknown("dpkg's folder was not read"))
    return replace(facts, gpus=replace(facts.gpus, pci=pci), driver=driver)


def _found(facts: Facts, code: str) -> Finding:
    finding = judge(Question(facts, TABLES), RULES).of(code)
    assert finding is not None
    return finding


def _planned(facts: Facts) -> tuple[str, ...]:
    question = Question(override(facts, ("ability.is_root=true", "ability.uid=0")), TABLES)
    [option] = driver_options(Situation(question, judge(question, RULES), Request()))
    assert option.feasible, option.why_not
    return option.brings


def test_pascal_is_told_to_take_the_last_branch_with_the_proprietary_module() -> None:
    finding = _found(PASCAL_ON_470, "driver-too-old-for-wheel")
    assert "sudo apt-get install --yes nvidia-driver-580-server, then reboot" in finding.do
    assert _planned(PASCAL_ON_470) == ("nvidia-driver-580-server",)


def test_elsewhere_than_on_ubuntu_pascal_is_not_told_to_take_a_newer_branch() -> None:
    finding = _found(override(PASCAL_ON_470, ("place.os_id=debian",)), "driver-too-old-for-wheel")
    assert finding.do[-1].startswith("install driver 580, the last branch for NVIDIA GeForce GTX 1080 Ti (docs.nvidia")


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
    finding = _found(facts, "driver-not-loaded")
    assert finding.do == (f"sudo apt-get install --yes {package}, then reboot",)
    assert _planned(facts) == (package,)


def test_a_signed_module_for_volta_is_not_the_open_one() -> None:
    facts = _with_device(facts_of("secure-boot"), "0x1db6")
    [line] = [each for each in _found(facts, "secure-boot-blocks-module").do if "that Ubuntu signed" in each]
    assert line.endswith("linux-modules-nvidia-580-server-6.8.0-60-generic")


def test_the_diagnosis_and_the_plan_name_one_package_for_blackwell() -> None:
    facts = facts_of("blackwell-proprietary")
    [package] = _planned(facts)
    assert package == "nvidia-driver-570-server-open"
    assert f"install --yes {package}, then reboot" in _found(facts, "blackwell-needs-open-module").do[0]


@pytest.mark.parametrize("device_id", ["", "not read", "0x2204", "0x0fc6"])
def test_an_id_that_is_not_listed_tells_no_architecture(device_id: str) -> None:
    assert architecture_of_id(device_id) == ""
