"""Containers: what kind, whose, what the image demands of the driver; names of variables only, never a secret."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.containers import (
    ContainerFacts,
    ContainerKind,
    Provider,
    parse_requirement,
    probe_containers,
)
from firstlight.facts.known import Known, Unknown
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode
from firstlight.versions import CudaVersion

BRANDS = ("unknown", "grid", "tesla", "nvidia", "quadro", "quadrortx", "nvidiartx", "vapps", "vpc", "vcs", "vws")
GATE_13_0 = "cuda>=13.0 " + " ".join(
    f"brand={brand},driver>={branch},driver<{branch + 1}" for branch in (535, 550, 565, 570, 575) for brand in BRANDS
)
NO_FLOOR = Unknown("names no cuda>= number")
OVERLAY = "overlay / overlay rw,relatime,lowerdir=/var/lib/docker/a,upperdir=/b,workdir=/c 0 0\n"


def put(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def pid_1(root: Path, **variables: str) -> None:
    put(root, "/proc/1/environ", "".join(f"{name}={value}\0" for name, value in variables.items()))


def machine_of(root: Path, **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ=environ, host=replace(LiveMachine().host, arch="x86_64"))


def kind_of(root: Path, **environ: str) -> ContainerKind:
    kind = probe_containers(machine_of(root, **environ)).kind
    assert isinstance(kind, Known)
    return kind.value


def runpod(root: Path) -> LiveMachine:
    """A pod seen from its SSH shell: the container's variables are in pid 1 alone."""
    put(root, "/.dockerenv")
    put(root, "/proc/self/mounts", OVERLAY)
    pid_1(
        root,
        PATH="/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/bin",
        LD_LIBRARY_PATH="/usr/local/cuda/lib64",
        NVIDIA_REQUIRE_CUDA=GATE_13_0,
        NVIDIA_VISIBLE_DEVICES="GPU-5ebe9f4c-1a2b-3c4d-5e6f-0123456789ab",
        NVIDIA_DRIVER_CAPABILITIES="compute,utility",
        RUNPOD_POD_ID="k3x9secretpod",
        RUNPOD_API_KEY="rpa_TOPSECRET",
        JUPYTER_PASSWORD="hunter2hunter2",
        MY_LD_LIBRARY_PATH="/decoy",
        HF_HOME="/workspace/hf",
    )
    return machine_of(root, PATH="/usr/bin")


