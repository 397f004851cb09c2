"""On a disk without room nothing is installed before there is some."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.known import Known
from firstlight.facts.resources import DiskSpace, Mount
from firstlight.plan.options import rank_options
from firstlight.plan.request import Request
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import AskPerson
from tests.plan.planning import TABLES, question_of
from tests.platforms.cases import judged
from tools.machines.distro_vendor_machines import al2023_full_disk_no_module


def _first_way(question: Question) -> object:
    return rank_options(question, judge(question, RULES), Request()).options[0].ways[0]


@pytest.mark.parametrize(("free", "first"), [(20 << 20, True), (255 << 20, True), (1 << 30, False)])
def test_a_driver_is_installed_behind_making_room(free: int, *, first: bool) -> None:
    facts = judged(al2023_full_disk_no_module).facts
    [disk] = facts.resources.disks
    facts = replace(facts, resources=replace(facts.resources, disks=(replace(disk, free_bytes=free),)))
    way = _first_way(Question(facts, TABLES, Goal.INFER))
    asked = isinstance(way, AskPerson) and words_asked(way) == f"make room at /: {free >> 20} MiB are free"
    assert asked is first


def test_a_wheel_goes_by_the_disk_of_its_environment() -> None:
    question = question_of("v100-torch-cu130")
    assert not isinstance(_first_way(question), AskPerson)
    mounts = [Mount("/", "ext4", "/dev/sda1", read_only=False), Mount("/opt", "ext4", "/dev/sdb1", read_only=False)]
    disks = tuple(
        DiskSpace(mount.point, 64 << 30, free, Known(mount, "/proc/self/mounts"))
        for mount, free in zip(mounts, (32 << 30, 0), strict=True)
    )
    facts = replace(question.facts, resources=replace(question.facts.resources, disks=disks))
    way = _first_way(replace(question, facts=facts))
    assert isinstance(way, AskPerson)
    assert words_asked(way) == "make room at /opt: 0 MiB are free"
