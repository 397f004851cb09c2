"""Error text or a whole log -> what caused it, a command that proves it, ways out. Pure: it reads what it is given."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import BinaryIO, TypeAlias

from firstlight.diagnosis.explain_lookup import code_alone, known_error, looked_up, messages_of
from firstlight.diagnosis.explain_scan import Passed, Spot, Stretch, Told, scan, without_prefix
from firstlight.diagnosis.explain_telling import is_telling
from firstlight.diagnosis.signatures import Commands, Signature, WayOut, decoded, filled, filled_command, signatures
from firstlight.frozen import dataclass
from firstlight.secrets import masked, without_credentials

DIFFERENT_SIGHTINGS = 5  # kept per signature; further ones are only counted
SAME_MESSAGE_LINES = 12  # another form of one signature this close belongs to the same message (torch prints several)
SHOWN_CHARACTERS = 150
RARE_CHARACTERS = 16  # an anchor of this length is met in few lines that are not its row's
CODE_LOOKUP = "cuda-error"  # the row of all codes: what it finds is given to the code's own row where there is one

# In a traceback and under a compiler's message the source line is printed as well: the message itself is what counts.
_SOURCE_LINE = re.compile(r"\s*(?:\d+ \| |>?\s*(?:raise|assert|return|throw) |(?:warnings\.|logger\.|logging\.)\w+\()")
_NOTHING = re.compile("")  # where the secret was part of what matched


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
    for known in _signatures_of(code_alone(text)):
        filled_in = _filled_in(known.signature, dict(known.values))
        sighting = Sighting(1, shown, 1, known.values)
        return replace(explained, explanations=(Explanation(filled_in, 1, (sighting,)),), last_error=())
    return explained


def explain_stream(stream: BinaryIO) -> Explained:
    """What is known of a log; memory does not grow with its length."""
    tallies: dict[str, _Tally] = {}
    lines = size = 0
    told = Told()
    for item in scan(stream, anchors()):
        if isinstance(item, Passed):
            lines, size = item.line_ends + item.open_line, item.size_bytes
            told = item.told
            continue
        for hit in _hits(item):
            tallies.setdefault(hit.signature.code, _Tally(hit.signature)).add(hit)
    found = sorted((tally.explanation() for tally in _causes(tallies, told)), key=_most_basic_first)
    errors = () if found else tuple(Sighting(spot.line, _shown(spot.text(), 0, 0), 1, ()) for spot in told.most())
    return Explained(tuple(found), lines, size, errors)


def _causes(tallies: dict[str, _Tally], told: Told) -> list[_Tally]:
    """The causes among what was found, without what only follows from one of them.

    What says only that something failed is left out where a cause is known. It is no answer to an error in another
    line that nobody knows, nor is a note that harms nothing.
    """
    found = [tally for tally in tallies.values() if not set(tally.signature.follows) & set(tallies)]
    found = [tally for tally in found if not tally.signature.wraps] or found
    if not all(tally.signature.not_a_fault or tally.signature.wraps for tally in found):
        return found
    named = {line for tally in found for line in tally.lines()}
    return [] if any(spot.line not in named and is_telling(spot.text()) for spot in told.most()) else found


@dataclass(frozen=True, slots=True)
class _Form:
    """One pattern of one signature, found by its anchor; `order` is its place among the signature's patterns."""

    signature: Signature
    anchor: str
    regex: str
    order: int


@dataclass(frozen=True, slots=True)
class _Hit:
    signature: Signature
    regex: str
    line: int
    quoted: bool
    values: tuple[tuple[str, str], ...]
    match: re.Match[str]


@dataclass(slots=True)
class _Tally:
    """Counts the hits of one signature while the log goes by; bounded."""

    signature: Signature
    count: int = 0
    quoted_only: bool = True
    last: tuple[_Hit, ...] = ()
    sightings: list[Sighting] = field(default_factory=list)

    def add(self, hit: _Hit) -> None:
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
        values = {name: next(iter(seen)) for name, seen in every.items()}
        values |= {f"{name}s": ", ".join(seen) for name, seen in every.items() if f"{name}s" not in every}
        return Explanation(_filled_in(self.signature, values), self.count, tuple(self.sightings))


def _hits(spot: Spot) -> Iterator[_Hit]:
    """The signatures on one line; what none knows as it is written is tried without regard to capital letters."""
    if spot.in_diff():
        return
    wanted = _wanted(spot.anchors)
    text = spot.text()
    quoted = _SOURCE_LINE.match(text) is not None
    for known, regex, raw in _known_at(spot, wanted, text) or _known_at(spot, _in_any_case(wanted, text), text):
        values, match = _without_secrets(known, regex, raw)
        yield _Hit(known.signature, regex, spot.line, quoted, values, match)


