"""What a text shows beside its line: the GPU that it names, and that it is of another program than a way out is for."""

from __future__ import annotations

import functools
import json
import pkgutil
import re
from dataclasses import replace

from firstlight.diagnosis.signatures import Commands, Signature
from firstlight.frozen import dataclass

SCOPES = "data/error_scopes.json"
_BETWEEN_WORDS = r"[^a-z0-9_.-]+"
_GPU_WORDS = rb"(?i)\b(?:RTX|GTX|GeForce|Tesla|Quadro|TITAN|NVIDIA)\b|\b[ABHVTPLK]\d{2,3}\b"


def gpu_named(signature: Signature, text: bytes) -> str:
    """Compute capability of the GPU that a text names, e.g. '12.0' of an RTX 5090; '' where a row asks for none.

    Also '' where it names none that is known, or several of different capability.
    """
    if not any(way.where_number for way in signature.ways_out) or not re.search(_GPU_WORDS, text):
        return ""
    if "gpu" not in {each.name for each in signature.captures}:
        return ""
    from firstlight.tables import load

    shown = text.decode("utf-8", "replace")
    found = {str(row.capability) for row in load().gpus if re.search(row.pattern, shown)}
    return found.pop() if len(found) == 1 else ""


def in_scope(signature: Signature, text: bytes) -> Signature:
    """The row without ways out that install a program of which the text shows nothing, where it shows another."""
    shown = text.decode("utf-8", "replace").lower()
    for scope in _scopes():
        if not _speaks_of_another(scope, shown) or any(sign in shown for sign in scope.signs):
            continue
        ways = tuple(way for way in signature.ways_out if not any(re.search(scope.installs, line) for line in way.run))
        if ways == signature.ways_out:
            continue
        asked = tuple(line for line in signature.prove.run if not re.search(scope.asks, line))
        prove = Commands(signature.prove.say, asked) if asked else signature.prove
        signature = replace(signature, ways_out=ways or signature.ways_out, prove=prove)
    return signature


def _speaks_of_another(scope: _Scope, shown: str) -> bool:
    words = {word.strip(".-") for word in re.split(_BETWEEN_WORDS, shown)}
    return not scope.others.isdisjoint(words) or any(part in shown for part in scope.others_in)


@dataclass(frozen=True, slots=True)
class _Scope:
    """A program, by patterns of the commands that install it or ask it, its own words, and the words of others."""

    installs: str
    asks: str
    signs: tuple[str, ...]
    others: frozenset[str]
    others_in: tuple[str, ...]


@functools.cache
def _scopes() -> tuple[_Scope, ...]:
    text = pkgutil.get_data("firstlight.diagnosis", SCOPES)
    assert text is not None, f"{SCOPES} is not in the package"
    return tuple(
        _Scope(row["installs"], row["asks"], tuple(row["signs"]), frozenset(row["others"]), tuple(row["others_in"]))
        for row in json.loads(text)["rows"]
    )
