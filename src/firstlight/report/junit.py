"""What JUnit files share: text that XML can hold, and the sums that readers expect."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from firstlight.secrets import masked

# What XML 1.0 cannot hold, escaped or not.
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """A text without secrets and without what XML cannot hold."""
    return _NOT_XML.sub("?", masked(text))


def seconds_text(value: float, digits: int) -> str:
    """Without an exponent, which readers of JUnit files do not take."""
    return f"{value:.{digits}f}"


def junit_text(root: ET.Element, *, digits: int) -> str:
    """The document with the sums of each suite; `digits` is how many a time has behind its point."""
    for suite in root:
        _count(suite, digits)
        suite.set("skipped", str(sum(case.find("skipped") is not None for case in suite.iter("testcase"))))
    _count(root, digits)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _count(element: ET.Element, digits: int) -> None:
    """The sums. `skipped` is not among them: the schema of Jenkins refuses it on <testsuites>."""
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for tag in ("failure", "error"):
        element.set(f"{tag}s", str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", seconds_text(sum(float(case.get("time", "0")) for case in cases), digits))
