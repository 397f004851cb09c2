"""A class that was locked as a JSON document (schema firstlight.lock/1)."""

from __future__ import annotations

from typing import Any

from firstlight import __version__
from firstlight.lock.stack import LockedClass
from firstlight.lock.writing import SCHEMA, digest_of
from firstlight.records import encode


def lock_document(locked: LockedClass, *, file: str) -> dict[str, Any]:
    """The document, schema first: the file, the class with its facts, and the digest that the file has of it."""
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "file": file,
        "digest": digest_of(locked),
        **encode(locked),
    }
