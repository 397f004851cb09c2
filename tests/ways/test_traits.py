"""Root, the way back and who does it are told of a way before any step is made of it; the steps have to agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.apply.footprints import project_files
from firstlight.errors import BadInput
from firstlight.facts.containers import ContainerKind
from firstlight.ways import kinds
from firstlight.ways.argv import commands
from firstlight.ways.at import At
from firstlight.ways.back import BackKind
from firstlight.ways.diffs import FileText
from firstlight.ways.extras import Extras
from firstlight.ways.guests import GuestKind
from firstlight.ways.kinds import Manner
from firstlight.ways.platform import Manager
from firstlight.ways.step import Step, StepKind
from firstlight.ways.steps import steps_of
from firstlight.ways.traits import by_person, needs_root, reversible, risk
from firstlight.ways.way import Reversible, Risk, Way
from firstlight.ways.words import title_of
from tests.ways.machines import at, on
from tests.ways.samples import SAMPLES, VARIANTS

BASHRC = (
    "export LD_LIBRARY_PATH=/usr/local/cuda/compat\nexport LD_PRELOAD=/usr/lib/libcuda.so.1\n"
    "export CUDA_VISIBLE_DEVICES=0\n"
)
ALL = (*SAMPLES, *VARIANTS)
BY_SETS = (StepKind.PIP, StepKind.UV, StepKind.APT)  # undo brings back the packages that were there


PYPROJECT = "/home/user/sleap-nn/pyproject.toml"
PROJECT = '[project]\nname = "app"\nversion = "1"\ndependencies = ["torch"]\n'


def _machines() -> dict[str, At]:
    plain = at("a100-no-driver", FileText("/root/.bashrc", BASHRC), extras=Extras(home="/root"))
    place = replace(plain.platform, has_docker=True, is_root=True)
    own = on(plain, replace(place, container=ContainerKind.NONE, guest=GuestKind.BARE, manager=Manager.APT))
    return {
        "its own": own,
        "dnf": on(own, replace(own.platform, distribution="rocky", release="9.4", manager=Manager.DNF)),
        "no manager": on(own, replace(own.platform, manager=Manager.NONE)),
        "container": on(own, replace(own.platform, container=ContainerKind.DOCKER)),
        "windows": on(own, replace(own.platform, guest=GuestKind.WSL2)),
        "jetson": on(own, replace(own.platform, guest=GuestKind.JETSON)),
        "a user": on(own, replace(own.platform, is_root=False, has_sudo=True)),
        "a uv project": at("uv-lock-would-undo", FileText(PYPROJECT, PROJECT)),
    }


MACHINES = _machines()


def _id(way: Way) -> str:
    return f"{type(way).__name__}-{ALL.index(way)}"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("way", ALL, ids=_id)
def test_steps_agree_with_what_was_told_of_the_way(way: Way, machine: str) -> None:
    where = MACHINES[machine]
    if isinstance(way, kinds.InstallWheels) and way.manner is Manner.EARLY and machine == "a uv project":
        with pytest.raises(BadInput, match="--want torch==VERSION"):
            list(steps_of(way, where))
        return
    steps = [step for step in steps_of(way, where) if not step.optional]
    why = by_person(way, where.platform)
    if isinstance(way, (kinds.KeepInProject, kinds.ConstrainProject)) and machine != "a uv project":
        assert not steps, "no project fills the environment: nothing would undo what is installed"
        return
    assert steps, "a way that leads to no step is none"
    if why:
        assert [step.kind for step in steps] == [StepKind.MANUAL]
        assert why in steps[0].note
        return
    for step in steps:
        _can_be_carried_out(step)
    if not (isinstance(way, kinds.BuildModules) and machine == "no manager"):
        assert any(step.kind is not StepKind.MANUAL for step in steps)
    assert any(step.needs_root for step in steps) == needs_root(way, where.platform)
    _has_the_way_back(way, steps)


def _can_be_carried_out(step: Step) -> None:
    assert len(step.title) <= 70
    assert step.id
    assert step.because == "some-finding"
    assert step.done_when
    assert step.commands or step.files
    for argv in (*step.commands, *step.undo):
        assert argv
        assert all(argv), argv
        assert not any(word.startswith("~") for word in argv), argv
    assert all(change.path.startswith("/") for change in step.files)


def _has_the_way_back(way: Way, steps: list[Step]) -> None:
    ours = [step for step in steps if step.kind is not StepKind.MANUAL]
    backs = [bool(step.files or step.kind in BY_SETS or project_files(step) or _runs(step)) for step in ours]
    told = reversible(way)
    if told is Reversible.YES:
        # a mode that was not seen cannot be set back, an image that is tried leaves nothing, libraries have their own
        leaves = [step.id in ("try-image", "close-libraries") for step in ours]
        unseen = isinstance(way, (kinds.SetComputeMode, kinds.SetPowerLimit))
        assert all(back or left or unseen for back, left in zip(backs, leaves, strict=True)), steps
    if told is Reversible.NO:
        assert not any(backs)


def _runs(step: Step) -> bool:
    return any(back.kind not in (BackKind.SHOWN, BackKind.STORED) for back in step.back)


@pytest.mark.parametrize("way", ALL, ids=_id)
def test_a_title_is_an_order_of_at_most_70_characters(way: Way) -> None:
    title = title_of(way, MACHINES["its own"].platform)
    assert 0 < len(title) <= 70
    assert not title.endswith(".")
    assert " or " not in title
    assert "\n" not in title
    assert title[0].islower()


def test_long_lists_and_long_paths_are_cut_to_fit() -> None:
    platform = MACHINES["its own"].platform
    many = kinds.InstallWheels(tuple(kinds.Package(f"nvidia-library-{each}", "1.2.3") for each in range(9)))
    assert title_of(many, platform) == "install nvidia-library-0 1.2.3, nvidia-library-1 1.2.3 and 7 more"
    deep = kinds.LinkFile("/usr/" + "very-" * 20 + "long/lib64", "lib")
    assert len(title_of(deep, platform)) == 70
    assert title_of(deep, platform).startswith("link lib64 to lib in ...")
    assert title_of(deep, platform).endswith("very-long")


@pytest.mark.parametrize("way", ALL, ids=_id)
def test_commands_of_a_user_go_through_sudo_where_root_is_needed(way: Way) -> None:
    user, root = MACHINES["a user"].platform, MACHINES["its own"].platform
    as_user, as_root = commands(way, user), commands(way, root)
    assert not any(argv[0] == "sudo" for argv in as_root)
    assert tuple(argv[1:] if argv[0] == "sudo" else argv for argv in as_user) == as_root
    if as_user and needs_root(way, user):
        assert any(argv[0] == "sudo" for argv in as_user)


def test_only_what_no_program_can_do_is_left_to_a_person_on_a_machine_of_ones_own() -> None:
    left = {type(way).__name__ for way in SAMPLES if by_person(way, MACHINES["its own"].platform)}
    assert left == {"AskPerson", "ChangeImage", "EnrolKey", "OtherMachine", "Restart", "StartContainer"}


def test_in_a_container_the_kernel_its_devices_and_services_are_the_hosts() -> None:
    more = {type(way).__name__ for way in SAMPLES if by_person(way, MACHINES["container"].platform)}
    own = {type(way).__name__ for way in SAMPLES if by_person(way, MACHINES["its own"].platform)}
    assert more - own == {
        "BuildModules", "ChooseModules", "ConfigureContainers", "ForbidModule", "InstallDriver", "LoadModules",
        "MakeDeviceNodes", "MakeImexChannel", "SetPowerLimit", "StartKernel",
        "ReloadModules", "ResetGpu", "SetComputeMode", "SetModuleOption", "StartService", "TurnOffMig", "UseImage",
    }  # fmt: skip


def test_what_leaves_this_machine_or_restarts_it_is_the_highest_risk() -> None:
    high = {type(way).__name__ for way in SAMPLES if risk(way) is Risk.HIGH}
    assert high == {
        "AskPerson", "ChangeImage", "EnrolKey", "InstallDriver", "OtherMachine", "Restart", "StartContainer",
        "UseImage",
    }  # fmt: skip
