"""The formats in which a run goes elsewhere, and what was exported as a document (schema firstlight.export/1)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from firstlight.bench.results import RunResult
from firstlight.report.exports_rows import left_out, rows

if TYPE_CHECKING:
    from firstlight.report.documents.measuring import ExportDocument

SCHEMA = "firstlight.export/1"


class Format(enum.Enum):
    """Who reads it."""

    PYTEST_BENCHMARK = "pytest-benchmark"
    GITHUB_ACTION_BENCHMARK = "github-action-benchmark"
    OPENMETRICS = "openmetrics"
    JUNIT = "junit"


# These two say nothing without a figure: the action refuses an empty list, and `compare` prints no table.
NEED_FIGURES = (Format.PYTEST_BENCHMARK, Format.GITHUB_ACTION_BENCHMARK)


def exported(run: RunResult, wanted: Format) -> str:
    """The run in a format; the modules are imported when they are asked for."""
    if wanted is Format.PYTEST_BENCHMARK:
        from firstlight.report.exports_pytest_benchmark import pytest_benchmark

        return pytest_benchmark(run)
    if wanted is Format.GITHUB_ACTION_BENCHMARK:
        from firstlight.report.exports_github_action import github_action_benchmark

        return github_action_benchmark(run)
    if wanted is Format.OPENMETRICS:
        from firstlight.report.exports_openmetrics import openmetrics

        return openmetrics(run)
    from firstlight.report.exports_junit import junit

    return junit(run)


def export_document(run: RunResult, wanted: Format, *, text: str, out: str) -> ExportDocument:
    """The document, schema first; `text` is null where the export went to a file."""
    import hashlib

    return {
        "schema": SCHEMA,
        "made_by": run.tool,
        "run": run.run.id,
        "to": wanted.value,
        "interrupted": run.run.interrupted,
        "cases": len(run.cases),
        "figures": len(rows(run)),
        "left_out": [
            {"id": case.id, "gpu": case.gpu, "verdict": case.verdict.value, "reason": case.reason}
            for case in left_out(run)
        ],
        "out": out or None,
        "bytes": len(text.encode()),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "text": None if out else text,
    }
