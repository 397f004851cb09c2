"""The data inside a report: written so that no value can end the element, and read back from the file."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from firstlight.bench.read_whole import FILE_LIMIT, bytes_of, shown_path
from firstlight.errors import BadInput
from firstlight.report.html.markup import Markup, joined
from firstlight.secrets import masked

_PLAIN_BELOW = 64 << 10  # larger documents are packed: a run of 97 cases is 390 kB plain, 140 kB packed
_ACCEPTED = "a report that `firstlight bench report`, `doctor --html`, `libs --html` or `handover` wrote"
_PLAIN, _PACKED = "application/json", "application/x-json-zlib-base64"
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_FOUND = re.compile(
    rf'<script class="firstlight-data" type="({re.escape(_PLAIN)}|{re.escape(_PACKED)})">([^<]*)</script>'
)


def embed(documents: Sequence[Mapping[str, Any]]) -> Markup:
    """One script element of data per document; browsers do not run them."""
    return joined(_element(document) for document in documents)


def documents_in(text: str, where: str) -> tuple[dict[str, Any], ...]:
    """The documents of a report, in the order they were put in."""
    found = [_document(kind, body, where) for kind, body in _FOUND.findall(text)]
    if not found:
        raise BadInput(f"{where}: no data of firstlight is in it; accepted: {_ACCEPTED}")
    return tuple(found)


def read_documents(path: str) -> tuple[dict[str, Any], ...]:
    """The documents of a report on disk."""
    raw = bytes_of(path, accepted=_ACCEPTED, what="a report of firstlight")
    return documents_in(raw.decode("utf-8", errors="replace"), shown_path(path))


def _element(document: Mapping[str, Any]) -> Markup:
    text = masked(json.dumps(document, separators=(",", ":"), allow_nan=False))
    if len(text) < _PLAIN_BELOW:
        kind, body = _PLAIN, "".join(_UNSAFE.get(character, character) for character in text)
    else:
        kind, body = _PACKED, base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")
    return Markup(f'<script class="firstlight-data" type="{kind}">{body}</script>\n')


def _document(kind: str, body: str, where: str) -> dict[str, Any]:
    try:
        text = body if kind == _PLAIN else _unpacked(body, where)
        document = json.loads(text)
    except (ValueError, zlib.error, binascii.Error, RecursionError):
        raise BadInput(f"{where}: the data in it is damaged; was the file cut short or edited?") from None
    if not isinstance(document, dict):
        raise BadInput(f"{where}: the data in it is not a document of firstlight")
    return document


def _unpacked(body: str, where: str) -> str:
    """The packed text, never more than a result file may hold: a small file can unpack to a very large one."""
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(base64.b64decode(body, validate=True), FILE_LIMIT)
    if not unpacker.eof:
        raise BadInput(f"{where}: the data in it is cut short, or larger than {FILE_LIMIT >> 20} MiB")
    return raw.decode("utf-8")
