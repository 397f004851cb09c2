"""What holds for every test: signals reach the programs that tests start, however this run itself was started."""

from __future__ import annotations

import signal

# A shell without job control starts what runs beside it with Ctrl-C ignored, nohup with hang-ups ignored; every child
# inherits both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
