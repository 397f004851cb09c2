"""A compose file: the image of `emit dockerfile` as one service, with the GPUs reserved and the gate as its health."""

from __future__ import annotations

from firstlight.emit.containers import (
    SHARED_MEMORY_GIB,
    gate_command,
    is_board,
    proof_arguments,
    refuse_base_of_an_image,
)
from firstlight.emit.dockerfile import image_files, image_name
from firstlight.emit.document import Emitted, EmittedFile, ToRun
from firstlight.emit.header import header_lines
from firstlight.emit.image_reference import image_reference
from firstlight.emit.quoting import Quoted, dockerfile_exec
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject
from firstlight.emit.tool import emitted_wheel, where_from

NAME = "compose.yaml"
SERVICE = "torch"


def emit_compose(subject: Subject) -> Emitted:
    """compose.yaml, and everything the image is built from unless --image names one that was built."""
    refuse_base_of_an_image(subject)
    builds, named = not subject.choices.image, subject.choices.image
    text = render(
        "compose.yaml.j2",
        header=header_lines(subject, "compose"),
        service=Quoted(SERVICE),
        image=str(image_reference(named, what="--image")) if named else image_name(subject),
        builds=builds,
        asks_for_gpu=subject.gates.asks_for_gpu,
        by_runtime=is_board(subject),
        shared_memory=SHARED_MEMORY_GIB,
        gate=dockerfile_exec(("CMD", *gate_command(subject))),
        proof=dockerfile_exec(proof_arguments()),
    )
    files = (EmittedFile(NAME, text), *(image_files(subject, "compose") if builds else ()))
    to_run = (
        *((ToRun("In the folder of these files", "docker compose build"),) if builds else ()),
        ToRun("Prove it", f"docker compose run --rm {SERVICE}"),
        ToRun("Your own program", f"docker compose run --rm {SERVICE} python train.py"),
    )
    notes = (where_from(subject),) if builds else ()
    wheel = emitted_wheel(subject) if builds else None
    return Emitted("compose", files, subject.gates, subject.plan.digest, notes, to_run=to_run, wheel=wheel)
