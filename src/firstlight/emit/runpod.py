"""A RunPod pod and template as the bodies of REST v2, with the filters that keep a pod off hosts that cannot run it.

docs.runpod.io/api-reference-v2/pods/create-a-pod and .../templates/create-a-template, read 2026-11-15. A field that is
not in these is refused by the server, so who made a file stands in an environment variable.
"""

from __future__ import annotations

import json
import re
from typing import Any

from firstlight.emit.bash import NAME as SETUP
from firstlight.emit.bash import emit_bash
from firstlight.emit.document import Emitted, EmittedFile, ToRun, made_by
from firstlight.emit.image_reference import image_reference
from firstlight.emit.quoting import absolute_path, sh
from firstlight.emit.subject import Subject
from firstlight.emit.tool import emitted_wheel, where_from
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.tables import Tables
from firstlight.tables.gpu_rows import GpuKind
from firstlight.versions import ComputeCapability, CudaVersion

# Named in RunPod's documentation; its /start.sh starts sshd and Jupyter. The packages of the plan go to the volume.
IMAGE = "runpod/pytorch:2.8.0-py3.11-cuda12.8.1-cudnn-devel-ubuntu22.04"
_DISK_GB, _VOLUME_GB = (
    30,
    60,
)  # the volume holds wheels and environment: 4.1 GB of wheels for torch 2.9.0, thrice unpacked
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,99}")


def emit_runpod(subject: Subject) -> Emitted:
    """runpod-pod.json (POST /v2/pods), runpod-template.json (POST /v2/templates), and what runs at every start."""
    gpu = _gpu(subject)
    common = _container(subject)
    count: dict[str, Any] = {"id": gpu, "count": 1}
    notes = ["POST runpod-pod.json to https://api.runpod.io/v2/pods."]
    by_hand = f"runpodctl pod create --gpu-id {sh(gpu)}"
    floor = subject.gates.cuda_floor
    if isinstance(floor, Known):  # RunPod has a minimum and no list
        count["minCudaVersion"] = str(floor.value)
        by_hand += f" --min-cuda-version {floor.value}"
        notes += _left_out(subject, floor.value)
    pod = {**common, "cloud": "SECURE", "gpu": count}
    files = [
        EmittedFile("runpod-pod.json", _text(pod)),
        EmittedFile("runpod-template.json", _text(common)),
    ]
    notes.append("A template has no filter for hosts: with it, set the CUDA version and the GPU when a pod is made.")
    wheel = None
    if not subject.choices.image:
        files += emit_bash(subject).files
        wheel = emitted_wheel(subject)
        volume = absolute_path(subject.choices.volume, what="--volume")
        notes.append(
            f"Put {SETUP} on the volume as {volume}/{SETUP}; every start of the pod runs it before sshd starts."
        )
        notes.append(where_from(subject))
    digest, to_run = subject.plan.digest, (ToRun("By hand", by_hand),)
    return Emitted("runpod", tuple(files), subject.gates, digest, tuple(notes), to_run=to_run, wheel=wheel)


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _container(subject: Subject) -> dict[str, Any]:
    """What a pod and a template share."""
    volume = absolute_path(subject.choices.volume, what="--volume")
    env = {"FIRSTLIGHT_EMITTED": f"{made_by()}, plan {subject.plan.digest}"}
    if subject.gates.require_cuda:
        env["NVIDIA_REQUIRE_CUDA"] = subject.gates.require_cuda  # wins over the one that the image brings
    container: dict[str, Any] = {
        "name": _name(subject),
        "image": str(image_reference(subject.choices.image or IMAGE, what="--image")),
        "disk": _DISK_GB,
        "ports": ["22/tcp", "8888/http"],
        "env": env,
        "mounts": {"persistent": {"size": _VOLUME_GB, "path": volume}},
    }
    if not subject.choices.image:
        # A pod that cannot be set up is still to be reached by ssh, where its log says why.
        script, log = sh(f"{volume}/{SETUP}"), sh(f"{volume}/pod_setup.log")
        container["args"] = f"bash -c {sh(f'[ ! -f {script} ] || sh {script} > {log} 2>&1; exec /start.sh')}"
    return container


def _name(subject: Subject) -> str:
    name = subject.choices.name or f"torch {subject.gates.torch}"
    if not _NAME.fullmatch(name):
        raise BadInput(f"--name {name[:40]!a}: accepted are up to 100 letters, digits, spaces and . _ + -.")
    return name


def _gpu(subject: Subject) -> str:
    """RunPod's id of the GPU, which is the name that the driver tells: NVIDIA H100 80GB HBM3."""
    seen = [(gpu.name, gpu.capability) for gpu in subject.facts.gpus.devices]
    told = [
        (name.value, capability.value if isinstance(capability, Known) else None)
        for name, capability in seen
        if isinstance(name, Known)
    ] or [(gpu.name, gpu.capability) for gpu in subject.facts.libcuda.devices]
    names = [name for name, capability in told if _runs(capability, subject) and not _is_board(name, subject.tables)]
    if not names:
        raise BadInput(
            f"runpod: {subject.made_for[:80]} names no GPU that runs torch {subject.gates.torch}, and a pod has only "
            'one kind of GPU. Say which: --for "H100, driver >= 570".'
        )
    return names[0]


def _is_board(name: str, tables: Tables) -> bool:
    row = tables.gpu_named(name)
    return row is not None and row.kind is GpuKind.JETSON


def _runs(capability: ComputeCapability | None, subject: Subject) -> bool:
    known = subject.gates.capabilities
    return capability is None or not known or capability in known


def _left_out(subject: Subject, floor: CudaVersion) -> list[str]:
    older = [cuda for cuda in subject.gates.allowed_cuda if cuda < floor]
    if not older:
        return []
    named = ", ".join(str(cuda) for cuda in older)
    stops = "an image of `firstlight emit dockerfile`" if subject.choices.image else SETUP
    return [
        f"Hosts of CUDA {named} run it too, but RunPod's minimum cannot leave out those between them that do not; "
        f"{stops} stops there and says so."
    ]
