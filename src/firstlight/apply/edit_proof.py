"""An edit of a shell file is tried before it is written: it must parse as before, and set what it is meant to set."""

from __future__ import annotations

import functools
import os
import tempfile
from dataclasses import replace

from firstlight.apply.parts import Parts
from firstlight.apply.shell_readers import Reader, is_shell_file, readers_of, there
from firstlight.apply.shell_trial import LIMIT_S, Place, Trial, Tried, seen_in
from firstlight.errors import CouldNotAct
from firstlight.owned import others_can_write
from firstlight.shells.kinds import Dialect, dialect_of, is_start_file
from firstlight.shells.library_path import VARIABLE
from firstlight.ways.by_hand import by_hand
from firstlight.ways.step import FileChange, Step

_PRESENT = "/firstlight/was/there"  # what the variable is before a shell starts, in every second trial
_STARTS: tuple[tuple[tuple[str, str], ...], ...] = ((), ((VARIABLE, _PRESENT),))
_CHANGES_BY_ITSELF = ("_", "SHLVL", "PWD", "OLDPWD", VARIABLE)


@functools.cache
def why_not(change: FileChange, beside: tuple[FileChange, ...] = ()) -> str:
    """Why an edit must not be written, "" where it was tried and is right, or is no edit of a shell file.

    `beside` are edits of the same plan: a file that this one reads in is seen as it will be.
    """
    edits_path = bool(change.takes_out or change.variables)
    if change.links_to or not (edits_path or is_shell_file(change.path, change.after or change.before)):
        return ""
    if dialect_of(change.path, change.before) is Dialect.ENVIRONMENT:
        return _environment(change)
    every = readers_of(change.path, change.after)
    readers = there(every)
    if not readers:
        shells = " or ".join(dict.fromkeys(reader.shell for reader in every)) or "shell that is known to read it"
        return f"there is no {shells} on this machine to try it with" if change.before else ""
    runs = bool(change.before) and (edits_path or is_start_file(change.path))
    if runs and (whose := _of_others(change.path)):
        return f"{whose}, and what others wrote is not run here"
    others = tuple(
        (each.path, each.after) for each in beside if each.path != change.path and not is_start_file(each.path)
    )
    with tempfile.TemporaryDirectory(prefix="firstlight-") as folder:
        place = Place(folder, change.path, others)
        return _tried(change, readers, place) if runs else _parsed(change, readers, place)


