"""Whose a package is that differs from before a step: the step's, or somebody's who changed it since."""

from __future__ import annotations

import shlex
from fnmatch import fnmatchcase

from firstlight.apply.brought import Brought
from firstlight.apply.package_sets import (
    Difference,
    commands_for_distributions,
    commands_for_folder,
    difference,
    name_of,
    uv_of,
)
from firstlight.apply.set_records import folder_of
from firstlight.apply.taking import Taking
from firstlight.errors import CouldNotAct
from firstlight.frozen import dataclass
from firstlight.ways.step import CheckKind


@dataclass(frozen=True, slots=True)
class Left:
    """Packages that may be somebody's own and stay; `undecided` of them nobody said anything about."""

    names: frozenset[str] = frozenset()
    undecided: tuple[str, ...] = ()

    def out_of(self, gap: Difference) -> Difference:
        """A difference without them."""
        return Difference(
            tuple(name for name in gap.added if name not in self.names),
            tuple(each for each in gap.back if name_of(each) not in self.names),
        )


def refuse_other_versions(taking: Taking, now: tuple[str, ...]) -> None:
    """Stop where a package of the step has another version than the step left and than before: somebody changed it."""
    left = _left_by_step(taking)
    theirs = [each for each in now if each not in taking.before and _is_another(each, left)]
    if not theirs:
        return
    was = ", ".join(f"{name_of(each)}=={' or '.join(sorted(left[name_of(each)]))}" for each in theirs)
    taking.acting.watcher.say(f"where you do not need it, remove it with\n{_removal(taking, theirs)}")
    raise CouldNotAct(
        f"undo of {taking.step.title!r} stopped: {', '.join(theirs)} is installed, and the step left {was}: somebody "
        "changed it since. Nothing was taken away. Remove it or install what the step left, then run undo again."
    )


def _is_another(pin: str, left: dict[str, set[str]]) -> bool:
    name, _, version = pin.partition("==")
    # a state after the version is dpkg's, half-way through a removal of ours
    return name in left and "," not in version and not any(fnmatchcase(version, each) for each in left[name])


def _left_by_step(taking: Taking) -> dict[str, set[str]]:
    """Versions of what the step changed, by name; where nobody saw them, those that it was to bring."""
    found: dict[str, set[str]] = {}
    pins: list[str] = []
    for after in taking.after:
        changed = difference(taking.before, list(after.about["after"]))
        # what was left half-way is finished before this, by dpkg or by taking up
        half = {name_of(each) for each in after.about["after"] if "," in each} | set(after.about.get("torn", ()))
        names = {name_of(each) for each in (*changed.added, *changed.back)} - half
        pins += [each for each in after.about["after"] if name_of(each) in names]
    if not taking.after:
        pins += [
            each
            for condition in taking.step.done_when
            if condition.kind is CheckKind.DISTRIBUTIONS and condition.target == taking.target
            for each in condition.expected.split()
            if "==" in each
        ]
    for name, _, version in (each.partition("==") for each in pins):
        found.setdefault(name, set()).add(version)
    return found


def left_alone(taking: Taking, gap: Difference, brought: Brought, *, now: tuple[str, ...]) -> Left:
    """What differs and cannot be told to be the step's: a person says whether it goes, and without one it stays."""
    if not taking.others_may_be_in_it:
        return Left()
    known = frozenset() if taking.unseen else brought.names
    added = tuple(name for name in gap.added if _bare(name) not in known)
    # what is gone comes back unasked: that takes nothing from anybody
    there = {name_of(each) for each in now if "," not in each}
    theirs = {name for name in there if _bare(name) not in brought.names}
    changed = tuple(each for each in gap.back if name_of(each) in theirs and each not in now)
    if not (added or changed):
        return Left()
    names = ", ".join((*added, *(f"{each} (from before)" for each in changed)))
    why = f"because after the step {taking.unseen}" if taking.unseen else "because the step was interrupted"
    watcher = taking.acting.watcher
    watcher.say(
        f"not as before {taking.step.title!r}: {names}. Whether that step did it or somebody else is not known, {why}"
    )
    asked = ([f"remove {', '.join(added)}"] if added else []) + (
        [f"bring {', '.join(changed)} back"] if changed else []
    )
    question = " and ".join(asked)
    if watcher.asks(f"{question[0].upper()}{question[1:]}?"):
        return Left()
    left = (*added, *map(name_of, changed))
    return Left(frozenset(left), () if watcher.somebody_answers() else left)


def _bare(name: str) -> str:
    return name.partition(":")[0]


def refuse_undecided(taking: Taking, left: Left, files: tuple[str, ...]) -> None:
    """The run stays open while something is there that nobody decided on."""
    if left.undecided:
        taking.acting.watcher.say(f"where you do not need it, remove it with\n{_removal(taking, list(left.undecided))}")
    if files:
        taking.acting.watcher.say(f"where you do not need it, remove it with\n{shlex.join(('rm', '-r', *files))}")
    if left.undecided or files:
        raise CouldNotAct(
            f"undo of {taking.step.title!r} stopped: {', '.join((*left.undecided, *files))} may be somebody's own, "
            "and nobody agreed to remove it: it is left as it is. Remove it and run undo again, or run undo on a "
            "terminal without --yes and answer."
        )


def _removal(taking: Taking, pins: list[str]) -> str:
    names = tuple(dict.fromkeys(name_of(each) for each in pins))
    if not taking.target:
        return shlex.join(("apt-get", "remove", *names))
    gap = Difference(names, ())
    if folder_of(taking.saved):
        [argv] = commands_for_folder(gap, taking.step, interpreter=taking.target, sources=())
        return shlex.join(argv)
    [argv] = commands_for_distributions(gap, interpreter=taking.target, uv=uv_of(taking.step), sources=())
    return shlex.join(argv)
