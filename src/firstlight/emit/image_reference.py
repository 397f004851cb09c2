"""Names of images, as registries and every container tool read them."""

from __future__ import annotations

import re

from firstlight.emit.quoting import Quoted
from firstlight.errors import BadInput

# The grammar of github.com/distribution/reference: [domain/]path[:tag][@digest]; a domain may have capitals and a port,
# a path has small letters with . _ __ or dashes between them.
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:(?:{_HOST}|\[[0-9A-Fa-f:]+\])(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*)"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64}|@sha512:[0-9a-f]{128})?"
)
_LONGEST = 255  # letters of domain and path


def image_reference(text: str, *, what: str) -> Quoted:
    """The name of an image, which needs no quoting: python:3.12-slim, or registry.example.com:5000/team/torch:1."""
    found = _REFERENCE.fullmatch(text)
    if found is None or len(found["name"]) > _LONGEST:
        shown = ascii(text if len(text) <= 60 else text[:57] + "...")
        raise BadInput(
            f"{what} {shown}: accepted is the name of an image: [registry/]name[:tag][@sha256:digest], the name in "
            "small letters, e.g. python:3.12-slim-bookworm or registry.example.com/team/torch:1."
        )
    if found["name"] == "scratch":
        raise BadInput(f"{what} {text}: it is empty; accepted is an image that has a shell and glibc, e.g. debian:12.")
    return Quoted(text)
