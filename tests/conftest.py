"""What holds for every test: Ctrl-C works in the programs that tests start, however this run itself was started."""

from __future__ import annotations

import signal

# A shell without job control starts what runs beside it with Ctrl-C ignored, and every child inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
