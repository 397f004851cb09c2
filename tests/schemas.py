"""A document held against a schema of ours. That it is a schema is shown once, in test_generated.py: it takes 60 ms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def fits(document: Any, schema: Mapping[str, Any]) -> None:
    """ValidationError where it does not."""
    assert schema["$schema"] == _DRAFT
    jsonschema.Draft202012Validator(schema).validate(document)
