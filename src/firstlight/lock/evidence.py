"""What a proof says of a machine, in the one line that a lock keeps of it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ProvedCheck:
    """How one check of `verify` ended, e.g. gpus, ok."""

    check: str
    outcome: str


def digest_of_proof(outcomes: Iterable[ProvedCheck]) -> str:
    """The SHA-256 over checks and how they ended: two proofs of the same give the same, whatever they took."""
    rows = sorted([each.check, each.outcome] for each in outcomes)
    return f"sha256:{hashlib.sha256(json.dumps(rows, separators=(',', ':')).encode()).hexdigest()}"
