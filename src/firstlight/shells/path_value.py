"""A search path as a shell file writes it: cut at its colons and put together without a folder, quotes and all."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Mapping

from firstlight.frozen import dataclass
from firstlight.shells.words import after_piece

_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))|\{\$(\w+)\}")
_LITERAL_DOLLAR = "\x00"  # a $ in single quotes leads nowhere


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of an element: where it stands, and its text without quotes."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Element:
    """What stands between two colons, e.g. $CUDA_HOME/compat."""

    start: int
    end: int
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Names:
    """What a value may name: the folders to take out, the variable itself, and what others are known to be."""

    folders: tuple[str, ...]
    itself: str  # LD_LIBRARY_PATH
    known: Mapping[str, str | None]  # None: more than one value is possible

    def resolved(self, text: str) -> str:
        """The text with the variables that are known put in: /usr/local/cuda/compat of $CUDA_HOME/compat."""

        def put_in(match: re.Match[str]) -> str:
            return self.known.get(match[1] or match[2] or match[3]) or match[0]

        home = self.known.get("HOME")
        if home and (text == "~" or text.startswith("~/")):
            text = home + text[1:]
        return _REFERENCE.sub(put_in, text)

    def is_folder(self, text: str) -> bool:
        return bool(text) and self.resolved(text).rstrip("/") in self.folders

    def has_folder(self, text: str) -> bool:
        """Whether a folder is one of the elements that the text comes to."""
        return any(part.rstrip("/") in self.folders for part in re.split(r"[:;=\s\"'()]", self.resolved(text)))

    def is_itself(self, text: str) -> bool:
        """$LD_LIBRARY_PATH and the forms that come to the same."""
        name = self.itself
        plain = rf"\$(?:{name}(?:\[@\])?|\{{{name}(?:\[@\])?(?::?-)?\}})|\{{\${name}\}}"
        if_set = rf"\$\{{{name}:?\+:?\$(?:{name}|\{{{name}\}}):?\}}"
        return re.fullmatch(f"{plain}|{if_set}", text.strip("\r")) is not None

    def hangs_before(self, text: str) -> bool:
        """${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}, which brings its own colon."""
        return self.is_itself(text) and "+" in text and text.endswith(":}")

    def hangs_behind(self, text: str) -> bool:
        """${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}."""
        return self.is_itself(text) and re.search(r"\+:\$", text) is not None


class Hold(enum.Enum):
    """What becomes of an element."""

    STAYS = "stays"
    GOES = "goes"
    HANGS_BEFORE = "hangs-before"  # the folder goes, what hung before it hangs before the next one
    HANGS_BEHIND = "hangs-behind"


@dataclass(frozen=True, slots=True)
class Shortened:
    """A value without the folders: the text, whether any was in it, and what is left of it."""

    text: str
    changed: bool
    left: tuple[str, ...]  # elements that say something, e.g. ("/b", "$LD_LIBRARY_PATH")


def elements_of(raw: str) -> tuple[Element, ...]:
    """The parts between colons; a colon inside ${...}, $(...) or `...` does not part."""
    elements: list[Element] = []
    pieces: list[Piece] = []
    at, start, quote = 0, 0, ""
    while at < len(raw):
        character = raw[at]
        if character == quote or (not quote and character in "\"'" and raw[at - 1 : at] != "$"):
            quote = "" if quote else character
            at += 1
        elif character == ":":
            elements.append(Element(start, at, tuple(pieces)))
            pieces, at = [], at + 1
            start = at
        else:
            piece = _piece(raw, at, quote)
            pieces.append(piece)
            at = piece.end
    elements.append(Element(start, len(raw), tuple(pieces)))
    return tuple(elements)


def _piece(raw: str, at: int, quote: str) -> Piece:
    """One character as it is meant, or one expansion as it stands."""
    character = raw[at]
    if quote == "'":
        return Piece(at, at + 1, _LITERAL_DOLLAR if character == "$" else character)
    if character == "\\" and at + 1 < len(raw):
        meant = "" if raw[at + 1] == "\n" else raw[at + 1]
        kept = "\\" if quote and raw[at + 1] not in '$`"\\\n' else ""
        return Piece(at, at + 2, kept + (_LITERAL_DOLLAR if meant == "$" else meant))
    if character == "$" and (match := re.compile(r"\$\w+").match(raw, at)):
        return Piece(at, match.end(), match[0])
    end = after_piece(raw, at, quotes="" if quote else "'\"") if character in "$`" else at + 1
    return Piece(at, end, raw[at:end])


def shortened(raw: str, names: Names) -> Shortened:
    """The value without the folders; what hangs on a folder that goes hangs on its neighbour then."""
    elements = elements_of(raw)
    held: list[Hold] = []
    left: list[str] = []
    gone: set[int] = set()
    for element in elements:
        before, folder, behind = _parted(element, names)
        if not names.is_folder("".join(piece.text for piece in folder)):
            held.append(Hold.STAYS)
            left += [element.text] if element.text.strip("\r") else []
            continue
        held.append(Hold.HANGS_BEFORE if before else Hold.HANGS_BEHIND if behind else Hold.GOES)
        left += [piece.text for piece in (*before, *behind)]
        for piece in folder:
            gone.update(range(piece.start, piece.end))
    if not gone:
        return Shortened(raw, changed=False, left=tuple(left))
    stay = [number for number, each in enumerate(held) if each is not Hold.GOES]
    if stay and len(stay) > 1 and (held[stay[0]] is Hold.HANGS_BEHIND or held[stay[-1]] is Hold.HANGS_BEFORE):
        return Shortened(raw, changed=False, left=tuple(left))  # it would begin or end with a colon
    gone.update(element.end for element in elements[:-1])
    for one, other in itertools.pairwise(stay):
        if held[one] is not Hold.HANGS_BEFORE and held[other] is not Hold.HANGS_BEHIND:
            gone.discard(elements[one].end)
    return Shortened(_cut(raw, gone), changed=True, left=tuple(left))


def _parted(element: Element, names: Names) -> tuple[tuple[Piece, ...], tuple[Piece, ...], tuple[Piece, ...]]:
    """What hangs before the folder, the folder, what hangs behind it; \\r at the end of a line is no part of it."""
    pieces = tuple(piece for piece in element.pieces if piece.text != "\r")
    first = 1 if pieces and names.hangs_before(pieces[0].text) else 0
    last = len(pieces) - (1 if len(pieces) > first and names.hangs_behind(pieces[-1].text) else 0)
    return pieces[:first], pieces[first:last], pieces[last:]


def _cut(raw: str, gone: set[int]) -> str:
    """The text without those characters; pairs of quotes that then hold nothing go too."""
    kept = "".join(character for at, character in enumerate(raw) if at not in gone)
    return re.sub(r"(?<![\\\"'])(?:\"\"|'')(?![\"'])", "", kept)
