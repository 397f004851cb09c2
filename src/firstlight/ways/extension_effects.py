"""What a change of packages does to what is known of the compiled files beside torch."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.extensions import ExtensionFacts
from firstlight.facts.known import Known, Unknown
from firstlight.ways.paper import NOT_READ

NO_EXTENSIONS = ExtensionFacts(NOT_READ, NOT_READ)


def without_extensions(facts: Facts, changed: set[str]) -> Facts:
    """The files of packages that are changed are others now; after another torch it is open what any of them lacks."""
    found = facts.extensions
    if isinstance(found.files, Unknown) or not changed:
        return facts
    kept = tuple(each for each in found.files.value if each.package not in changed)
    strings = found.torch_strings
    if "torch" in changed:
        kept = tuple(replace(each, lacks_libraries=(), symbols=NOT_READ) for each in kept)
        strings = NOT_READ
    elif kept == found.files.value:
        return facts
    return replace(facts, extensions=ExtensionFacts(strings, Known(kept, found.files.seen_in, found.files.origin)))
