"""Text from outside as a terminal may have it: what would move, hide, colour or reorder is spelled out."""

from __future__ import annotations

import re
import unicodedata

# Letters that take no room though Unicode counts them as printable: what follows looks like what it is not.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")


def visible(text: str) -> str:
    """The text with every control made visible: ESC is \\x1b, U+202E is \\u202e; lines and tabs stay."""
    if text.isprintable() and _UNSEEN.isdisjoint(text):
        return text
    return "".join(letter if letter in "\n\t" else _seen(letter) for letter in text)


def one_line(text: str) -> str:
    """The same for what is one line by its nature, e.g. a title: line ends are spelled out too."""
    return re.sub(r"[\n\t]", lambda match: ascii(match[0])[1:-1], visible(text))


def _seen(letter: str) -> str:
    if letter.isprintable() and letter not in _UNSEEN:
        return letter
    if unicodedata.category(letter) == "Zs":  # a space that does not break, a wide one
        return letter
    if "\x7f" <= letter <= "\xff":  # as JSON spells it: inside a document it still means the same letter
        return f"\\u{ord(letter):04x}"
    return ascii(letter)[1:-1]
