"""What a killed pip leaves behind: put back where it is the only copy, taken away where the package is whole.

pip moves a folder that it removes aside (torch to ~orch) and removes it in the end. Killed between, it never does.
Such a name is no package, so the next look goes on with a removal that was killed half-way.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from calendar import timegm
from collections.abc import Callable
from typing import TYPE_CHECKING

from firstlight.apply.disk import named
from firstlight.apply.environments import Debris, Environment, look_at
from firstlight.apply.journal import Record
from firstlight.apply.runs import COMMAND_STARTED, SET_SAVED, about_step
from firstlight.apply.set_records import DISTRIBUTIONS, LOOKED, folder_of, settled
from firstlight.errors import CouldNotAct
from firstlight.facts.known import Unknown
from firstlight.frozen import dataclass
from firstlight.ways.step import Step

if TYPE_CHECKING:
    from firstlight.apply.executor import Acting

# uv's name for what it copies, and pip's for what it writes beside a package, until they are whole
_PASSING = re.compile(r"\.tmp[A-Za-z0-9]{6}|(?:INSTALLER|REQUESTED|RECORD|direct_url\.json)[a-z0-9_]{8}\.tmp")
MOVED_BACK, TAKEN_AWAY = "debris-moved-back", "debris-taken-away"


@dataclass(frozen=True, slots=True)
class Place:
    """One environment that a step of a run changes, and how it was before."""

    acting: Acting
    run: int
    step: Step
    saved: Record

    @property
    def interpreter(self) -> str:
        return str(self.saved.about["target"])

    def look(self) -> Environment:
        """What is there now; no answer is never an empty one."""
        seen = look_at(self.interpreter, folder_of(self.saved))
        if isinstance(seen, Unknown):
            raise CouldNotAct(
                f"{self.step.title}: what a killed pip or uv left there could not be seen: {seen.reason}. No package "
                "was taken away. Fix that and run the same command again."
            )
        return seen.value

    def came_since(self, paths: tuple[str, ...], kind: str) -> tuple[str, ...]:
        """Those that were not there before the step."""
        before = set(self.saved.about[kind])
        return tuple(each for each in paths if each not in before)


def places_of(acting: Acting, run: int, step: Step) -> tuple[Place, ...]:
    """The environments of a step that were looked at file by file before it."""
    found = about_step(acting.journal, SET_SAVED, run=run, step=step.id)
    return tuple(
        Place(acting, run, step, each)
        for each in found
        if each.about["of"] == DISTRIBUTIONS and each.about.get("looked") == LOOKED
    )


def left_behind(interpreter: str) -> str:
    """What killed pips left in an environment, in a sentence; "" for nothing. Nothing is changed."""
    seen = look_at(interpreter)
    if isinstance(seen, Unknown):
        return f"whether a killed pip left something behind is not known: {seen.reason}"
    names = tuple(each.path for each in seen.value.debris)
    return f"left behind by a pip that was killed, and no package: {' '.join(names)}" if names else ""


def take_up(place: Place) -> None:
    """Before commands run again: end what an earlier, killed command of this step left half done."""
    if not about_step(place.acting.journal, COMMAND_STARTED, run=place.run, step=place.step.id):
        return
    _finish(place)
    now = place.look()
    # pip and uv would take it for installed, and cannot remove it
    _take_away(place, _halves(place, now), why="pip or uv was killed while it wrote this")
    _take_away(place, _of_whole(now), why="what pip was replacing; the package is whole")
    now = place.look()
    for each in _only_copies(place, now):
        _move_back(place, each)


def has_halves(place: Place) -> bool:
    """Whether a killed pip or uv left a package there that it never finished, wanted by name or only needed."""
    return bool(_halves(place, place.look()))


def _halves(place: Place, now: Environment) -> tuple[str, ...]:
    """The metadata of packages that came with the step and whose installer never wrote a RECORD."""
    before, torn = set(place.saved.about["before"]), set(place.saved.about["torn"])
    return tuple(
        each.path
        for each in now.distributions
        if each.torn and not each.recorded and (each.pin not in before or each.name not in torn)
    )


def _only_copies(place: Place, now: Environment) -> tuple[Debris, ...]:
    """What the step's pip moved aside and has nothing in its place yet, or a part of it.

    Where the metadata was moved aside and there is metadata again, pip was past that: commands make that one whole.
    """
    new = set(place.came_since(tuple(each.path for each in now.debris), "debris"))
    there = {each.name for each in now.distributions}
    replaced = {
        name for each in now.debris if each.path.endswith(".dist-info") for name in each.owners if name in there
    }
    reals = [each.real for each in now.debris]
    return tuple(
        each
        for each in now.debris
        if each.path in new
        and each.real
        and reals.count(each.real) == 1
        and not set(each.owners) & (now.whole | replaced)
    )


def clear(place: Place) -> None:
    """After the commands: take debris of whole packages away; of the rest a person decides."""
    _finish(place)
    try:
        now = place.look()
    except CouldNotAct as error:  # the commands are through: what they left is looked at again and judged after this
        place.acting.watcher.say(str(error))
        return
    mine = _of_whole(now)
    _take_away(place, mine, why="what a killed pip left; the package is whole")
    _take_away(place, _half_written(place, now), why="half-written by a pip or uv that was killed")
    left = tuple(each for each in now.debris if each.path not in mine)
    if left:
        _ask(place, left, now)


def everything(path: str) -> bool:
    """What is sure to be the step's where nobody else had time to write."""
    return True


