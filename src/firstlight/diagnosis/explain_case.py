"""Which of a row's causes it is, where the text around its line shows that: 'you have 2.1.2+cpu' beside xFormers."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

from firstlight.diagnosis.signatures import Signature


def in_case(signature: Signature, text: bytes) -> Signature:
    """The row with what its first case says that the text shows; as it is where the text shows none."""
    if not signature.cases:
        return signature
    around = text.decode("utf-8", "replace")
    case = next((each for each in signature.cases if _compiled(each.shown_by).search(around)), None)
    if case is None:
        return signature
    return replace(
        signature,
        title=case.title or signature.title,
        cause=case.cause,
        means=case.means or signature.means,
        prove=case.prove or signature.prove,
        ways_out=case.ways_out,
        source=tuple(dict.fromkeys((*case.source, *signature.source))),
        one_of=case.one_of,
        fallback=False,
        wraps=False,
    )


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
