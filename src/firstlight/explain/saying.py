"""What is said of a command that failed: the known cause, or that the end of its output holds none."""

from __future__ import annotations

import io
import signal

from firstlight.diagnosis.explain import explain_stream
from firstlight.explain.watching import Ended
from firstlight.numerals import counted
from firstlight.report.explain_text import explained_text, told_most
from firstlight.secrets import masked

_NOT_STARTED = (126, 127)
_WISHED_FOR = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def why_it_failed(ended: Ended, width: int) -> str:
    """The explanation for a screen; '' where the command was never started, or somebody ended it."""
    if -ended.status in _WISHED_FOR:
        return ""
    explained = explain_stream(io.BytesIO(ended.tail))
    if explained.explanations:
        return masked("\n" + explained_text(explained, width=width))
    if ended.status in _NOT_STARTED:
        return ""
    how = f"signal {-ended.status}" if ended.status < 0 else f"exit code {ended.status}"
    if not ended.tail:
        return f"firstlight: {how}, and it printed nothing\n"
    what = f"the last {counted(explained.lines, 'line')}" if ended.is_cut else counted(explained.lines, "line")
    return f"firstlight: {how}; no error that is known is in {what} of output\n" + masked(told_most(explained, width))