def test_a_runpod_shell_over_ssh_learns_the_containers_variables_from_pid_1(tmp_path: Path) -> None:
    facts = probe_containers(runpod(tmp_path))
    assert facts.kind == Known(ContainerKind.DOCKER, seen_in="/.dockerenv")
    assert [(each.provider, each.seen_in) for each in facts.providers] == [(Provider.RUNPOD, "RUNPOD_POD_ID of pid 1")]
    assert facts.only_in_pid_1 == Known(
        ("LD_LIBRARY_PATH", "HF_HOME", "NVIDIA_REQUIRE_CUDA", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
        seen_in="/proc/1/environ",
    )
    assert isinstance(facts.cuda_requirement, Known)
    assert facts.cuda_requirement.seen_in == "NVIDIA_REQUIRE_CUDA of pid 1"
    assert facts.cuda_requirement.value.driver_branches == (535, 550, 565, 570, 575)
    assert facts.driver_capabilities == Known("compute,utility", seen_in="NVIDIA_DRIVER_CAPABILITIES of pid 1")
    assert facts.visible_devices == Known("by name", seen_in="NVIDIA_VISIBLE_DEVICES of pid 1")


def test_no_secret_of_pid_1_reaches_the_facts_or_the_recording(tmp_path: Path) -> None:
    recording = RecordingMachine(runpod(tmp_path))
    facts = probe_containers(recording)
    for text in (repr(facts), repr(recording.evidence)):
        for secret in ("TOPSECRET", "hunter2", "k3x9secretpod", "5ebe9f4c", "RUNPOD_API_KEY", "decoy"):
            assert secret not in text


# A file under /proc has no size, so it cannot be mapped into memory; it has to be read.
def test_a_real_environ_file_under_proc_can_be_searched(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    os.symlink("/proc/self/environ", tmp_path / "proc/1/environ")
    assert isinstance(probe_containers(machine_of(tmp_path)).only_in_pid_1, Known)


def test_a_missing_pid_1_environment_says_why(tmp_path: Path) -> None:
    facts = probe_containers(machine_of(tmp_path))
    assert facts.only_in_pid_1 == Unknown("/proc/1/environ: no such file")
    assert facts.providers == ()


def test_the_gate_of_an_image_is_its_floor_and_the_older_branches_it_lets_through() -> None:
    gate = parse_requirement(GATE_13_0)
    assert gate.cuda_floor == Known(CudaVersion(13, 0), seen_in="NVIDIA_REQUIRE_CUDA")
    assert gate.driver_branches == (535, 550, 565, 570, 575)
    assert gate.text == GATE_13_0


@pytest.mark.parametrize(
    ("text", "floor", "branches"),
    [
        ("cuda>=12.4", Known(CudaVersion(12, 4), seen_in="NVIDIA_REQUIRE_CUDA"), ()),
        ("cuda>=9.0 driver>=418,driver<419", Known(CudaVersion(9, 0), seen_in="NVIDIA_REQUIRE_CUDA"), (418,)),
        ("cuda>=12.8 cuda>=12.4,brand=tesla", Known(CudaVersion(12, 4), seen_in="NVIDIA_REQUIRE_CUDA"), ()),
        ("brand=tesla,driver>=535,driver<536", NO_FLOOR, (535,)),
        ("cuda>=1300.5 driver>=5,driver<6 driver>=535,driver<600", NO_FLOOR, ()),
        ("", NO_FLOOR, ()),
        ("\x1b]0;evil\x07 cuda>=", NO_FLOOR, ()),
    ],
)
def test_other_gates_are_taken_apart_as_far_as_they_go(
    text: str, floor: Known[CudaVersion] | Unknown, branches: tuple[int, ...]
) -> None:
    gate = parse_requirement(text)
    assert gate.cuda_floor == floor
    assert gate.driver_branches == branches


@pytest.mark.parametrize(("value", "disabled"), [("1", True), ("true", True), ("0", False), ("yes", False)])
def test_the_gate_is_off_only_for_words_the_runtime_takes_for_true(
    tmp_path: Path, value: str, *, disabled: bool
) -> None:
    facts = probe_containers(machine_of(tmp_path, NVIDIA_DISABLE_REQUIRE=value))
    assert facts.requirement_disabled == Known(disabled, seen_in="NVIDIA_DISABLE_REQUIRE")


@pytest.mark.parametrize(
    ("value", "shown"),
    [("all", "all"), ("void", "void"), ("0,1", "0,1"), ("GPU-5ebe", "by name"), ("nvidia.com/gpu=all", "by name")],
)
def test_visible_devices_are_shown_without_identifiers(tmp_path: Path, value: str, shown: str) -> None:
    facts = probe_containers(machine_of(tmp_path, NVIDIA_VISIBLE_DEVICES=value))
    assert facts.visible_devices == Known(shown, seen_in="NVIDIA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/.dockerenv", ContainerKind.DOCKER),
        ("/run/.containerenv", ContainerKind.PODMAN),
        ("/.singularity.d/env/01-base.sh", ContainerKind.APPTAINER),
        ("/.enroot/bin/enroot", ContainerKind.ENROOT),
        ("/var/run/secrets/kubernetes.io/serviceaccount/namespace", ContainerKind.KUBERNETES),
        ("/dev/lxd/sock", ContainerKind.LXD),
        ("/dev/incus/sock", ContainerKind.INCUS),
        ("/etc/hostname", ContainerKind.NONE),
    ],
)
def test_a_container_is_known_by_the_file_it_leaves(tmp_path: Path, path: str, kind: ContainerKind) -> None:
    put(tmp_path, path)
    assert kind_of(tmp_path) is kind


@pytest.mark.parametrize(
    ("cgroup", "kind"),
    [
        ("0::/kubepods/burstable/pod1/abc\n", ContainerKind.KUBERNETES),
        ("12:memory:/docker/0123abc\n", ContainerKind.DOCKER),
        ("1:name=systemd:/lxc/box\n", ContainerKind.LXC),
        ("0::/init.scope\n", ContainerKind.NONE),
        ("\0\xff", ContainerKind.NONE),
    ],
)
def test_a_container_is_known_by_its_control_group(tmp_path: Path, cgroup: str, kind: ContainerKind) -> None:
    put(tmp_path, "/proc/1/cgroup", cgroup)
    assert kind_of(tmp_path) is kind


def test_a_container_is_known_by_variables_and_mounts(tmp_path: Path) -> None:
    assert kind_of(tmp_path, APPTAINER_CONTAINER="/images/x.sif") is ContainerKind.APPTAINER
    assert kind_of(tmp_path, container="podman") is ContainerKind.PODMAN
    assert kind_of(tmp_path, container="oci") is ContainerKind.OTHER
    put(tmp_path, "/proc/self/mounts", OVERLAY)
    assert kind_of(tmp_path) is ContainerKind.OTHER
    put(tmp_path, "/proc/self/mounts", OVERLAY + "/dev/sda1 /.lock ext4 ro,nosuid,nodev,noexec 0 0\n")
    assert kind_of(tmp_path) is ContainerKind.ENROOT


def test_a_pod_with_dockers_marker_is_a_kubernetes_pod(tmp_path: Path) -> None:
    put(tmp_path, "/.dockerenv")
    assert kind_of(tmp_path, KUBERNETES_SERVICE_HOST="10.0.0.1") is ContainerKind.KUBERNETES


@pytest.mark.parametrize(
    ("path", "text", "provider"),
    [
        ("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n", Provider.AWS),
        ("/sys/class/dmi/id/product_name", "Google Compute Engine\n", Provider.GCP),
        ("/sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", Provider.AZURE),
        ("/var/lib/dpkg/info/lambda-stack-cuda.list", "/.\n", Provider.LAMBDA),
    ],
)
def test_a_cloud_is_known_by_its_firmware_or_image(tmp_path: Path, path: str, text: str, provider: Provider) -> None:
    put(tmp_path, path, text)
    [seen] = probe_containers(machine_of(tmp_path)).providers
    assert (seen.provider, seen.seen_in) == (provider, path)


