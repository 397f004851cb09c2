"""Explain a failure where it happens: `pytest -p firstlight.explain`, `python -m firstlight.explain SCRIPT`.

As a plug-in of pytest it adds the known cause under the traceback of a test that failed, and changes nothing else.
"""

from __future__ import annotations

import sys
from typing import Any

from firstlight import CallablePackage

sys.modules[__name__].__class__ = CallablePackage  # firstlight.explain() is firstlight.api.explain()

_SECTION = "explained by firstlight"
_MARK = "E  "
# How pytest begins what it says of a comparison: an assert, or pytest.raises(match=...).
_COMPARISONS = (
    "assert ",
    "AssertionError: assert ",
    "AssertionError: Regex pattern did not match",
    "AssertionError: Expected",
)


def known_cause(text: str, *, width: int = 88) -> str:
    """What is known of an error text, as `firstlight explain` prints it; '' where nothing is."""
    from firstlight.diagnosis.explain import explain_text
    from firstlight.report.explain_text import explained_text
    from firstlight.secrets import masked

    explained = explain_text(text)
    return masked(explained_text(explained, width=width)) if explained.explanations else ""


def pytest_runtest_logreport(report: Any) -> None:
    """Add a section to the report of a test that failed, where its error is known; pytest prints it at the end."""
    _explain(report)


def pytest_collectreport(report: Any) -> None:
    """The same where a file of tests could not be imported."""
    _explain(report)


def _explain(report: Any) -> None:
    if report.failed and (said := known_cause(_messages(report.longrepr))):
        report.sections.append((_SECTION, said))


def _messages(shown: Any) -> str:
    """What the exceptions of a report say, those of a chain in order: neither source lines nor what was expected."""
    chain = getattr(shown, "chain", None) or ((None, getattr(shown, "reprcrash", None), None),)
    said = [_without_comparison(crash.message) for _, crash, _ in chain if crash is not None]
    if getattr(getattr(shown, "reprtraceback", None), "style", "") == "native":  # the chain is one text then
        said = [line for line in str(shown).splitlines() if line.strip() == line and not line.startswith(_COMPARISONS)]
    if not said:  # text alone, as of a file that cannot be imported: pytest marks what the exception says
        lines = str(getattr(shown, "longrepr", shown)).splitlines()
        said = [line.removeprefix(_MARK).strip() for line in lines if line.startswith(_MARK)]
    return "\n".join(said)


def _without_comparison(message: str) -> str:
    """An exception's words without pytest's own, which quote what the test wants."""
    lines = message.splitlines()
    own = next((number for number, line in enumerate(lines) if line.startswith(_COMPARISONS)), len(lines))
    return "\n".join(lines[:own])
