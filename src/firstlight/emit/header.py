"""The lines that open every emitted file: who made it, from which plan, for whom, and what it asks of a machine."""

from __future__ import annotations

from firstlight.emit.document import made_by
from firstlight.emit.not_let_in import not_let_in
from firstlight.emit.subject import Subject


def header_lines(subject: Subject, kind: str) -> tuple[str, ...]:
    """Plain lines, not yet quoted: pass each through quoting.comment before it is written."""
    wants = ", ".join(subject.wants) or "what is installed there"
    return (
        f"Written by {made_by()} (firstlight emit {kind}); the same plan gives the same file.",
        f"plan {subject.plan.digest}",
        f"for: {subject.made_for}; wanted: {wants}; goal: {subject.goal.value}",
        f"inside: {', '.join(subject.requirements)}, and {subject.numpy} where it is available; {subject.target.words}",
        *(f"left out: {each}" for each in subject.left_out),
        *subject.gates.reasons,
        *not_let_in(subject, subject.gates),
    )
