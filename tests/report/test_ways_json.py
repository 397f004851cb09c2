"""Ways in JSON: each with its type and its arguments."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jsonschema
import pytest

from firstlight.report.ways_json import chain_document, way_document
from firstlight.ways.kinds import InstallWheels, Package, SetUpRepository
from firstlight.ways.way import Way, cannot, chain, type_name
from tests.ways.samples import SAMPLES
from tools.generate import SCHEMAS
from tools.schemas import WAYS


def test_every_type_has_a_name_of_its_own() -> None:
    names = [type_name(kind) for kind in WAYS]
    assert len(set(names)) == len(names) >= 40
    assert type_name(InstallWheels) == "install-wheels"
    assert type_name(SetUpRepository) == "set-up-repository"


def _schema_of_a_way() -> dict[str, Any]:
    schema = json.loads((SCHEMAS / "options-2.json").read_text())
    return {"$schema": schema["$schema"], "$ref": "#/$defs/way", "$defs": schema["$defs"]}


@pytest.mark.parametrize("way", SAMPLES, ids=lambda way: type_name(type(way)))
def test_a_way_fits_the_schema_and_a_way_with_one_argument_less_does_not(way: Way) -> None:
    document = way_document(way)
    validator = jsonschema.Draft202012Validator(_schema_of_a_way())
    validator.validate(document)
    assert set(document) == {"type", *(field.name for field in dataclasses.fields(way))}  # type: ignore[arg-type]
    for name in document:
        less = {key: value for key, value in document.items() if key != name}
        assert not validator.is_valid(less), name


def test_an_install_says_what_from_where() -> None:
    way = InstallWheels((Package("torch", "2.9.0+cu128"),), "https://download.pytorch.org/whl/cu128")
    document = way_document(way)
    assert document.pop("packages")[0].items() >= {"project": "torch", "version": "2.9.0+cu128", "extras": []}.items()
    assert document == {
        "type": "install-wheels",
        "index": "https://download.pytorch.org/whl/cu128",
        "manner": "plain",
        "scratch": "",
    }


def test_an_answer_that_does_not_work_here_says_why() -> None:
    refused = chain_document(cannot("a newer driver", "this is a container"))
    assert (refused["ways"], refused["title"], refused["why_not"]) == ([], "a newer driver", "this is a container")
    assert chain_document(chain(SetUpRepository()))["ways"] == [{"type": "set-up-repository", "name": "nvidia"}]
