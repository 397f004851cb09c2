"""A dev container: the image of `emit dockerfile`, and a gate on the host before it is built."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from firstlight.emit.containers import ENTRYPOINT, SHARED_MEMORY_GIB, proof_arguments, refuse_base_of_an_image
from firstlight.emit.dockerfile import HOME, image_files, image_name, user_of
from firstlight.emit.document import Emitted, EmittedFile, ToRun, made_by
from firstlight.emit.gate_words import gates_as_json
from firstlight.emit.header import header_lines
from firstlight.emit.image_reference import image_reference
from firstlight.emit.preflight import preflight_functions
from firstlight.emit.quoting import devcontainer_text
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject
from firstlight.emit.tool import emitted_wheel

FOLDER = ".devcontainer"


def emit_devcontainer(subject: Subject) -> Emitted:
    """.devcontainer/devcontainer.json, the check of the host, and everything the image is built from."""
    refuse_base_of_an_image(subject)
    check = render(
        "check_host.sh.j2",
        header=header_lines(subject, "devcontainer"),
        gates=preflight_functions(subject.gates, subject.target.machine),
    )
    image = () if subject.choices.image else image_files(subject, "devcontainer")
    files = (
        EmittedFile(f"{FOLDER}/devcontainer.json", _document(subject)),
        EmittedFile(f"{FOLDER}/check_host.sh", check, 0o755),
        *(replace(file, name=f"{FOLDER}/{file.name}") for file in image),
    )
    opened = f"Put the folder {FOLDER} into the project and open it in an editor; without one"
    to_run = (ToRun(opened, "devcontainer up --workspace-folder ."),)
    notes = ("The check runs on the host with sh; a Windows host has it in WSL alone.",)
    wheel = None if subject.choices.image else emitted_wheel(subject, f"{FOLDER}/wheels")
    return Emitted("devcontainer", files, subject.gates, subject.plan.digest, notes, to_run=to_run, wheel=wheel)


def _document(subject: Subject) -> str:
    document: dict[str, Any] = {
        "name": image_name(subject),
        **_image(subject),
        # an argument list: no shell reads it, and the working folder is the project's
        "initializeCommand": ["sh", f"{FOLDER}/check_host.sh"],
        "remoteUser": user_of(subject),
        # An editor replaces the image's entrypoint, so it is asked at every start of the container: it writes down
        # what cuInit said, and shells and Python go by that.
        "postStartCommand": [ENTRYPOINT, "true"],
        "postCreateCommand": [ENTRYPOINT, *proof_arguments()],
        "runArgs": ["--shm-size", f"{SHARED_MEMORY_GIB}g"],
        "customizations": {
            "firstlight": {"made_by": made_by(), "plan": subject.plan.digest, "gates": gates_as_json(subject.gates)},
            "vscode": {
                "extensions": ["ms-python.python"],
                "settings": {"python.defaultInterpreterPath": f"{HOME}/env/bin/python"},
            },
        },
    }
    if subject.gates.asks_for_gpu:
        document["hostRequirements"] = {"gpu": True}  # adds --gpus all
    _refuse_variables(document)
    return json.dumps(document, indent=2) + "\n"


def _image(subject: Subject) -> dict[str, Any]:
    """The image that was built from the files of `emit dockerfile`, where one is named; else how it is built."""
    if subject.choices.image:
        return {"image": str(image_reference(subject.choices.image, what="--image"))}
    return {"build": {"dockerfile": "Dockerfile", "context": "."}}


def _refuse_variables(value: Any) -> None:
    """The reader of devcontainer.json replaces ${...} in every string."""
    if isinstance(value, dict):
        for each in (*value.keys(), *value.values()):
            _refuse_variables(each)
    elif isinstance(value, list):
        for each in value:
            _refuse_variables(each)
    elif isinstance(value, str):
        devcontainer_text(value)
