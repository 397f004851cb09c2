"""Error text or a whole log -> what caused it, a command that proves it, ways out. Pure: it reads what it is given."""

from __future__ import annotations

import io
import itertools
import re
from dataclasses import field, replace
from typing import BinaryIO

from firstlight.diagnosis.explain_case import in_case
from firstlight.diagnosis.explain_conda import conda_of, with_conda
from firstlight.diagnosis.explain_cut import completions
from firstlight.diagnosis.explain_lookup import code_alone, looked_up
from firstlight.diagnosis.explain_match import Hit, anchors, hits, is_wrapper, signatures_of
from firstlight.diagnosis.explain_program import in_program
from firstlight.diagnosis.explain_python import python_of, with_dll, with_python
from firstlight.diagnosis.explain_scan import PASTED_BYTES, Passed, Readable, Spot, Told, scan
from firstlight.diagnosis.explain_setting import Setting, in_setting, setting_of
from firstlight.diagnosis.explain_shown import gpu_named, in_scope
from firstlight.diagnosis.explain_telling import is_telling
from firstlight.diagnosis.signatures import Commands, Signature, WayOut, filled, filled_command
from firstlight.frozen import dataclass
from firstlight.secrets import masked

DIFFERENT_SIGHTINGS = 5  # kept per signature; further ones are only counted
SAME_MESSAGE_LINES = 12  # another form of one signature this close belongs to the same message (torch prints several)
SHOWN_CHARACTERS = 150
GENERAL_DEPTH = 97  # from here on a row says only what kind of failure it was: a code of CUDA, a crash
ARGUMENTS = (("PACKAGE", "package"), ("MODULE", "module"), ("CAPABILITY", "gpu"))  # a command's word, and who knows it
_ARGUMENT = re.compile(r"[A-Za-z0-9][\w.-]*")
_BUILD_OF_CONDA = re.compile(r"[\w.-]+-\d[\w.]*-\w+")  # cudatoolkit-11.0.3-h15472ef_6 is no name to ask for
ENDED = "process-ended"  # the family of rows that know only the signal
OF_ANY_PROGRAM = ("python", "pytorch")  # whose words programs of every kind end in
CAUSE_DEPTH = 95  # from here on a row may be a part that is missing and not needed


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where a signature was seen first with these values, e.g. line 3, 'libcudss.so.0: cannot open ...', 2 times."""

    line: int
    text: str
    count: int
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A signature that was found, its texts filled in with what the log says, and where."""

    signature: Signature
    count: int
    sightings: tuple[Sighting, ...]

    @property
    def first_line(self) -> int:
        return self.sightings[0].line


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything recognised, most basic cause first; where nothing is, `last_error` is the line that tells most."""

    explanations: tuple[Explanation, ...]
    lines: int
    size_bytes: int
    last_error: tuple[Sighting, ...]


def explain_text(text: str) -> Explained:
    """What is known of an error text, e.g. of 'The NVIDIA driver on your system is too old (found version 12040)'."""
    return explain_stream(io.BytesIO(text.encode("utf-8", "replace")))


def explain_given(text: str) -> Explained:
    """As explain_text; a text that is an error code and nothing else is known too: 'error 46', cudaErrorNoDevice."""
    explained = explain_text(text)
    if explained.explanations:
        return explained
    shown = _shown(text, 0, 0)
    for known in signatures_of(code_alone(text)):
        filled_in = _filled_in(
            known.signature, {**{f"{name}s": value for name, value in known.values}, **dict(known.values)}
        )
        sighting = Sighting(1, shown, 1, known.values)
        return replace(explained, explanations=(Explanation(filled_in, 1, (sighting,)),), last_error=())
    return explained


def explain_stream(stream: BinaryIO) -> Explained:
    """What is known of a log; memory does not grow with its length. Of a short one lines may be cut at their end."""
    kept = _Kept(stream)
    explained = _explained(kept)
    return explained if explained.explanations else _with_ends(explained, kept.text())


class _Kept:
    """A stream that keeps what was read from it while that is no more than is pasted."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._data = b""
        self._short = True

    def read(self, size: int) -> bytes:
        piece = self._stream.read(size)
        self._short = self._short and len(self._data) + len(piece) <= PASTED_BYTES
        self._data = self._data + piece if self._short else b""
        return piece

    def text(self) -> str:
        """All of it; '' where it is longer."""
        return self._data.decode("utf-8", "replace")


