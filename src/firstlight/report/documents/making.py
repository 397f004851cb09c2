"""A document from a record: the type of the document names the keys, the record has them, the codec writes them."""

from __future__ import annotations

from typing import Any, TypeVar

from firstlight import __version__
from firstlight.records import encode

D = TypeVar("D")


def shown(kind: type[D], record: Any, /, **given: Any) -> D:
    """The keys of a type in their order: what is given, else the record's own of that name."""
    assert given.keys() <= kind.__annotations__.keys(), (kind, [*given])
    made: Any = {name: encode(given[name] if name in given else getattr(record, name)) for name in kind.__annotations__}
    return made  # type: ignore[no-any-return]


def headed(kind: type[D], schema: str, record: Any = None, /, **given: Any) -> D:
    """The same as a whole document, which begins with its schema and who made it."""
    return shown(kind, record, schema=schema, made_by=f"firstlight {__version__}", **given)
