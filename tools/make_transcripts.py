"""Play command lines and keep all they print, to be read by people and compared by tests.

python -m tools.make_transcripts
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "transcripts"
DOCTOR = (
    "h100-driver-570",
)  # fmt: skip
TRANSCRIPTS = {
    **{f"doctor-{name}": f"firstlight doctor --facts tests/machines/{name}" for name in DOCTOR},
    "facts-h100-driver-570": "firstlight facts --facts example:h100-driver-570",
    "help": "firstlight --help",
    "facts-help": "firstlight facts --help",
    "bad-verb": "firstlight docter",
    "bad-option": "firstlight facts --jsn",
    "bad-set": "firstlight facts --facts example:h100-driver-570 --set driver=new",
    "bad-file": "firstlight facts --facts no-such-file.json",
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        if path.stem not in TRANSCRIPTS:
            path.unlink()
    for name in TRANSCRIPTS:
        (FOLDER / f"{name}.txt").write_text(played(name))
    print(f"wrote {len(TRANSCRIPTS)} transcripts")


def stored(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text()


def played(name: str) -> str:
    """The command line, what it prints on both streams, and its exit code."""
    line = TRANSCRIPTS[name]
    argv = [sys.executable, "-m", *shlex.split(line)]
    environ = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        argv, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return f"$ {line}\n{done.stdout}[exit {done.returncode}]\n"


if __name__ == "__main__":
    main()
