"""Explain a failure where it happens: `pytest -p firstlight.explain`, `python -m firstlight.explain SCRIPT`.

As a plug-in of pytest it adds the known cause under the traceback of a test that failed, and changes nothing else.
"""

from __future__ import annotations

from typing import Any

_SECTION = "explained by firstlight"


def known_cause(text: str, *, width: int = 88) -> str:
    """What is known of an error text, as `firstlight explain` prints it; '' where nothing is."""
    from firstlight.diagnosis.explain import explain_text
    from firstlight.report.explain_text import explained_text
    from firstlight.secrets import masked

    explained = explain_text(text)
    return masked(explained_text(explained, width=width)) if explained.explanations else ""


def pytest_runtest_logreport(report: Any) -> None:
    """Add a section to the report of a test that failed, where its error is known; pytest prints it at the end."""
    if report.failed and (said := known_cause(report.longreprtext)):
        report.sections.append((_SECTION, said))
