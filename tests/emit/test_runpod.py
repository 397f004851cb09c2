"""RunPod's bodies: only fields that its API has, and a floor under which no host is that cannot run the plan."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from firstlight.emit.document import Emitted
from firstlight.emit.runpod import emit_runpod
from firstlight.emit.subject import Choices
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from tests.emit.subjects import HOSTILE, NEW_H100, recorded, subject, text_of

# By docs.runpod.io/api-reference-v2/pods/create-a-pod and .../templates/create-a-template (read 2026-11-15), in our own
# words; the server refuses fields that it does not know.
_CONTAINER: dict[str, Any] = {
    "name": {"type": "string", "minLength": 1},
    "image": {"type": "string"},
    "args": {"type": "string"},
    "disk": {"type": "integer", "minimum": 1},
    "ports": {"type": "array", "items": {"type": "string", "pattern": "^[0-9]+/(tcp|http)$"}},
    "env": {"type": "object", "additionalProperties": {"type": "string"}},
    "mounts": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "persistent": {
                "type": "object",
                "additionalProperties": False,
                "required": ["size", "path"],
                "properties": {"size": {"type": "integer", "minimum": 1}, "path": {"type": "string"}},
            }
        },
    },
}
TEMPLATE: dict[str, Any] = {
    "type": "object", "required": ["name", "image"], "additionalProperties": False, "properties": _CONTAINER
}  # fmt: skip
POD: dict[str, Any] = {
    "type": "object",
    "required": ["name", "image", "gpu"],
    "additionalProperties": False,
    "properties": {
        **_CONTAINER,
        "cloud": {"enum": ["SECURE", "COMMUNITY"]},
        "gpu": {
            "type": "object",
            "additionalProperties": False,
            "required": ["id", "count"],
            "properties": {
                "id": {"type": "string"},
                "count": {"type": "integer", "minimum": 1},
                "minCudaVersion": {"type": "string", "pattern": r"^\d+\.\d+$"},
            },
        },
    },
}


def _pod(emitted: Emitted) -> dict[str, Any]:
    pod: dict[str, Any] = json.loads(text_of(emitted, "runpod-pod.json"))
    Draft202012Validator(POD).validate(pod)
    template = json.loads(text_of(emitted, "runpod-template.json"))
    Draft202012Validator(TEMPLATE).validate(template)
    assert template.items() <= pod.items()
    return pod


def test_a_cuda_13_wheel_asks_for_hosts_of_cuda_13() -> None:
    pod = _pod(emit_runpod(subject(NEW_H100)))
    assert pod["gpu"] == {"id": "NVIDIA H100 80GB HBM3", "count": 1, "minCudaVersion": "13.0"}
    assert pod["env"]["NVIDIA_REQUIRE_CUDA"] == "cuda>=13.0"


def test_a_cuda_12_wheel_takes_older_hosts() -> None:
    assert _pod(emit_runpod(subject(NEW_H100, "torch==2.9.0")))["gpu"]["minCudaVersion"] == "12.0"


def test_with_compat_no_host_above_the_floor_is_one_that_the_library_does_not_take() -> None:
    made = subject()
    emitted = emit_runpod(made)
    assert _pod(emitted)["gpu"]["minCudaVersion"] == "12.7"  # of branch 565; 560 is CUDA 12.6 and is not taken
    assert isinstance(made.gates.cuda_floor, Known)
    floor = made.gates.cuda_floor.value
    reported = {row.native_cuda for row in made.tables.driver_branches if row.native_cuda >= floor}
    assert reported <= set(made.gates.allowed_cuda)
    assert any("12.2, 12.4 run it too" in note for note in emitted.notes)


def test_the_pod_runs_the_script_on_its_volume_at_every_start_and_is_reached_where_that_fails(tmp_path: Path) -> None:
    volume = "/work space/of team"
    emitted = emit_runpod(subject(choices=Choices(volume=volume)))
    pod = _pod(emitted)
    assert pod["mounts"]["persistent"]["path"] == volume
    assert text_of(emitted, "pod_setup.sh").startswith("#!/bin/sh\n")
    args = pod["args"].replace(volume, str(tmp_path)).replace("/start.sh", f"{tmp_path}/start.sh")
    (tmp_path / "start.sh").write_text("#!/bin/sh\necho sshd\n")
    (tmp_path / "start.sh").chmod(0o755)
    (tmp_path / "pod_setup.sh").write_text("echo no such driver >&2; exit 1\n")
    done = subprocess.run(["sh", "-c", args], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sshd\n", "")
    assert (tmp_path / "pod_setup.log").read_text() == "no such driver\n"
    os.remove(tmp_path / "pod_setup.sh")
    assert subprocess.run(["sh", "-c", args], capture_output=True, text=True, check=False).stdout == "sshd\n"


def test_an_image_of_ones_own_brings_its_entrypoint() -> None:
    emitted = emit_runpod(subject(choices=Choices(image="ghcr.io/team/torch@sha256:" + "0" * 64)))
    assert "args" not in _pod(emitted)
    assert {file.name for file in emitted.files} == {"runpod-pod.json", "runpod-template.json"}


def test_who_made_it_stands_where_the_server_takes_it() -> None:
    emitted = emit_runpod(subject())
    assert _pod(emitted)["env"]["FIRSTLIGHT_EMITTED"].endswith(f"plan {emitted.digest}")


def test_a_recorded_machine_asks_for_its_own_gpu() -> None:
    assert _pod(emit_runpod(recorded("h100-driver-570", "torch==2.9.0")))["gpu"]["id"] == "NVIDIA H100 80GB HBM3"


def test_without_a_gpu_it_is_not_guessed() -> None:
    made = subject()
    facts = replace(
        made.facts,
        gpus=replace(made.facts.gpus, devices=()),
        libcuda=replace(made.facts.libcuda, devices=()),
    )
    with pytest.raises(BadInput, match="a pod has only one kind of GPU"):
        emit_runpod(replace(made, facts=facts))


def test_a_board_that_no_pod_has_is_refused() -> None:
    made = subject()
    [gpu] = made.facts.gpus.devices
    thor = replace(gpu, name=Known("NVIDIA Thor", "a test"))
    facts = replace(
        made.facts,
        gpus=replace(made.facts.gpus, devices=(thor,)),
        libcuda=replace(made.facts.libcuda, devices=()),
    )
    with pytest.raises(BadInput, match="names no GPU"):
        emit_runpod(replace(made, facts=facts))


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_says_about_the_machine_is_not_in_the_bodies(text: str) -> None:
    assert emit_runpod(subject(made_for=text)).files[:2] == emit_runpod(subject()).files[:2]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["name", "image", "volume"])
def test_names_that_could_be_more_than_names_are_refused(field: str, text: str) -> None:
    with pytest.raises(BadInput):
        emit_runpod(subject(choices=Choices(**{field: text})))


@pytest.mark.parametrize(
    ("image", "named"), [("", "pod_setup.sh"), ("reg.example.com/x:1", "firstlight emit dockerfile")]
)
def test_what_stops_on_a_host_that_does_not_fit_is_something_that_is_there(image: str, named: str) -> None:
    emitted = emit_runpod(subject(choices=Choices(image=image)))
    [note] = [note for note in emitted.notes if "stops there and says so" in note]
    assert named in note
    assert any(file.name == "pod_setup.sh" for file in emitted.files) == ("pod_setup.sh" in note)
