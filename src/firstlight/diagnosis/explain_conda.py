"""The program of conda's kind that a text is of: commands of conda are written for that one."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.diagnosis.signatures import Commands, Signature

# The exception LibMambaUnsatisfiableError is conda's own, and so is its libmamba solver.
_MICROMAMBA = rb"(?i)\bmicromamba\b"
_MAMBA = rb"(?m)(?<![\w.-])mamba (?:install|create|env|update|repoquery)\b|/bin/mamba\b|\bmambaforge\b|^\s*mamba \(\d"
_CALLED = r"(^|[;&|(] ?|\bsudo )conda (?=(?:install|create|env|search|list|update|remove|run|clean)\b)"


def conda_of(text: bytes) -> str:
    """What such commands are called where the text was made: conda, or mamba and micromamba where it shows them."""
    if re.search(_MICROMAMBA, text):
        return "micromamba"
    return "mamba" if re.search(_MAMBA, text) else "conda"


def with_conda(signature: Signature, program: str) -> Signature:
    """The same answer with commands for that program."""
    if program == "conda":
        return signature
    ways = tuple(replace(way, run=_for(way.run, program)) for way in signature.ways_out)
    return replace(signature, prove=Commands(signature.prove.say, _for(signature.prove.run, program)), ways_out=ways)


def _for(run: tuple[str, ...], program: str) -> tuple[str, ...]:
    return tuple(re.sub(_CALLED, lambda at: f"{at[1]}{program} ", line) for line in run)