def clear_after_undo(place: Place, is_sure: Callable[[str], bool]) -> tuple[str, ...]:
    """After undo: take away what the step's pip left; files that may be somebody's own are asked for.

    Returned is what nobody decided on, which stays.
    """
    _finish(place)
    now = place.look()
    before = {each.partition("==")[0] for each in place.saved.about["before"]}
    new = set(place.came_since(tuple(each.path for each in now.debris), "debris"))
    there = {each.name for each in now.distributions}
    gone = tuple(
        each.path for each in now.debris if each.path in new and each.owners and not set(each.owners) & (there | before)
    )
    _take_away(place, (*_of_whole(now), *gone), why="what a killed pip left")
    torn = _half_written(place, now)
    _take_away(place, torn, why="half-written by a pip or uv that was killed")
    now = place.look() if torn else now
    halves = _halves_of_packages(place, now)
    ours = tuple(each for each in halves if is_sure(each))
    _take_away(place, ours, why="no package lists it, and it came with this step")
    return _ask_about_files(place, tuple(each for each in halves if each not in ours))


def _ask_about_files(place: Place, paths: tuple[str, ...]) -> tuple[str, ...]:
    """What came since the step began and no package that it brings would write; returned is what nobody decided on."""
    if not paths:
        return ()
    watcher = place.acting.watcher
    watcher.say(f"not there before {place.step.title!r}, and of no package that it brings: {' '.join(paths)}")
    if watcher.asks("Remove it for good?"):
        _take_away(place, paths, why="you agreed")
        return ()
    watcher.say("it is left as it is")
    return () if watcher.somebody_answers() else paths


def _of_whole(now: Environment) -> tuple[str, ...]:
    return tuple(each.path for each in now.debris if each.owners and set(each.owners) <= now.whole)


def _half_written(place: Place, now: Environment) -> tuple[str, ...]:
    """What a killed pip or uv was writing under a passing name, a file or a folder."""
    new = place.came_since(now.unowned, "unowned")
    return tuple(each for each in new if _PASSING.fullmatch(os.path.basename(each)) and _came_with(place, each))


def _came_with(place: Place, path: str) -> bool:
    """Whether it was made after a command of the step began: one of undo's, where it was not there after apply."""
    after = settled(place.acting.journal, place.run, place.saved)
    begun = about_step(place.acting.journal, COMMAND_STARTED, run=place.run, step=place.step.id)
    if after and path not in after[0].about.get("unowned", ()):
        begun = tuple(each for each in begun if each.number > after[0].number)
    return bool(begun) and os.lstat(path).st_ctime >= _second(begun[0])


def _second(record: Record) -> float:
    return timegm(time.strptime(record.at, "%Y-%m-%dT%H:%M:%SZ"))


def _halves_of_packages(place: Place, now: Environment) -> tuple[str, ...]:
    """Files that came after the step's pip or uv began, until it ended where that is known."""
    new = place.came_since(now.unowned, "unowned")
    for after in settled(place.acting.journal, place.run, place.saved):
        return tuple(each for each in new if each in after.about.get("unowned", ()))
    started = about_step(place.acting.journal, COMMAND_STARTED, run=place.run, step=place.step.id)
    if not started:
        return ()
    return tuple(each for each in new if os.lstat(each).st_ctime >= _second(started[0]))


def _ask(place: Place, left: tuple[Debris, ...], now: Environment) -> None:
    """What may be the only copy of a package is a person's to lose."""
    of = sorted({owner for each in left for owner in each.owners} - now.whole)
    whose = f"{', '.join(of)} is not whole here" if of else "no package here is known to go with it"
    names = " ".join(each.path for each in left)
    place.acting.watcher.say(f"left behind by a pip that was killed, it seems, and {whose}: {names}")
    if place.acting.watcher.asks("Take it away for good?"):
        _take_away(place, tuple(each.path for each in left), why="you agreed")
    else:
        command = shlex.join(("rm", "-r", *(each.path for each in left)))
        place.acting.watcher.say(f"it is left as it is; where you do not need it, remove it with\n{command}")


def _move_back(place: Place, debris: Debris) -> None:
    """What pip does itself where it can: the folder it moved aside takes its place again."""
    disk, journal = place.acting.disk, place.acting.journal
    folder, name = os.path.split(debris.real)
    aside = f"{folder}/~{name}.unfinished"
    journal.add(MOVED_BACK, run=place.run, step=place.step.id, path=debris.path, real=debris.real, paths=[aside])
    place.acting.watcher.say(f"a killed pip had moved {debris.real} aside: it is moved back")
    with named(debris.real):
        if os.path.lexists(debris.real):
            disk.passing(f"{debris.real}: move aside")
            os.rename(debris.real, aside)
        disk.passing(f"{debris.real}: move back")
        os.rename(debris.path, debris.real)
    _remove(place, aside)


def _take_away(place: Place, paths: tuple[str, ...], *, why: str) -> None:
    if not paths:
        return
    # Metadata goes last: it says whose the rest was.
    ordered = sorted(paths, key=lambda path: (path.endswith(".dist-info"), path))
    place.acting.journal.add(TAKEN_AWAY, run=place.run, step=place.step.id, paths=ordered, why=why)
    place.acting.watcher.say(f"taken away: {' '.join(ordered)} ({why})")
    for path in ordered:
        _remove(place, path)


def _finish(place: Place) -> None:
    """Go on with removals that were written down and then killed; a name that is in use again stays."""
    for event in (MOVED_BACK, TAKEN_AWAY):
        for record in about_step(place.acting.journal, event, run=place.run, step=place.step.id):
            for path in record.about["paths"]:
                if os.path.basename(path).startswith("~"):
                    _remove(place, path)


def _remove(place: Place, path: str) -> None:
    if not os.path.lexists(path):
        return
    place.acting.disk.passing(f"{path}: remove")
    with named(path):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
