"""devcontainer.json by its specification, and the check on the host that the specification has no field for."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from firstlight.emit.devcontainer import emit_devcontainer
from firstlight.emit.subject import Choices
from firstlight.errors import BadInput
from tests.apply.stand_ins import can_have_its_own_mounts, under_driver
from tests.emit.subjects import HOSTILE, NEW_H100, OLD_H100, subject, text_of, write
from tests.programs import SHELLCHECK

# What a container that is built from a Dockerfile may say, by https://containers.dev/implementors/json_reference/ and
# https://github.com/devcontainers/spec/blob/main/schemas/devContainer.base.schema.json (read 2026-11-15): a subset in
# our own words, closed where the specification is closed.
_COMMAND = {
    "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "object"}]
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "oneOf": [{"required": ["build"]}, {"required": ["image"]}],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "build": {
            "type": "object",
            "required": ["dockerfile"],
            "additionalProperties": False,
            "properties": {
                "dockerfile": {"type": "string"},
                "context": {"type": "string"},
                "args": {"type": "object", "additionalProperties": {"type": "string"}},
                "target": {"type": "string"},
            },
        },
        "initializeCommand": _COMMAND,
        "postCreateCommand": _COMMAND,
        "postStartCommand": _COMMAND,
        "remoteUser": {"type": "string"},
        "runArgs": {"type": "array", "items": {"type": "string"}},
        "hostRequirements": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"gpu": {"enum": [True, False, "optional"]}},
        },
        "customizations": {"type": "object", "additionalProperties": {"type": "object"}},
    },
}
PATH = ".devcontainer/devcontainer.json"


def _document(emitted_text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(emitted_text)
    Draft202012Validator(SCHEMA).validate(document)
    return document


@pytest.mark.parametrize("machine", [OLD_H100, NEW_H100])
def test_the_file_is_by_the_specification(machine: str) -> None:
    document = _document(text_of(emit_devcontainer(subject(machine)), PATH))
    assert document["hostRequirements"] == {"gpu": True}
    assert document["build"] == {"dockerfile": "Dockerfile", "context": "."}


def test_a_torch_without_cuda_asks_for_no_gpu() -> None:
    document = _document(text_of(emit_devcontainer(subject(NEW_H100, "torch==2.9.0+cpu")), PATH))
    assert "hostRequirements" not in document


def test_what_it_names_is_emitted_beside_it() -> None:
    emitted = emit_devcontainer(subject())
    document, names = _document(text_of(emitted, PATH)), {file.name for file in emitted.files}
    assert document["initializeCommand"] == ["sh", ".devcontainer/check_host.sh"]
    assert document["initializeCommand"][1] in names
    assert f".devcontainer/{document['build']['dockerfile']}" in names
    assert f'useradd --create-home --uid "$UID" --shell /bin/sh {document["remoteUser"]}\n' in text_of(
        emitted, ".devcontainer/Dockerfile"
    )


def test_an_image_that_was_built_before_is_taken_as_it_is() -> None:
    built = "ghcr.io/team/torch@sha256:" + "0" * 64
    emitted = emit_devcontainer(subject(choices=Choices(image=built)))
    assert _document(text_of(emitted, PATH))["image"] == built
    assert [file.name for file in emitted.files] == [PATH, ".devcontainer/check_host.sh"]


def test_an_image_and_a_base_for_it_are_refused_together() -> None:
    with pytest.raises(BadInput) as refused:
        emit_devcontainer(subject(choices=Choices(image="x/y:1", base="debian:12")))
    assert str(refused.value) == (
        "--image 'x/y:1' and --base 'debian:12': accepted is one of them. "
        "An image that was built has its base already; leave --base out, or --image to build one."
    )


def test_who_made_it_and_the_gates_stand_where_tools_keep_their_own() -> None:
    emitted = emit_devcontainer(subject())
    ours = _document(text_of(emitted, PATH))["customizations"]["firstlight"]
    assert ours["plan"] == emitted.digest
    assert ours["gates"]["min_driver_without_compat"] == "580.65.06"
    assert ours["gates"]["compat_branches"] == [535, 550, 565, 570, 575]
    assert "9.0" in ours["gates"]["capabilities"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_says_about_the_machine_reaches_comments_alone(text: str) -> None:
    plain, hostile = emit_devcontainer(subject()), emit_devcontainer(subject(made_for=text))
    assert text_of(plain, PATH) == text_of(hostile, PATH)
    first, second = (text_of(each, ".devcontainer/check_host.sh") for each in (plain, hostile))
    assert [line for line in first.split("\n") if line[:1] != "#"] == [
        line for line in second.split("\n") if line[:1] != "#"
    ]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["name", "image", "base", "user"])
def test_names_that_could_be_more_than_names_are_refused(field: str, text: str) -> None:
    with pytest.raises(BadInput, match=f"--{field}"):
        emit_devcontainer(subject(choices=Choices(**{field: text})))


@pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own, to show another driver")
@pytest.mark.parametrize(
    ("driver", "code", "says"),
    [
        ("580.95.05", 0, ""),
        ("570.133.20", 0, ""),
        ("560.35.03", 1, "driver 560.35.03 is loaded"),
        ("470.82", 1, "470.82"),
    ],
)
def test_the_host_is_checked_before_the_container_is_made(tmp_path: Path, driver: str, code: int, says: str) -> None:
    script = write(emit_devcontainer(subject()), tmp_path) / ".devcontainer/check_host.sh"
    done = under_driver(driver, "sh", str(script), env={"PATH": os.environ["PATH"]})
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stdout == ""


def test_the_check_is_clean_for_shellcheck(tmp_path: Path) -> None:
    script = write(emit_devcontainer(subject()), tmp_path) / ".devcontainer/check_host.sh"
    done = subprocess.run([SHELLCHECK, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
