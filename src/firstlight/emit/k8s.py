"""A Job and a Pod for Kubernetes: the image of `emit dockerfile`, the gate before it starts, GPUs by their limit."""

from __future__ import annotations

import re
import textwrap

from firstlight.emit.containers import ENTRYPOINT, SHARED_MEMORY_GIB, gate_command, proof_arguments
from firstlight.emit.document import Emitted, EmittedFile, ToRun, made_by
from firstlight.emit.header import header_lines
from firstlight.emit.image_reference import image_reference
from firstlight.emit.quoting import Quoted, dockerfile_exec
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject
from firstlight.errors import BadInput

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,55}[a-z0-9])?")  # of a Job: its Pods add six letters, and 63 is the end
_CLASS = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as kubernetes.io/arch has them
_WAITS = ("sleep", "infinity")


def emit_k8s(subject: Subject) -> Emitted:
    """job.yaml, which proves the image on a node or runs a program there, and pod.yaml to work in."""
    if not subject.choices.image:
        raise BadInput(
            "k8s: no image is named, and nodes pull one. Build it from the files of `firstlight emit dockerfile`, "
            "push it, then give its name: --image registry.example.com/team/torch:1."
        )
    name = _name(subject)
    files = tuple(
        EmittedFile(f"{kind}.yaml", _manifest(subject, name, kind=kind, arguments=arguments))
        for kind, arguments in (("job", proof_arguments()), ("pod", _WAITS))
    )
    notes = [
        "The image must be one that was built from the files of `firstlight emit dockerfile`: it holds the gate.",
    ]
    to_run = [
        ToRun("Prove it on a node", "kubectl apply -f job.yaml"),
        ToRun("What it says", f"kubectl logs --follow job/{name}"),
        ToRun("Why a node refused it", f"kubectl logs job/{name} --container gate"),
        ToRun("A pod to work in, from pod.yaml", f"kubectl exec -it {name} -- {ENTRYPOINT} python"),
    ]
    if subject.gates.asks_for_gpu and not subject.choices.runtime_class:
        notes.append("Where nvidia is not the default runtime of the nodes, emit with --runtime-class nvidia.")
        to_run.append(ToRun("Which runtimes there are", "kubectl get runtimeclass"))
    return Emitted("k8s", files, subject.gates, subject.plan.digest, tuple(notes), to_run=tuple(to_run))


def _manifest(subject: Subject, name: str, *, kind: str, arguments: tuple[str, ...]) -> str:
    spec = render(
        "k8s_spec.yaml.j2",
        image=str(image_reference(subject.choices.image, what="--image")),
        arch=_ARCHITECTURES[subject.target.machine],
        runtime_class=_runtime_class(subject),
        asks_for_gpu=subject.gates.asks_for_gpu,
        shared_memory=SHARED_MEMORY_GIB,
        gate=dockerfile_exec(gate_command(subject)),
        arguments=dockerfile_exec(arguments),
        is_job=kind == "job",
    )
    return render(
        "k8s.yaml.j2",
        header=header_lines(subject, "k8s"),
        file=Quoted(f"{kind}.yaml"),
        is_job=kind == "job",
        name=name,
        made_by=made_by(),
        digest=subject.plan.digest,
        spec=Quoted(textwrap.indent(spec.rstrip(), "      " if kind == "job" else "  ")),
    )


def _name(subject: Subject) -> str:
    name = subject.choices.name or re.sub(r"[^a-z0-9]+", "-", f"torch-{subject.gates.torch}".lower())
    if not _LABEL.fullmatch(name):
        raise BadInput(
            f"--name {name[:40]!a}: accepted for a Job are up to 57 small letters and digits with - between, "
            "e.g. torch-2-9-0-cu130."
        )
    return name


def _runtime_class(subject: Subject) -> str:
    name = subject.choices.runtime_class
    if name and not _CLASS.fullmatch(name):
        raise BadInput(
            f"--runtime-class {name[:40]!a}: accepted are small letters, digits, . and -, e.g. nvidia. "
            "`kubectl get runtimeclass` names those that the cluster has."
        )
    return name
