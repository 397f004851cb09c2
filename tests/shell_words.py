"""The words that a real shell's parser finds in a command as it was printed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

SHELLS = ("bash", "dash")
_END = "\x01end"


def words_of(shell: str, printed: Sequence[str]) -> list[tuple[str, ...]]:
    """The words of each printed command, all read by one shell."""
    script = "".join(f"printf '%s\\0' {text.strip(' ').rstrip(chr(10))}\nprintf '%s\\0' '{_END}'\n" for text in printed)
    done = subprocess.run([shell], input=script.encode(), capture_output=True, check=True)
    assert done.stderr == b"", done.stderr
    found: list[tuple[str, ...]] = []
    words: list[str] = []
    for word in done.stdout.decode().split("\0")[:-1]:
        if word == _END:
            found.append(tuple(words))
            words = []
        else:
            words.append(word)
    return found