def _known_at(spot: Spot, wanted: tuple[_Form, ...], text: str) -> list[_Match]:
    """What is known of one line; where that is nothing, or only a fallback, it is tried with its neighbours."""
    if not wanted:
        return []
    found = list(_known_in(wanted, text, begin=0, end=len(text)))
    if _only_fallbacks(found):
        joined = _across_lines(spot, wanted, text)
        found = found if found and _only_fallbacks(joined) else joined
    return _across_cuts(spot, wanted, found)


def _without_secrets(known: _Known, regex: str, raw: re.Match[str]) -> tuple[_Values, re.Match[str]]:
    """The same match in the text without secrets: masked whole, as a part of a token has no sign of its own."""
    text = without_credentials(raw.string)
    match = raw
    if text != raw.string:
        match = _compiled(regex).search(text) or _NOTHING.search(text) or raw
    values = known.values
    if match is not raw and values == _values(known.signature, raw):
        values = _values(known.signature, match) if match.re is not _NOTHING else ()
    return tuple((name, masked(value)) for name, value in values), match


def _across_lines(spot: Spot, wanted: Iterable[_Form], text: str) -> list[_Match]:
    """What is known of a message that is wrapped over this line and its neighbours."""
    before, after = spot.neighbours()
    line = without_prefix(text)
    found: list[_Match] = []
    for glue in (" ", ""):  # wrapped at a space by the program, or anywhere by a terminal
        found = _known_across(wanted, Stretch(before, line, after, glue)) or found
        if not _only_fallbacks(found):
            break
    return found


def _known_across(wanted: Iterable[_Form], stretch: Stretch) -> list[_Match]:
    head, whole = stretch.parts()
    found = list(_known_in(wanted, whole, begin=len(head), end=len(head) + len(stretch.line)))
    if not found or (safe := stretch.without_secrets()) == stretch:
        return found
    head, whole = safe.parts()
    return list(_known_in(wanted, whole, begin=len(head), end=len(head) + len(safe.line)))


def _across_cuts(spot: Spot, wanted: Iterable[_Form], found: list[_Match]) -> list[_Match]:
    """What is known of a line that a terminal cut at its width, wherever that is in its words."""
    before, after = spot.uncut()
    if not before and not after:
        return found
    stretch = Stretch(before, spot.text(), after, "")
    uncut = _known_across(wanted, stretch)
    said = {known.signature.code for known, _, _ in uncut}
    both = [*(each for each in found if each[0].signature.code not in said), *uncut]
    if not any(known.signature.fallback for known, _, _ in both):
        return both
    _, whole = stretch.parts()
    data = whole.encode().lower()
    forms = _wanted(frozenset(anchor for anchor in _forms() if anchor in data))
    if _only_fallbacks(list(_known_in(forms, whole, begin=0, end=len(whole)))):
        return both
    return [each for each in both if not each[0].signature.fallback]


def _only_fallbacks(found: list[_Match]) -> bool:
    return all(known.signature.fallback for known, _, _ in found)


def _known_in(forms: Iterable[_Form], text: str, *, begin: int, end: int) -> Iterator[_Match]:
    """What matches, an error code replaced by the signature it leads to; a code that no table knows is dropped."""
    for form, match in _matches(forms, text, begin=begin, end=end):
        values = _values(form.signature, match)
        if form.signature.lookup != CODE_LOOKUP or not values:
            yield _Known(form.signature, values), form.regex, match
        elif (error := known_error(dict(values))) is not None:
            for known in _signatures_of(messages_of(error)) or (_Known(form.signature, values),):
                yield known, form.regex, match


@dataclass(frozen=True, slots=True)
class _Known:
    """The signature an error code leads to, with the values of its printed form."""

    signature: Signature
    values: tuple[tuple[str, str], ...]


_Values: TypeAlias = tuple[tuple[str, str], ...]
_Match: TypeAlias = tuple[_Known, str, re.Match[str]]  # what, by which pattern, where


