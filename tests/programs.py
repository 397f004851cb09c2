"""Programs that the test tools bring along: beside the interpreter, not always on PATH."""

from __future__ import annotations

import sys
from pathlib import Path

SHELLCHECK = str(Path(sys.executable).with_name("shellcheck"))
