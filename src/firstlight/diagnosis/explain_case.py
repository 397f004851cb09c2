"""Which of a row's causes it is, where the text around its line shows that: 'you have 2.1.2+cpu' beside xFormers."""

from __future__ import annotations

import functools
import json
import pkgutil
import re
from dataclasses import replace
from typing import Any

from firstlight.diagnosis.signatures import ONE_OF, Commands, Signature, way_out

CASES = "data/error_cases.json"


def in_case(signature: Signature, text: bytes) -> Signature:
    """The row with what its first case says that the text shows; as it is where the text shows none."""
    cases = _cases().get(signature.code)
    if cases is None:
        return signature
    around = text.decode("utf-8", "replace")
    case = next((each for each in cases if _compiled(each["shown_by"]).search(around)), None)
    return signature if case is None else _told(signature, case)


def _told(signature: Signature, case: dict[str, Any]) -> Signature:
    """The row as a case tells it; what the case does not say is the row's."""
    proof, is_open = case.get("prove"), case.get("one_of", False)
    return replace(
        signature,
        title=case.get("title", signature.title),
        cause=f"{case['cause']} {ONE_OF}" if is_open else case["cause"],
        means=case.get("means", signature.means),
        prove=signature.prove if proof is None else Commands(proof["expect"], tuple(proof["run"])),
        ways_out=tuple(way_out(way, signature.code) for way in case["ways_out"]),
        source=tuple(dict.fromkeys((*case["source"], *signature.source))),
        one_of=is_open,
        fallback=False,
        wraps=False,
    )


@functools.cache
def _cases() -> dict[str, list[dict[str, Any]]]:
    """Code of a row -> its cases, in the order that they are tried."""
    text = pkgutil.get_data("firstlight.diagnosis", CASES)
    assert text is not None, f"{CASES} is not in the package"
    found: dict[str, list[dict[str, Any]]] = {}
    for case in json.loads(text)["rows"]:
        for code in case["of"]:
            found.setdefault(code, []).append(case)
    return found


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
