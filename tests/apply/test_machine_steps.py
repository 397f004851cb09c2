"""Modules, services, settings of GPUs and of container engines: done by apply and taken back.

The programs are stand-ins that keep their state in a folder: no kernel, no systemd and no GPU is needed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import Acting, StepFailed, lacks_rights
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.errors import BadInput
from firstlight.facts.containers import ContainerKind
from firstlight.facts.gpus import ComputeMode
from firstlight.facts.known import Known
from firstlight.ways.back import Back, BackKind
from firstlight.ways.kinds import (
    ConfigureContainers,
    HoldPackages,
    LoadModules,
    MakeImexChannel,
    RefreshLoaderCache,
    ResetGpu,
    Service,
    SetComputeMode,
    SetPowerLimit,
    StartService,
    TurnOffMig,
    UseImage,
)
from firstlight.ways.platform import Manager
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from firstlight.ways.way import Way
from tests.apply.acting import Quiet, acting
from tests.diagnosis.rule_case import facts_of
from tests.ways.machines import at, made, on

# Each keeps a file for what is so: running-UNIT, enabled-UNIT, loaded-MODULE, held-PACKAGE, mode, mig, pulled.
STAND_INS = {
    "systemctl": """
case "$1" in
    enable) touch "$STATE/enabled-$3" "$STATE/running-$3" ;;
    restart) echo "$2" >> "$STATE/restarts"; touch "$STATE/running-$2" ;;
    stop) rm -f "$STATE/running-$2" ;;
    disable) rm -f "$STATE/enabled-$2" ;;
    is-active) [ -e "$STATE/running-$3" ] ;;
    is-enabled) [ -e "$STATE/enabled-$3" ] ;;
esac""",
    "modprobe": """
if [ "$1" = --remove ]; then shift; for each; do rm "$STATE/loaded-$each" || exit 1; done
else touch "$STATE/loaded-$1"; fi""",
    "nvidia-smi": """
case "$*" in
    *query-compute-apps*) cat "$STATE/programs" 2>/dev/null || : ;;
    *query-gpu=compute_mode*) cat "$STATE/mode" ;;
    *query-gpu=mig*) cat "$STATE/mig" ;;
    *query-gpu=power.limit*) printf '%.2f W\\n' "$(cat "$STATE/watts")" ;;
    *"-pl "*) for each; do case "$each" in [0-9][0-9]*) echo "$each" > "$STATE/watts" ;; esac; done ;;
    *"-c DEFAULT"*) echo Default > "$STATE/mode" ;;
    *"-c PROHIBITED"*) echo Prohibited > "$STATE/mode" ;;
    *"-mig 0"*) echo Disabled > "$STATE/mig" ;;
    *"-mig 1"*) echo Enabled > "$STATE/mig" ;;
    *gpu-reset*) echo reset >> "$STATE/resets" ;;
esac""",
    "apt-mark": """
action="$1"; shift
case "$action" in
    hold) for each; do touch "$STATE/held-$each"; done ;;
    unhold) for each; do rm -f "$STATE/held-$each"; done ;;
    showhold) ls "$STATE" | sed -n s/^held-//p ;;
esac""",
    "docker": """
case "$1 $2" in
    "pull "*) touch "$STATE/pulled" ;;
    "image inspect") [ -e "$STATE/pulled" ] ;;
    "image rm") rm "$STATE/pulled" ;;
esac""",
    "nvidia-ctk": """
