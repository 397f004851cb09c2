"""Each kind of container is started by its own host's words; no kind gets another's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.facts.containers import ContainerKind
from firstlight.facts.device_numbers import DeviceNumber
from firstlight.facts.image_systems import ImageSystem
from firstlight.ways import kinds
from firstlight.ways.argv import commands
from firstlight.ways.kinds import ConfigureContainers, InstallPackages, StartContainer, UseImage
from firstlight.ways.platform import Manager, Platform, platform_of
from firstlight.ways.traits import by_person
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import facts_of
from tests.ways.machines import at, made, on

WITH_GPUS = StartContainer((), gives_gpus=True)
NUMBERS = (DeviceNumber("nvidia", 195), DeviceNumber("nvidia-uvm", 508), DeviceNumber("nvidia-caps", 511))
DOCKERS = ("docker", "--gpus", "nvidia-ctk")
IMAGE = UseImage("python:3.12-slim-bookworm")


def platform_in(kind: ContainerKind, **changed: object) -> Platform:
    place = platform_of(facts_of("docker-no-gpus"))
    return replace(place, container=kind, device_numbers=NUMBERS, gpu_count=2, **changed)  # type: ignore[arg-type]


def line(way: Way, platform: Platform) -> str:
    return "\n".join(" ".join(argv) for argv in commands(way, platform))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ContainerKind.LXC, ("lxc.cgroup2.devices.allow = c 195:* rwm", "= c 508:* rwm", "/dev/nvidia1 dev/nvidia1",
                             "/var/lib/lxc/NAME/config", "lxc-start -n NAME")),
        (ContainerKind.PROXMOX, ("lxc.cgroup2.devices.allow: c 508:* rwm", "pct reboot VMID")),
        (ContainerKind.INCUS, ("incus config device add NAME gpu0 gpu", "incus config set NAME nvidia.runtime=true")),
        (ContainerKind.LXD, ("lxc config device add NAME gpu0 gpu", "lxc restart NAME")),
        (ContainerKind.NSPAWN, ("systemd-nspawn", "--bind=/dev/nvidia1", "--property=DeviceAllow=/dev/nvidia-uvm rw")),
        (ContainerKind.CHROOT, ("mount --rbind /dev ROOT/dev", "chroot ROOT")),
    ],
)  # fmt: skip
def test_what_is_configured_on_the_host_is_told_in_its_own_words(kind: ContainerKind, words: tuple[str, ...]) -> None:
    told = line(WITH_GPUS, platform_in(kind))
    for word in words:
        assert word in told
    for word in DOCKERS:
        assert word not in told


def test_the_number_of_uvm_is_read_and_never_guessed() -> None:
    unknown = replace(platform_in(ContainerKind.LXC), device_numbers=())
    assert "c $(awk '/nvidia-uvm$/ {print $1}' /proc/devices):* rwm" in line(WITH_GPUS, unknown)
    assert "/proc/devices" not in line(WITH_GPUS, platform_in(ContainerKind.LXC))


def test_a_label_is_turned_off_where_selinux_is_enforced_alone() -> None:
    way = StartContainer(("--device", "nvidia.com/gpu=all"), gives_gpus=True)
    assert "label=disable" in line(way, platform_in(ContainerKind.PODMAN, labelled=True))
    assert "label=disable" not in line(way, platform_in(ContainerKind.PODMAN))
    more = StartContainer(("--shm-size=8g",))
    assert "label=disable" not in line(more, platform_in(ContainerKind.PODMAN, labelled=True))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ContainerKind.PODMAN, "podman run --rm --device nvidia.com/gpu=all docker.io/python:3.12-slim-bookworm"),
        (ContainerKind.APPTAINER, "apptainer exec --nv docker://python:3.12-slim-bookworm"),
        (ContainerKind.ENROOT, "enroot import --output image.sqsh docker://python:3.12-slim-bookworm"),
        (ContainerKind.DOCKER, "docker run --rm --gpus all python:3.12-slim-bookworm"),
        (ContainerKind.KUBERNETES, ""),
        (ContainerKind.LXC, "lxc-create -n NAME -t download -- -d debian -r bookworm"),
    ],
)
def test_another_image_is_run_by_the_engine_around_us(kind: ContainerKind, words: str) -> None:
    told = line(IMAGE, platform_in(kind))
    assert words in told
    assert bool(told) is bool(words)


def test_on_a_host_without_docker_the_engine_that_is_here_runs_the_image() -> None:
    host = replace(platform_in(ContainerKind.NONE), has_docker=False, engines=("podman",))
    assert line(IMAGE, host).startswith("podman pull docker.io/")
    assert by_person(IMAGE, host) == "images are run with podman here"


def test_podman_is_given_a_description_and_no_service_is_restarted() -> None:
    where = on(at("podman-host-no-cdi"), replace(platform_of(facts_of("podman-host-no-cdi")), is_root=True))
    [step] = made(where, ConfigureContainers("podman"))
    assert step.commands == (("nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml"),)
    assert step.back


@pytest.mark.parametrize("way", [InstallPackages(("nvidia-open",)), kinds.BuildModules("6.8.0", ""),
                                 kinds.SetUpRepository(),
                                 kinds.ForbidModule("nouveau"), ConfigureContainers("docker")])  # fmt: skip
def test_a_system_that_comes_as_an_image_gets_no_command_that_changes_it(way: Way) -> None:
    image = replace(platform_in(ContainerKind.NONE), image_based=ImageSystem.OSTREE, manager=Manager.NONE)
    assert commands(way, image) == ()
    assert "its image (ostree)" in by_person(way, image)
    within = replace(image, container=ContainerKind.DOCKER)
    assert "its image" not in by_person(way, within)
