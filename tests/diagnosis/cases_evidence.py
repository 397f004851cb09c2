"""Machines whose evidence disagrees, and the one fact with which it agrees."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from tests.diagnosis.rule_case import RuleCase


def _set_aside(facts: Facts) -> Facts:
    """The odd one is meant for virtual machines."""
    pci = tuple(
        replace(each, driver=Known("vfio-pci", "driver")) if isinstance(each.driver, Unknown) else each
        for each in facts.gpus.pci
    )
    return replace(facts, gpus=replace(facts.gpus, pci=pci))


def _silent_log(facts: Facts) -> Facts:
    return replace(facts, health=replace(facts.health, driver_messages=Known((), "dmesg")))


def _owned_by_nobody(facts: Facts) -> Facts:
    """The runtime put the files there, of a host whose driver changed since."""
    return replace(facts, library_owners=Known((), "dpkg"))


def _python_of_the_venv(facts: Facts) -> Facts:
    venv, conda = facts.python.environments[:2]
    changed = (replace(venv, found_by=(*venv.found_by, "python on PATH")), replace(conda, found_by=("CONDA_PREFIX",)))
    return replace(facts, python=replace(facts.python, environments=(*changed, *facts.python.environments[2:])))


def _same_version_twice(facts: Facts) -> Facts:
    found = facts.python.environments
    twice = tuple(replace(each, versions=("2.8.0+cu128",) * 2) for each in found[0].duplicates)
    changed = replace(found[0], duplicates=twice)
    return replace(facts, python=replace(facts.python, environments=(changed, *found[1:])))


CASES: tuple[RuleCase, ...] = (
    RuleCase("gpu-left-out", "l40-seven-of-eight", _set_aside),
    RuleCase("gpu-left-out", "gtx1070-under-open-module", _set_aside),
    RuleCase("gpu-does-not-start", "titan-v-does-not-start", _silent_log),
    RuleCase("image-brings-driver-libraries", "image-with-driver-packages", _owned_by_nobody),
    RuleCase("torch-shadowed", "user-site-hides-torch", _same_version_twice),
    RuleCase("torch-shadowed", "python-path-hides-torch", ("torch.found_via=site-packages",)),
    RuleCase("torch-shadowed", "conda-before-venv", _python_of_the_venv),
)