def _of_others(path: str) -> str:
    """Why others may have written a file, e.g. user 1000 owns it; "" where it is ours or root's alone."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"whose it is cannot be seen ({error.strerror})"
    if found.st_uid not in (0, os.geteuid()):
        return f"user {found.st_uid} owns it"
    return f"others can write to it (mode {found.st_mode & 0o7777:04o})" if others_can_write(found) else ""


def _within(place: Place, name: str) -> Place:
    return replace(place, folder=f"{place.folder}/{name}")


def _parses(change: FileChange, reader: Reader) -> tuple[Trial, ...]:
    return tuple(Trial(reader, text, runs=False) for text in (change.before, change.after))


def _parsed(change: FileChange, readers: tuple[Reader, ...], place: Place) -> str:
    """A file of our own: it has to parse, whatever was there before."""
    for reader in readers:
        (seen,) = seen_in(_within(place, reader.shell), _parses(change, reader)[1:])
        if seen.status != 0:
            return _does_not_parse(reader, seen)
    return ""


def _does_not_parse(reader: Reader, seen: Tried) -> str:
    if seen.status is None:
        return f"{reader.shell} did not say within {LIMIT_S:.0f} s whether it parses"
    return f"{reader.shell} would not parse it any more: {_first_complaint(seen)}"


def _first_complaint(seen: Tried) -> str:
    lines = seen.complained.strip().splitlines()
    return lines[0] if lines else f"it ends with status {seen.status}"


def _tried(change: FileChange, readers: tuple[Reader, ...], place: Place) -> str:
    """Read by each shell as at a start, with the variable unset and set before; one of them must get to the end."""
    judged, parses = False, False
    each_start = tuple((start, text) for start in _STARTS for text in (change.before, change.after))
    trials = tuple(
        trial
        for reader in readers
        for trial in (*_parses(change, reader), *(Trial(reader, text, start) for start, text in each_start))
    )
    everything = iter(seen_in(_within(place, "first"), trials))
    for reader in readers:
        parsed, runs = [next(everything), next(everything)], [next(everything) for _ in each_start]
        if parsed[1].status is None or (parsed[0].status == 0) != (parsed[1].status == 0):
            return _does_not_parse(reader, parsed[1])
        parses = parses or parsed[0].status == 0
        if any(seen.status is None for seen in runs):
            return f"a new {reader.shell} that reads it did not end within {LIMIT_S:.0f} s"
        for start, before, after in zip(_STARTS, runs[::2], runs[1::2], strict=True):
            if before.variables is None and after.variables is None:
                continue
            judged = True
            found = _differs(change, before, after, reader=reader)
            if found and not found.startswith(VARIABLE):  # what differs from run to run says nothing
                again = seen_in(_within(place, f"{reader.shell}{len(start)}"), (Trial(reader, change.before, start),))
                found = _differs(change, before, after, reader=reader, again=again[0])
            if found:
                return found
    if not parses:  # how far a shell gets in it is chance, and so is what an edit changes
        return f"it does not parse as it is: {_first_complaint(parsed[0])}"
    return "" if judged else f"a new {readers[0].shell} that reads it ends before it can be asked"


def _differs(change: FileChange, before: Tried, after: Tried, *, reader: Reader, again: Tried | None = None) -> str:
    """What an edit would change beside what it is meant to change; "" where nothing."""
    if before.variables is None or after.variables is None:
        return f"a new {reader.shell} would {'end before it is ready' if before.variables else 'go on where it ended'}"
    if found := wrong_path(before.variables.get(VARIABLE), after.variables.get(VARIABLE), change.takes_out):
        return found
    same = again if again is not None else before
    by_chance = _different(before.variables, same.variables or {})
    names = _different(before.variables, after.variables) - by_chance - {*change.variables}
    if names:
        return f"{min(names)} would change with it"
    if before.printed != after.printed and before.printed == same.printed:
        return f"a new {reader.shell} would print something else"
    return ""


def _different(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in {*one, *other} - {*_CHANGES_BY_ITSELF} if one.get(name) != other.get(name)}


def wrong_path(before: str | None, after: str | None, folders: tuple[str, ...]) -> str:
    """Why the variable is not what it was less the folders, in the same order; "" where it is."""
    old = [each.strip("\r") for each in (before or "").split(":")]
    wanted = [each for each in old if each and each.rstrip("/") not in folders]
    found = [each.strip("\r") for each in (after or "").split(":")]
    if not wanted and after == _PRESENT and _PRESENT not in old:
        return ""  # the file overrode what was there with the folders alone; now it leaves it
    if [each for each in found if each] != wanted:
        return f"{VARIABLE} would be {after or 'empty'} in a new shell, not {':'.join(wanted) or 'empty'}"
    if after and found.count("") > old.count(""):
        return f"{VARIABLE} would have an empty element, which is the current folder"
    return ""


def _environment(change: FileChange) -> str:
    """NAME=value files, read by us as PAM reads them."""
    before, after = _pairs(change.before), _pairs(change.after)
    other = _different(before, after) - {*change.variables}
    if other:
        return f"{min(other)} would change with it"
    return wrong_path(before.get(VARIABLE), after.get(VARIABLE), change.takes_out)


def _pairs(text: str) -> dict[str, str]:
    found = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("#")[0].strip().removeprefix("export ").partition("=")
        if equals:
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            found[name.strip()] = value[1:-1] if quoted else value
    return found


def with_tried_edits(parts: Parts) -> Parts:
    """The parts of a plan after each edit of a shell file was tried: one that would break the file is a person's."""
    ours: list[Step] = []
    by_you: list[Step] = []
    edits = tuple(change for step in parts.ours for change in step.files if change.takes_out or change.variables)
    for step in parts.ours:
        refused = [(change, reason) for change in step.files if (reason := why_not(change, edits))]
        if refused:
            by_you.append(by_hand(step, refused[0][0], why=refused[0][1]))
        else:
            ours.append(step)
    return replace(parts, ours=tuple(ours), persons=(*by_you, *parts.persons), not_written=tuple(by_you))


def refuse_untried(step: Step) -> None:
    """Raise where an edit of this step would break a shell file; nothing was written then."""
    for change in step.files:
        if reason := why_not(change):
            told = by_hand(step, change, why=reason)
            raise CouldNotAct(f"{told.title}. {told.note} Then run the same command again.")