def test_a_slurm_job_on_aws_has_two_providers_and_hyper_v_is_not_azure(tmp_path: Path) -> None:
    put(tmp_path, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    facts = probe_containers(machine_of(tmp_path, SLURM_JOB_ID="4711"))
    assert [each.provider for each in facts.providers] == [Provider.SLURM, Provider.AWS]
    assert "4711" not in repr(facts)
    put(tmp_path, "/sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n")
    assert probe_containers(machine_of(tmp_path)).providers == ()


def test_a_host_with_docker_and_the_nvidia_runtime(tmp_path: Path) -> None:
    put(
        tmp_path,
        "/etc/docker/daemon.json",
        '{"registry-mirrors": ["https://mirror.corp.example"], "default-runtime": "nvidia",\n'
        ' "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}\n',
    )
    put(
        tmp_path,
        "/etc/nvidia-container-runtime/config.toml",
        '#mode = "csv"\n[nvidia-container-runtime]\nmode = "auto"\n\n'
        '[nvidia-container-runtime.modes.legacy]\ncuda-compat-mode = "ldconfig"\n',
    )
    put(tmp_path, "/etc/cdi/nvidia.yaml")
    put(tmp_path, "/var/run/cdi/k8s.json")
    recording = RecordingMachine(machine_of(tmp_path))
    runtime = probe_containers(recording).runtime
    assert runtime.nvidia_runtime == Known(value=True, seen_in="/etc/docker/daemon.json")
    assert runtime.default_runtime == Known("nvidia", seen_in="/etc/docker/daemon.json")
    assert runtime.runtime_mode == Known("auto", seen_in="/etc/nvidia-container-runtime/config.toml")
    assert runtime.cuda_compat_mode == Known("ldconfig", seen_in="/etc/nvidia-container-runtime/config.toml")
    assert runtime.cdi_specs == ("/etc/cdi/nvidia.yaml", "/var/run/cdi/k8s.json")
    assert "corp.example" not in repr(recording.evidence)


@pytest.mark.parametrize("text", ["{}", '{"runtimes": {"runc": {}}}', "not json at all"])
def test_a_daemon_without_the_nvidia_runtime_says_no(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/etc/docker/daemon.json", text)
    runtime = probe_containers(machine_of(tmp_path)).runtime
    assert runtime.nvidia_runtime == Known(value=False, seen_in="/etc/docker/daemon.json")
    assert runtime.default_runtime == Unknown("/etc/docker/daemon.json does not set default-runtime")


def test_a_docker_socket_is_a_socket_and_not_a_file(tmp_path: Path) -> None:
    put(tmp_path, "/var/run/docker.sock")
    assert isinstance(probe_containers(machine_of(tmp_path)).runtime.docker_socket, Unknown)
    (tmp_path / "var/run/docker.sock").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(tmp_path / "var/run")  # the path of a socket may have 107 bytes
        try:
            listener.bind("docker.sock")
        finally:
            os.chdir(here)
        assert probe_containers(machine_of(tmp_path)).runtime.docker_socket == Known(
            value=True, seen_in="/var/run/docker.sock"
        )


@pytest.mark.parametrize(
    ("prints", "version"),
    [
        ("NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a", "1.17.8"),
        ("NVIDIA Container Toolkit CLI version 1.19.0-rc.2", "1.19.0-rc.2"),
        ("segfault", ""),
    ],
)
def test_the_container_toolkit_is_asked_for_its_version(tmp_path: Path, prints: str, version: str) -> None:
    tools = tmp_path / "tools"
    tool = put(tools, "nvidia-ctk", f"#!/bin/sh\necho '{prints}'\n")
    tool.chmod(0o755)
    link = tmp_path / "root" / str(tools).lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to(tools)
    found = probe_containers(machine_of(tmp_path / "root", PATH=f"{tools}:/usr/bin:/bin")).runtime.container_toolkit
    expected = Known(version, seen_in=f"{tool} --version") if version else Unknown(f"{tool} --version names no version")
    assert found == expected


def test_a_bare_host_is_no_container(tmp_path: Path) -> None:
    facts = probe_containers(machine_of(tmp_path))
    assert facts.kind == Known(ContainerKind.NONE, seen_in="no marker of a container")
    assert facts.cuda_requirement == Unknown("NVIDIA_REQUIRE_CUDA is not set")
    assert facts.runtime.container_toolkit == Unknown("no nvidia-ctk on PATH")


def test_the_answer_can_be_written_down_and_replayed(tmp_path: Path) -> None:
    recording = RecordingMachine(runpod(tmp_path))
    facts = probe_containers(recording)
    assert probe_containers(RecordedMachine(recording.evidence)) == facts
    assert decode(ContainerFacts, json.loads(json.dumps(encode(facts))), "containers") == facts