@functools.lru_cache(maxsize=64)
def _signatures_of(messages: tuple[str, ...]) -> tuple[_Known, ...]:
    """The one signature that knows an error by the forms CUDA prints; the row of error codes where no other does."""
    forms = _wanted(frozenset(_forms()))
    generic: tuple[_Known, ...] = ()
    for message in messages:
        for form, match in _matches(forms, message, begin=0, end=len(message)):
            known = (_Known(form.signature, _values(form.signature, match)),)
            if form.signature.lookup != CODE_LOOKUP:
                return known
            generic = generic or known
    return generic


@functools.lru_cache(maxsize=512)
def _wanted(anchors: frozenset[bytes]) -> tuple[_Form, ...]:
    """The forms to try on a line with these anchors: fallbacks last, each signature's forms in the order of its row."""
    forms = _forms()
    return tuple(
        sorted(
            (form for anchor in anchors for form in forms[anchor]),
            key=lambda form: (form.signature.fallback, form.signature.depth, form.signature.code, form.order),
        )
    )


def _in_any_case(forms: Iterable[_Form], text: str) -> tuple[_Form, ...]:
    """The forms to try in other letters: 'failed to initialize nvml'. A short anchor as it is written is too common."""
    others = (form for form in forms if len(form.anchor) >= RARE_CHARACTERS or form.anchor not in text)
    return tuple(replace(form, regex="(?i)" + form.regex.removeprefix("(?i)")) for form in others)


def _matches(forms: Iterable[_Form], text: str, *, begin: int, end: int) -> Iterator[tuple[_Form, re.Match[str]]]:
    """The first form of each signature that matches across text[begin:end]; fallbacks only where all others fail.

    A wrapper does not silence a fallback: 'runner terminated: CUDA error: out of memory' names its cause.
    """
    done: set[str] = set()
    caused = False
    for form in forms:
        if form.signature.code in done or (form.signature.fallback and caused):
            continue
        for match in _compiled(form.regex).finditer(text):
            if match.start() < end and match.end() > begin:
                done.add(form.signature.code)
                caused = caused or not form.signature.wraps
                yield form, match
                break


@functools.cache
def _forms() -> dict[bytes, tuple[_Form, ...]]:
    """Anchor -> the forms it may belong to, in the order of the rows."""
    forms: dict[bytes, tuple[_Form, ...]] = {}
    for signature in signatures():
        for order, pattern in enumerate(signature.patterns):
            anchor = pattern.anchor.encode().lower()
            forms[anchor] = (*forms.get(anchor, ()), _Form(signature, pattern.anchor, pattern.regex, order))
    return forms


def anchors() -> tuple[bytes, ...]:
    """The fixed strings of all rows in small letters, one of which a line must hold before a pattern is tried on it."""
    return tuple(_forms())


@functools.cache
def _compiled(regex: str) -> re.Pattern[str]:
    """Compiled on first need: a log touches few of them, and compiling all takes longer than reading a short one."""
    return re.compile(regex)


def _values(signature: Signature, match: re.Match[str]) -> tuple[tuple[str, str], ...]:
    groups = match.groupdict()
    return tuple(
        (captured.name, decoded(captured.decode, value))
        for captured in signature.captures
        if (value := groups.get(captured.name)) is not None
    )


def _filled_in(signature: Signature, captured: dict[str, str]) -> Signature:
    values = {each.name: each.otherwise for each in signature.captures} | captured
    values |= looked_up(signature.lookup, captured)
    theirs = {name: value for name, value in captured.items() if values[name] == value}

    def fill(commands: Commands) -> Commands:
        safe = (filled(filled_command(each, theirs), values) for each in commands.run)
        lines = (line for each in safe for line in each.splitlines())
        return Commands(filled(commands.say, values), tuple(lines))

    def fill_way(way: WayOut) -> WayOut:
        told = fill(way)
        return WayOut(told.say, told.run, way.ways)

    return replace(
        signature,
        cause=filled(signature.cause, values).strip(),
        means=filled(signature.means, values),
        prove=fill(signature.prove),
        ways_out=tuple(fill_way(way) for way in signature.ways_out),
    )


def _most_basic_first(explanation: Explanation) -> tuple[int, int]:
    return explanation.signature.depth, explanation.first_line


def _shown(text: str, begin: int, end: int) -> str:
    """The line on one row; a long one is cut to a readable length that holds the end of the match."""
    head, match = (" ".join(masked(part).split()) for part in (text[:begin], text[:end]))
    whole = " ".join(masked(text).split())
    stop = min(len(whole), max(len(match) + 30, SHOWN_CHARACTERS))
    start = min(max(0, stop - SHOWN_CHARACTERS), len(head))
    return "..." * (start > 0) + whole[start:stop] + "..." * (stop < len(whole))
