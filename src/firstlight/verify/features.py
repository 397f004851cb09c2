"""The feature table: what the child found, held against what the rows know. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from firstlight.tables.feature_lookups import features
from firstlight.tables.feature_rows import Feature
from firstlight.verify.check import (
    Answer,
    Case,
    Check,
    CheckOutcome,
    Evidence,
    FeatureResult,
    FeatureState,
    Result,
)
from firstlight.verify.judges import as_said

_STATES = {
    "works": FeatureState.WORKS,
    "built": FeatureState.COMPILED,
    "not built": FeatureState.NOT_BUILT,
    "broken": FeatureState.BROKEN,
    "absent": FeatureState.NOT_INSTALLED,
    "refused": FeatureState.NOT_ON_GPU,
    "unseen": FeatureState.NOT_LOOKED_AT,
}


def feature_table(answer: Answer | None) -> tuple[FeatureResult, ...]:
    """One row per feature; without an answer no row claims anything but that a thing does not exist."""
    more: dict[str, Any] = {} if answer is None or answer.outcome is not CheckOutcome.OK else answer.more
    found: dict[str, list[str]] = more.get("features", {})
    capability = tuple(more.get("capability", []))
    return tuple(_row(row, found.get(row.feature), capability) for row in features())


def _row(row: Feature, found: list[str] | None, capability: tuple[int, ...]) -> FeatureResult:
    state, saw = _state(row, found, capability)
    return FeatureResult(row.feature, row.title, state, saw, row.is_so, f"{row.source} ({row.confidence.value})")


def _state(row: Feature, found: list[str] | None, capability: tuple[int, ...]) -> tuple[FeatureState, str]:
    if not row.exists:
        contradicted = found is not None and found[0] in ("built", "works")
        if contradicted:  # a torch newer than the row may have it after all
            assert found is not None
            return FeatureState.COMPILED, f"{found[1]}, against the table's row"
        return FeatureState.NO_SUCH_THING, found[1] if found is not None and found[0] == "not built" else ""
    if found is None:
        return FeatureState.NOT_LOOKED_AT, ""
    state = _STATES.get(found[0], FeatureState.NOT_LOOKED_AT)
    least = row.least_capability
    if least is not None and capability and capability < (least.major, least.minor) and found[0] != "not built":
        here = f"{capability[0]}.{capability[1]}"
        return FeatureState.NOT_ON_GPU, f"needs capability {least}, this GPU has {here}; {found[1]}"
    return state, found[1]


def judge_features(check: Check, answer: Answer, case: Case, done: dict[str, Answer]) -> Result:
    """Fails where a feature is in this build and made for this GPU, and yet does not work."""
    result = as_said(check, answer)
    if answer.outcome is not CheckOutcome.OK:
        return result
    table = feature_table(answer)
    counts = [
        f"{count} {state.value}" for state in FeatureState if (count := sum(row.state is state for row in table)) > 0
    ]
    evidence = tuple(Evidence(row.feature, f"{row.state.value}: {row.saw}") for row in table)
    faults = [f"{row.title}: {row.saw}" for row in table if row.state is FeatureState.BROKEN]
    if faults:
        advice = ("Run the check that proves it alone, e.g. firstlight verify --only sdpa, for its evidence.",)
        return replace(result, outcome=CheckOutcome.FAILED, says="; ".join(faults), do=advice, evidence=evidence)
    return replace(result, says=f"{len(table)} looked at: {', '.join(counts)}", evidence=evidence)
