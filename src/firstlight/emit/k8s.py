"""A Job and a Pod for Kubernetes: the image of `emit dockerfile`, the gate before it starts, GPUs by their limit."""

from __future__ import annotations

import re
import textwrap

from firstlight.emit.bench_job import NOT_RUN, PORT, bench_name, bench_words
from firstlight.emit.containers import ENTRYPOINT, SHARED_MEMORY_GIB, gate_command, proof_arguments
from firstlight.emit.dockerfile import HOME
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
_LONGEST = 57
# firstlight is found in its own environment, and runs in the Python of the other, whose torch is measured.
_IN_ENVIRONMENT = (
    f'PYTHONPATH="$({HOME}/tool/bin/python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')" '
    f'exec {HOME}/env/bin/python -m firstlight "$@"'
)


def emit_k8s(subject: Subject) -> Emitted:
    """job.yaml, which proves the image on a node or runs a program there, and pod.yaml to work in."""
    if not subject.choices.image:
        raise BadInput(
            "k8s: no image is named, and nodes pull one. Build it from the files of `firstlight emit dockerfile`, "
            "push it, then give its name: --image registry.example.com/team/torch:1."
        )
    if subject.bench is not None:
        return _emit_bench(subject, subject.bench.nodes)
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


def _emit_bench(subject: Subject, nodes: int) -> Emitted:
    """bench.yaml: an indexed Job, one Pod on each of several nodes, and the Service that gives the Pods their names."""
    name = bench_name(subject, _name(subject))
    if len(name) > _LONGEST:
        raise BadInput(f"--name {name[:40]!a}: accepted for a Job are up to {_LONGEST} letters. Give a shorter --name.")
    meets = ("--nodes", str(nodes), "--rendezvous", f"{name}-0.{name}:{PORT}") if nodes > 1 else ()
    arguments = ("sh", "-c", _IN_ENVIRONMENT, "bench", *bench_words(subject), *meets)
    text = _manifest(subject, name, kind="bench", arguments=arguments)
    notes = (
        "The image must be one that was built from the files of `firstlight emit dockerfile`: it holds the gate.",
        "The Pods speak over the network of the cluster; what NCCL needs for another one (RDMA) is yours to add.",
        NOT_RUN,
    )
    to_run = (
        ToRun("Measure", "kubectl apply -f bench.yaml"),
        ToRun("What it says", f"kubectl logs --follow --prefix --selector app.kubernetes.io/name={name}"),
        ToRun("Take it away", "kubectl delete -f bench.yaml"),
    )
    return Emitted("k8s", (EmittedFile("bench.yaml", text),), subject.gates, subject.plan.digest, notes, to_run=to_run)


def _manifest(subject: Subject, name: str, *, kind: str, arguments: tuple[str, ...]) -> str:
    nodes = 0 if subject.bench is None else subject.bench.nodes
    spec = render(
        "k8s_spec.yaml.j2",
        image=str(image_reference(subject.choices.image, what="--image")),
        arch=_ARCHITECTURES[subject.target.machine],
        runtime_class=_runtime_class(subject),
        asks_for_gpu=subject.gates.asks_for_gpu,
        shared_memory=SHARED_MEMORY_GIB,
        gate=dockerfile_exec(gate_command(subject)),
        arguments=dockerfile_exec(arguments),
        is_job=kind != "pod",
        is_bench=kind == "bench",
        gpus=1 if subject.bench is None else subject.bench.gpus,
        name=name,
        several=nodes > 1,
    )
    return render(
        "k8s.yaml.j2",
        header=header_lines(subject, "k8s"),
        file=Quoted(f"{kind}.yaml"),
        is_job=kind != "pod",
        nodes=nodes,
        port=PORT,
        name=name,
        made_by=made_by(),
        digest=subject.plan.digest,
        spec=Quoted(textwrap.indent(spec.rstrip(), "  " if kind == "pod" else "      ")),
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