def _with_ends(explained: Explained, text: str) -> Explained:
    """What is known of a text once a line that was cut has its end; as before where that could be several things."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found: dict[tuple[str, ...], Explained] = {}
        for end in completions(line):
            whole = _explained(io.BytesIO("\n".join((*lines[:number], line.rstrip() + end)).encode("utf-8", "replace")))
            if whole.explanations:
                found.setdefault(tuple(each.signature.code for each in whole.explanations), whole)
        if len(found) == 1:
            [whole] = found.values()
            cut = tuple(_as_cut(each, _shown(line, 0, len(line))) for each in whole.explanations)
            return replace(explained, explanations=cut, last_error=())
    return explained


def _as_cut(explanation: Explanation, line: str) -> Explanation:
    """The explanation with the line as it stands in the text."""
    return replace(explanation, sightings=tuple(replace(each, text=line) for each in explanation.sightings))


def _explained(stream: Readable) -> Explained:
    tallies: dict[str, _Tally] = {}
    lines = size = 0
    told = Told()
    for item in scan(stream, anchors()):
        if isinstance(item, Passed):
            lines, size = item.line_ends + item.open_line, item.size_bytes
            told = item.told
            continue
        for hit in hits(item):
            if hit.signature.code not in tallies:
                around = item.surroundings()
                row = in_scope(in_program(in_case(hit.signature, around), around, at=item.place()), around)
                row = with_conda(row, conda_of(around))
                tallies[hit.signature.code] = _Tally(row, setting_of(around), python_of(around), gpu_named(row, around))
            tallies[hit.signature.code].add(hit)
    causes = _causes(tallies)
    telling = () if _settles(causes) else _most_telling(causes, told)
    if telling and is_telling(telling[0].text()) and telling[0].line > _end_of(causes):
        causes = []
    found = sorted((tally.explanation() for tally in causes), key=_most_basic_first)
    errors = () if found else tuple(Sighting(spot.line, _shown(spot.text(), 0, 0), 1, ()) for spot in telling)
    return Explained(tuple(found), lines, size, errors)


def _causes(tallies: dict[str, _Tally]) -> list[_Tally]:
    """The causes among what was found, without what only follows from one of them.

    What says only that something failed, what kind of failure it was, or what a message reads like, is left out where
    a cause is known.
    """
    found = [tally for tally in tallies.values() if not tally.signature.follows & tallies.keys()]
    causes = [tally for tally in found if not tally.signature.wraps]
    named = [tally for tally in causes if tally.signature.depth < GENERAL_DEPTH]
    sure = [tally for tally in named if tally.signature.depth < CAUSE_DEPTH and not tally.signature.witness]
    if not _answers(sure):
        return causes or found
    if not _answers([tally for tally in sure if not _is_guess(tally)]):
        return named
    return [tally for tally in named if not _is_guess(tally)]


def _is_guess(tally: _Tally) -> bool:
    """Whether it knows only what kind of message of Python's or torch's it is: 'No module named ...'."""
    row = tally.signature
    return row.fallback and row.one_of and row.product in OF_ANY_PROGRAM


def _answers(causes: list[_Tally]) -> bool:
    """Whether one of them is a cause: a wrapper, or a note that harms nothing, is no answer to an unknown error."""
    return not all(tally.signature.not_a_fault or tally.signature.wraps for tally in causes)


def _settles(causes: list[_Tally]) -> bool:
    """Whether one of them is an answer that an unknown error in the same text does not take away."""
    return _answers([tally for tally in causes if tally.signature.family != ENDED])


def _end_of(causes: list[_Tally]) -> int:
    """The last line that says by what signal the program was ended: an error behind it is another one; 0 for none."""
    ended = (tally for tally in causes if tally.signature.family == ENDED and not tally.signature.wraps)
    return max((line for tally in ended for line in tally.lines()), default=0)


def _most_telling(causes: list[_Tally], told: Told) -> tuple[Spot, ...]:
    """The line that tells most of an error that nobody knows, and is not the line of a wrapper or a note itself."""
    named = {line for tally in causes for line in tally.lines()}
    others = (spot for spot in told.candidates() if spot.line not in named and not is_wrapper(spot.text()))
    return tuple(itertools.islice(others, 1))


@dataclass(slots=True)
class _Tally:
    """Counts the hits of one signature while the log goes by; bounded."""

    signature: Signature
    setting: Setting  # of the lines around the first hit
    python: str  # the program's own, of the same lines
    gpu: str  # the capability of the GPU that they name
    count: int = 0
    quoted_only: bool = True
    last: tuple[Hit, ...] = ()
    sightings: list[Sighting] = field(default_factory=list)

    def add(self, hit: Hit) -> None:
        if self.quoted_only and not hit.quoted:
            self.quoted_only, self.count, self.last = False, 0, ()
            self.sightings.clear()
        elif hit.quoted and not self.quoted_only:
            return
        same_message = any(hit.regex != last.regex and hit.line - last.line <= SAME_MESSAGE_LINES for last in self.last)
        if same_message:
            values = dict(hit.values) | dict(self.sightings[-1].values)
            self.sightings[-1] = replace(self.sightings[-1], values=tuple(values.items()))
            return
        self.last = (hit,)
        self.count += 1
        for index, seen in enumerate(self.sightings):
            if seen.values == hit.values:
                self.sightings[index] = replace(seen, count=seen.count + 1)
                return
        if len(self.sightings) < DIFFERENT_SIGHTINGS:
            text = _shown(hit.match.string, hit.match.start(), hit.match.end())
            self.sightings.append(Sighting(hit.line, text, 1, hit.values))

    def lines(self) -> set[int]:
        """The lines that it is known to stand on: the first of each sighting, and the last of all."""
        return {*(sighting.line for sighting in self.sightings), *(hit.line for hit in self.last)}

    def explanation(self) -> Explanation:
        every: dict[str, dict[str, None]] = {}
        for name, value in (pair for sighting in self.sightings for pair in sighting.values):
            every.setdefault(name, {})[value] = None
        values = {"gpu": self.gpu} if self.gpu else {}
        values |= {name: next(iter(seen)) for name, seen in every.items()}
        values |= {f"{name}s": ", ".join(seen) for name, seen in every.items() if f"{name}s" not in every}
        told = with_dll(in_setting(_filled_in(self.signature, values), self.setting), values)
        return Explanation(with_python(told, self.python, self.setting), self.count, tuple(self.sightings))


def _filled_in(signature: Signature, captured: dict[str, str]) -> Signature:
    values = {each.name: each.otherwise for each in signature.captures} | captured
    values |= looked_up(signature.lookup, captured)
    theirs = {name: value for name, value in captured.items() if values[name] == value}
    unread = {each.name: each.otherwise for each in signature.captures if each.name not in captured}
    in_commands = values | {name: name.upper() for name, otherwise in unread.items() if _is_prose(otherwise)}

    def fill(commands: Commands) -> Commands:
        safe = (filled(filled_command(_with_arguments(each, theirs), theirs), in_commands) for each in commands.run)
        lines = (line for each in safe for line in each.splitlines())
        return Commands(filled(commands.say, values), tuple(lines))

    def fill_way(way: WayOut) -> WayOut:
        told = fill(way)
        return replace(way, say=told.say, run=told.run, when=filled(way.when, values))

    ways = (way for way in signature.ways_out if _is_for(way, values.get("number") or values.get("gpu", "")))
    return replace(
        signature,
        cause=" ".join(filled(signature.cause, values).split()),
        means=filled(signature.means, values),
        prove=fill(signature.prove),
        ways_out=tuple(map(fill_way, ways)),
    )


def _is_prose(otherwise: str) -> bool:
    """Whether what stands for a value that no line names is of no use in a command: 'A compiled module', '?'."""
    return otherwise == "?" or " " in otherwise


def _with_arguments(command: str, captured: dict[str, str]) -> str:
    """A command that asks for what the text names: 'pip install PACKAGE' where a package was read out of it."""
    for word, name in ARGUMENTS:
        value = captured.get(name, "")
        if _ARGUMENT.fullmatch(value) and not value.endswith(".so") and not _BUILD_OF_CONDA.fullmatch(value):
            command = re.sub(rf"(?<![\w-]){word}(?![\w.-]*\.so)\b", "{" + name + "}", command)
    return command


def _is_for(way: WayOut, number: str) -> bool:
    """Whether a way out is for this error code, or this GPU (12.0); for one that is not known each is."""
    is_known = bool(way.where_number) and number.replace(".", "").isdigit()
    return not is_known or re.fullmatch(way.where_number, number) is not None


def _most_basic_first(explanation: Explanation) -> tuple[int, int, int]:
    """Causes by depth; then what only witnessed that another rank stopped; then notes that harm nothing."""
    signature = explanation.signature
    return signature.witness + 2 * signature.not_a_fault, signature.depth, explanation.first_line


def _shown(text: str, begin: int, end: int) -> str:
    """The line on one row; a long one is cut to a readable length that holds the end of the match."""
    head, match = (" ".join(masked(part).split()) for part in (text[:begin], text[:end]))
    whole = " ".join(masked(text).split())
    stop = min(len(whole), max(len(match) + 30, SHOWN_CHARACTERS))
    start = min(max(0, stop - SHOWN_CHARACTERS), len(head))
    return "..." * (start > 0) + whole[start:stop] + "..." * (stop < len(whole))