for each; do case "$each" in --output=*) echo written anew > "${each#--output=}" ;; esac; done
for each; do case "$each" in --config=*) echo '{"runtimes": "nvidia-container-runtime"}' > "${each#--config=}" ;; esac
done""",
    "mknod": 'echo "$*" > "$1"',
    "grep": 'case "$*" in *imex*) echo "511 nvidia-caps-imex-channels" ;; *) exec /usr/bin/grep "$@" ;; esac',
    "ldconfig": 'echo once >> "$STATE/ldconfig"',
}


class Place:
    """A machine of one's own whose programs are stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "machine"
        self.state.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        for name, text in STAND_INS.items():
            (programs / name).write_text(f"#!/bin/sh\nSTATE={self.state}\n{text.strip()}\n")
            (programs / name).chmod(0o755)

    def so(self) -> list[str]:
        return sorted(path.name for path in self.state.iterdir())

    def step(self, way: Way) -> Step:
        facts = facts_of("a100-no-driver")
        gpu = replace(facts_of("gpu-prohibited").gpus.devices[0], id="gpu-0")
        gpu = replace(gpu, compute_mode=Known(ComputeMode.PROHIBITED, "a test"), power_limit_w=Known(180.5, "a test"))
        where = at(replace(facts, gpus=replace(facts.gpus, devices=(gpu,))))
        own = replace(where.platform, is_root=True, container=ContainerKind.NONE, manager=Manager.APT, has_docker=True)
        return made(on(where, own), way)[0]

    def acting(self) -> Acting:
        doing = acting(self.folder)
        return replace(doing, env={"PATH": f"{self.folder}/bin:/usr/bin:/bin"})

    def apply(self, *steps: Step) -> list[str]:
        doing = self.acting()
        act(doing, Asked(steps, "d" * 16, "o", "t"))
        assert isinstance(doing.watcher, Quiet)
        return doing.watcher.heard

    def undo(self) -> list[str]:
        doing = self.acting()
        for run in newest_to_undo(doing):
            undo(doing, run)
        assert isinstance(doing.watcher, Quiet)
        return doing.watcher.heard


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return Place(tmp_path)


def _loads(place: Place) -> Step:
    """Of a kernel's modules only /sys knows; here a file of the stand-in says it."""
    step = place.step(LoadModules(("nvidia_uvm",)))
    assert step.done_when == (Condition(CheckKind.FILE_EXISTS, "/sys/module/nvidia_uvm"),)
    return replace(step, done_when=(Condition(CheckKind.FILE_EXISTS, f"{place.state}/loaded-nvidia_uvm"),))


def _channel(place: Place) -> Step:
    """Below /dev only a kernel's nodes are made; here in the folder of the stand-ins."""
    step, folder = place.step(MakeImexChannel()), "/dev/nvidia-caps-imex-channels"

    def here(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.replace(folder, f"{place.state}/channels") for word in words)

    [done], [back] = step.done_when, step.back
    return replace(
        step, commands=tuple(map(here, step.commands)), done_when=(replace(done, target=here((done.target,))[0]),),
        back=(replace(back, words=here(back.words)),),
    )  # fmt: skip


