"""A decision of the guard in words: the reason, the line of the policy, what is open; and how an action was read."""

from __future__ import annotations

import shlex

from firstlight.guard.call import HOLE
from firstlight.guard.judge import Decision
from firstlight.guard.policy import Policy
from firstlight.visible import one_line

MOST = 5  # reasons on a screen


def deny_text(decision: Decision, policy: Policy) -> str:
    """Why an action is denied, for stderr; commands stand alone on their line."""
    lines = []
    for denied in decision.denied[:MOST]:
        through = f" (through {', '.join(denied.trail)})" if denied.trail else ""
        lines.append(f"firstlight guard: denied: {one_line(denied.reason)}{one_line(through)}")
        lines.append(f"  policy: {policy.path}:{denied.line} {denied.key}" if denied.line else f"  rule: {denied.key}")
        lines.append(f"  instead: {denied.instead}")
        if denied.command:
            lines.append(f"    {one_line(denied.command)}")
    if len(decision.denied) > MOST:
        lines.append(f"  and {len(decision.denied) - MOST} more reasons: firstlight guard --json lists them")
    return "\n".join(lines) + "\n"


def why_text(decision: Decision) -> str:
    """How an action was read: one line for each program that would run."""
    if not decision.calls:
        return "firstlight guard: nothing of it was read as a command\n"
    lines = ["firstlight guard: read as"]
    for call in decision.calls:
        words = " ".join("?" if word == HOLE else shlex.quote(word.replace(HOLE, "?")) for word in call.words)
        sets = "".join(f"{name}={value.replace(HOLE, '?')} " for name, value in call.sets)
        into = "".join(f" > {path.replace(HOLE, '?')}" for path in call.writes)
        through = f"   through {', '.join(call.trail)}" if call.trail else ""
        lines.append(one_line(f"  {sets}{words}{into}{through}"[:400]))
    return "\n".join(lines) + "\n"
