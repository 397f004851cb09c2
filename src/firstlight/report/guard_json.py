"""A decision of the guard as a document, schema firstlight.guard/1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.guard.call import HOLE
from firstlight.guard.judge import Decision
from firstlight.guard.policy import Policy

if TYPE_CHECKING:
    from firstlight.report.documents.files import GuardDocument

MOST_CALLS = 500


def guard_document(decision: Decision, policy: Policy, *, kind: str, text: str) -> GuardDocument:
    """The document; what only a running shell knows is a ? in it."""
    return {
        "schema": "firstlight.guard/1",
        "firstlight": __version__,
        "decision": "allow" if decision.allowed else "deny",
        "action": {"kind": kind, "text": text[:10_000]},
        "policy": policy.path,
        "mode": policy.mode,
        "denied": [
            {
                "reason": _shown(each.reason),
                "key": each.key,
                "line": each.line,
                "instead": each.instead,
                "command": _shown(each.command),
                "through": list(each.trail),
            }
            for each in decision.denied
        ],
        "read": [
            {
                "words": [_shown(word) for word in call.words],
                "sets": {name: _shown(value) for name, value in call.sets},
                "writes": [_shown(path) for path in call.writes],
                "through": list(call.trail),
                "contained": call.contained,
            }
            for call in decision.calls[:MOST_CALLS]
        ],
    }


def _shown(text: str) -> str:
    return text.replace(HOLE, "?")