CASES: dict[str, tuple[Callable[[Place], Step], dict[str, str], list[str]]] = {
    "load a module": (_loads, {}, ["loaded-nvidia_uvm"]),
    "start a service": (lambda place: place.step(StartService("fm")), {}, ["enabled-fm", "running-fm"]),
    "hold packages": (lambda place: place.step(HoldPackages(("a", "b"))), {}, ["held-a", "held-b"]),
    "pull an image": (lambda place: place.step(UseImage("nvidia/cuda:13.0.2-base")), {}, ["pulled"]),
    "set a mode": (lambda place: place.step(SetComputeMode("0")), {"mode": "Prohibited\n"}, ["mode"]),
    "set a power limit": (lambda place: place.step(SetPowerLimit("0", 300)), {"watts": "180.5\n"}, ["watts"]),
    "make a channel": (_channel, {}, ["channels"]),
    "turn MIG off": (lambda place: place.step(TurnOffMig("0")), {"mig": "Enabled\n"}, ["mig"]),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_done_is_not_done_twice_and_is_taken_back(place: Place, name: str) -> None:
    make, before, expected = CASES[name]
    for file, text in before.items():
        (place.state / file).write_text(text)
    step = make(place)
    place.apply(step)
    assert place.so() == expected
    assert not any(said.startswith("begins") for said in place.apply(step))
    place.undo()
    assert {path.name: path.read_text() for path in place.state.iterdir()} == before


def test_what_was_enabled_held_or_loaded_before_stays_so_when_it_is_taken_back(place: Place) -> None:
    (place.state / "enabled-fm").touch()
    (place.state / "held-a").touch()
    place.apply(place.step(StartService("fm")), place.step(HoldPackages(("a", "b"))))
    said = place.undo()
    assert place.so() == ["enabled-fm", "held-a"]
    assert "fm was there before firstlight: it is left as it is" in said


def test_a_restart_and_a_reset_are_done_though_nothing_shows_that_they_are_needed(place: Place) -> None:
    (place.state / "running-docker").touch()
    steps = (
        place.step(StartService("docker", Service.RESTART)),
        place.step(ResetGpu("0")),
        place.step(RefreshLoaderCache()),
    )
    place.apply(*steps)
    assert place.so() == ["ldconfig", "resets", "restarts", "running-docker"]
    place.undo()
    assert (place.state / "resets").read_text() == "reset\n", "there is nothing to take back"


@pytest.mark.parametrize("way", [TurnOffMig("0"), ResetGpu("0")], ids=["mig", "reset"])
def test_a_gpu_that_a_program_computes_on_is_left_alone(place: Place, way: Way) -> None:
    (place.state / "mig").write_text("Enabled\n")
    (place.state / "programs").write_text("4711, python\n")
    with pytest.raises(StepFailed) as caught:
        place.apply(place.step(way))
    assert caught.value.tail[-2:] == ("GPU 0 is in use, so nothing was done. On it are:", "4711, python")
    assert place.so() == ["mig", "programs"]
    assert (place.state / "mig").read_text() == "Enabled\n"


def test_every_gpu_at_once_is_reset_by_a_person_alone(place: Place) -> None:
    step = place.step(ResetGpu(""))
    assert step.kind is StepKind.MANUAL
    assert "others may be computing on the rest" in step.note


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_files_that_a_tool_writes_for_root_are_not_begun_by_a_user_who_could_not_put_them_back(place: Place) -> None:
    ways = (ConfigureContainers("docker"), ConfigureContainers("podman", "/etc/cdi/nvidia.yaml"), StartService("fm"))
    steps = [place.step(way) for way in ways]
    through_sudo = [replace(step, commands=tuple(("sudo", *argv) for argv in step.commands)) for step in steps]
    os.seteuid(65534)
    try:
        assert [lacks_rights(step) for step in through_sudo] == [True, True, False]
    finally:
        os.seteuid(0)


def test_a_run_that_goes_on_does_not_restart_what_it_restarted_already(place: Place) -> None:
    fails = replace(place.step(StartService("fm")), id="02", commands=(("false",),))
    restart = replace(place.step(StartService("docker", Service.RESTART)), id="01")
    with pytest.raises(StepFailed, match="ended with status 1"):
        place.apply(restart, fails)
    doing = place.acting()
    [run] = interrupted(doing)
    with pytest.raises(StepFailed, match="ended with status 1"):
        finish(doing, run)
    assert (place.state / "restarts").read_text() == "docker\n"


def test_the_settings_of_a_container_engine_come_back_to_the_byte_and_it_is_restarted(place: Place) -> None:
    settings = place.folder / "daemon.json"
    settings.write_text('{"log-driver": "journald"}')
    step = place.step(ConfigureContainers("docker"))

    def here(argv: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.replace("/etc/docker/daemon.json", str(settings)) for word in argv)

    conditions = tuple(replace(each, argv=here(each.argv)) for each in step.done_when)
    place.apply(replace(step, commands=tuple(map(here, step.commands)), done_when=conditions))
    assert "nvidia-container-runtime" in settings.read_text()
    place.undo()
    assert settings.read_text() == '{"log-driver": "journald"}'
    assert (place.state / "restarts").read_text() == "docker\ndocker\n"


def test_the_description_of_an_older_driver_comes_back_when_its_successor_is_taken_back(place: Place) -> None:
    file = place.folder / "nvidia.yaml"
    file.write_text("libcuda.so.535.183.01")
    place.apply(place.step(ConfigureContainers("podman", str(file))))
    assert file.read_text() == "written anew\n"
    place.undo()
    assert file.read_text() == "libcuda.so.535.183.01"


@pytest.mark.parametrize(
    ("back", "fault"),
    [
        (Back(BackKind.STOP_SERVICE, ("sshd",)), "names sshd, which its commands do not"),
        (Back(BackKind.UNLOAD_MODULES, ("$(reboot)",)), "which are not plain names"),
        (Back(BackKind.EARLY_IMAGE, ("fm",)), "is not a tool that makes it"),
        (Back(BackKind.COMPUTE_MODE, ("fm",)), "has 1 words"),
        (Back(BackKind.UNHOLD, ()), "which are not plain names"),
        (Back(BackKind.POWER_LIMIT, ("0", "300")), "names 0, which its commands do not"),
        (Back(BackKind.POWER_LIMIT, ("fm", "-300")), "which are not plain names"),
    ],
)
def test_a_journal_that_names_something_else_to_take_back_is_refused(place: Place, back: Back, fault: str) -> None:
    place.apply(replace(place.step(StartService("fm")), back=(back,)))
    with pytest.raises(BadInput, match="way back of 'start fm'") as caught:
        place.undo()
    assert fault in str(caught.value)
    assert place.so() == ["enabled-fm", "running-fm"], "nothing was changed"
