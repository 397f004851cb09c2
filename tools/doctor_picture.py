"""The screen of `firstlight doctor` in a terminal, in colour: docs/images/doctor-screen.svg, from the real output."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "doctor-screen.svg"
ARGV = ("firstlight", "doctor", "--facts", "example:thor-missing-libraries")
COLUMNS = 104
# one text element a row; the reader's own monospaced face, nothing is fetched
FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>firstlight doctor in a terminal</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#292929" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, 20)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def screen() -> str:
    """What the command writes to a terminal of that width, with its colours."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")}
    environ = {**kept, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT / "src")}
    child = subprocess.Popen([sys.executable, "-m", *ARGV], cwd=ROOT, env=environ, stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # what a terminal gives at its end
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    if child.wait() != 1:
        sys.exit(f"{' '.join(ARGV)} ended with {child.returncode}")
    return b"".join(parts).decode().replace("\r\n", "\n")


def picture() -> str:
    """The screen as an SVG."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {' '.join(ARGV)}"))
    console.print(Text.from_ansi(screen()), end="")
    return console.export_svg(title="", code_format=FORMAT, unique_id="doctor")
