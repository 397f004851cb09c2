"""Brings the packages of before back: exactly those that a step changed, proved by looking again."""

from __future__ import annotations

import os
import shlex

from firstlight.apply.apt_recovery import settle_for_undo
from firstlight.apply.apt_state import CONFIG_FILES
from firstlight.apply.brought import Brought, brought_distributions, brought_packages, with_folders
from firstlight.apply.debris import Place, clear_after_undo, everything, places_of, take_up
from firstlight.apply.environments import Environment, is_there, look_at
from firstlight.apply.executor import Acting, recovering, run_command
from firstlight.apply.journal import Record
from firstlight.apply.package_sets import (
    Difference,
    commands_for_distributions,
    commands_for_folder,
    commands_for_packages,
    commands_for_project,
    difference,
    manual_packages,
    name_of,
    one_of_each,
    packages,
    project_synced_by,
    sources_of,
    uv_of,
)
from firstlight.apply.requested import COMING_BACK, unasked, unmark
from firstlight.apply.runs import Run
from firstlight.apply.set_records import PACKAGES, folder_of
from firstlight.apply.taking import Taking
from firstlight.apply.undo_list import sources_from_list, was_from_list
from firstlight.apply.whose import left_alone, refuse_other_versions, refuse_undecided
from firstlight.errors import CouldNotAct
from firstlight.facts.known import Unknown
from firstlight.ways.back import BackKind
from firstlight.ways.step import CheckKind, Step

MOST_ROUNDS = 2  # taking one package away may tear another that shares files with it


def restore_set(acting: Acting, run: Run, step: Step, record: Record) -> None:
    """Bring one set back and compare it with what was saved; what is not as before is said and stops the undo."""
    taking = Taking(acting, run, step, record)
    if record.about["of"] == PACKAGES:
        _restore_packages(taking)
    elif not _is_there(taking):
        _refuse_what_is_gone(taking)
    elif not taking.before and "looked" not in record.about:
        _refuse_an_empty_set(taking)
    else:
        _restore_environment(taking)


def _is_there(taking: Taking) -> bool:
    try:
        return is_there(taking.target)
    except OSError as error:
        raise CouldNotAct(
            f"undo of {taking.step.title!r} stopped: {taking.target} could not be looked at ({error.strerror}). Run "
            "undo as the user that ran apply."
        ) from error


def _refuse_what_is_gone(taking: Taking) -> None:
    """An environment that is not there may be on a volume that is not mounted: only a person knows that it is gone."""
    taking.acting.watcher.say(f"{taking.target} is gone: there is no environment to bring packages back to")
    if not taking.before or taking.acting.watcher.asks("Is it gone for good?"):
        return
    raise CouldNotAct(
        f"undo of {taking.step.title!r} stopped: {taking.target} is not there. Mount its volume, or put it back where "
        "it was, and run undo again. Where it is gone for good, run undo on a terminal without --yes and say so."
    )


def _restore_packages(taking: Taking) -> None:
    settle_for_undo(recovering(taking.acting, run=taking.run.number, step=taking.step))
    now = _packages_now(taking)
    refuse_other_versions(taking, tuple(now))
    start = _ours(taking, difference(taking.before, now), set())
    left = left_alone(taking, start, brought_packages(taking), now=tuple(now))
    for argv in commands_for_packages(left.out_of(start), root=_root(taking.step)):
        command_back(taking.acting, taking.run, taking.step, argv)
    _restore_marks(taking, left.names)
    _prove(taking, left.out_of(_ours(taking, difference(taking.before, _packages_now(taking)), set())))
    refuse_undecided(taking, left, ())


def _commands(taking: Taking, gap: Difference) -> tuple[tuple[str, ...], ...]:
    """What brings these back: the project's own lock file where it has one, else pip or uv and the step's indexes."""
    step, interpreter, project = taking.step, taking.target, project_synced_by(taking.step)
    if project and os.path.exists(f"{project}/uv.lock"):
        gone = commands_for_distributions(
            Difference(gap.added, ()), interpreter=interpreter, uv=uv_of(step), sources=()
        )
        return (*gone, *commands_for_project(project, uv_of(step), gap))
    _refuse_what_no_index_has(taking, gap)
    _say_which_copies(taking, gap)
    _write_down(taking, gap)
    sources = sources_from_list(taking.acting, step, gap) if was_from_list(step) else sources_of(step, gap)
    if folder_of(taking.saved):
        return commands_for_folder(gap, step, interpreter=interpreter, sources=sources)
    return commands_for_distributions(gap, interpreter=interpreter, uv=uv_of(step), sources=sources)


def _packages_now(taking: Taking) -> list[str]:
    # a journal of before states were kept does not know which packages had left their settings behind
    knows = taking.saved.about.get("with_states", False)
    return [each for each in packages() if knows or not each.endswith(f",{CONFIG_FILES}")]


def _restore_environment(taking: Taking) -> None:
    for place in _places(taking):
        take_up(place)
    start = now = _seen(taking)
    refuse_other_versions(taking, start.pins)
    brought = brought_distributions(taking, start)
    left = left_alone(taking, _gap(taking, start, now), brought, now=start.pins)
    for _ in range(MOST_ROUNDS):
        gap = left.out_of(_gap(taking, start, now))
        if not (gap.added or gap.back):
            break
        # Of two copies pip sees one: it is removed, and the other is replaced by what comes back.
        twice = tuple(sorted({name_of(each) for each in gap.back if len(now.named(name_of(each))) > 1}))
        gap = Difference((*gap.added, *twice), gap.back)
        for argv in _commands(taking, gap):
            command_back(taking.acting, taking.run, taking.step, argv)
        now = _seen(taking)
    files = _clear(taking, with_folders(brought, now))
    now = _seen(taking)
    _prove(taking, left.out_of(_gap(taking, start, now)))
    unmark(taking.acting, taking.saved, unasked(taking.acting.journal, taking.saved, taking.after, now))
    refuse_undecided(taking, left, files)


def _clear(taking: Taking, brought: Brought) -> tuple[str, ...]:
    """Take away what killed commands left; returned is what nobody decided on."""
    sure = brought.explains if taking.others_may_be_in_it else everything
    return tuple(path for place in _places(taking) for path in clear_after_undo(place, sure))


def _write_down(taking: Taking, gap: Difference) -> None:
    """What undo names to pip or uv, which mark all that they are told by name as asked for."""
    if gap.back:
        about = {"run": taking.run.number, "step": taking.step.id, "target": taking.target}
        taking.acting.journal.add(COMING_BACK, **about, back=list(gap.back))


def _places(taking: Taking) -> tuple[Place, ...]:
    found = places_of(taking.acting, taking.run.number, taking.step)
    return tuple(each for each in found if each.interpreter == taking.target)


def _seen(taking: Taking) -> Environment:
    seen = look_at(taking.target, folder_of(taking.saved))
    if isinstance(seen, Unknown):
        raise CouldNotAct(
            f"undo of {taking.step.title!r} stopped: what is installed now could not be seen: {seen.reason}. "
            "No package was taken away after that. Fix that and run undo again."
        )
    return seen.value


def _gap(taking: Taking, start: Environment, now: Environment) -> Difference:
    """What differs now and was changed by the step or by taking it back; a package torn since counts as gone."""
    gap = one_of_each(difference(taking.before, list(now.pins)), promised=_promised(taking), now=now.pins)
    then = {name_of(each): each for each in taking.before}
    whole_before = set(then) - set(taking.saved.about.get("torn", ()))
    torn = [name for name in now.torn if name in whole_before and then[name] not in gap.back]
    torn_by_undo = {name for name in torn if name in start.whole}
    return _ours(taking, Difference(gap.added, (*gap.back, *(then[name] for name in torn))), torn_by_undo)


def _promised(taking: Taking) -> frozenset[str]:
    """The words of the way back that was shown: of several copies it names the one that comes back."""
    return frozenset(word for back in taking.step.back if back.kind is BackKind.SHOWN for word in back.words)


def _ours(taking: Taking, gap: Difference, by_undo: set[str]) -> Difference:
    """What somebody installed since is theirs and stays; where a command was killed, all that differs may be ours."""
    if not taking.after:
        return gap
    [after] = taking.after
    changed = difference(taking.before, list(after.about["after"]))
    touched = {name_of(each) for each in (*changed.added, *changed.back)} | by_undo
    touched |= set(after.about.get("torn", ())) - set(taking.saved.about.get("torn", ()))
    return Difference(
        tuple(name for name in gap.added if name in touched),
        tuple(each for each in gap.back if name_of(each) in touched),
    )


def _refuse_an_empty_set(taking: Taking) -> None:
    """An older firstlight wrote [] for an environment that gave no answer; only what the step asked for is known."""
    wanted = {
        name_of(each)
        for condition in taking.step.done_when
        if condition.kind is CheckKind.DISTRIBUTIONS and condition.target == taking.target
        for each in condition.expected.split()
    }
    left = sorted(wanted & {each.name for each in _seen(taking).distributions})
    if not left:
        taking.acting.watcher.say(
            f"{', '.join(sorted(wanted))} is not in {taking.target} any more: nothing to take back"
        )
        return
    command = shlex.join((taking.target, "-m", "pip", "uninstall", *left))
    taking.acting.watcher.say(f"what {taking.step.title!r} was asked to bring can be removed with\n{command}")
    raise CouldNotAct(
        f"undo of {taking.step.title!r} stopped and took nothing away: the journal, written by an older firstlight, "
        f"says that {taking.target} held no package before, which it also wrote where an interpreter gave no answer. "
        "Remove what that step brought yourself, then run undo again."
    )


def _say_which_copies(taking: Taking, gap: Difference) -> None:
    for each in gap.back:
        copies = [pin for pin in taking.before if name_of(pin) == name_of(each)]
        if len(copies) > 1:
            taking.acting.watcher.say(f"{', '.join(copies)} lay over one another: {each} comes back, alone")


def _refuse_what_no_index_has(taking: Taking, gap: Difference) -> None:
    """A name that was there without a version, or from a folder: an index has no such, or somebody else's."""
    names = [name_of(each) for each in gap.back]
    direct = taking.saved.about.get("direct", ())
    odd = [each for each in names if f"{each}==" in gap.back or each in direct]
    if odd:
        was = ", ".join(each for each in taking.before if name_of(each) in odd)
        raise CouldNotAct(
            f"undo of {taking.step.title!r} stopped: before the step {taking.target} held {was}, from a folder or a "
            "file, or without a version: no index can give that back. Install it again yourself and run undo "
            "again; nothing was taken away now."
        )


def _prove(taking: Taking, left: Difference) -> None:
    """'Taken back' is said only of a set that is as it was."""
    if left.added or left.back:
        differs = ", ".join(
            (*(f"{name} is still there" for name in left.added), *(f"{each} is missing or torn" for each in left.back))
        )
        raise CouldNotAct(
            f"undo of {taking.step.title!r} did not bring every package back: {differs}. Run undo again to retry."
        )


def _root(step: Step) -> tuple[str, ...]:
    """sudo where the step itself went through it."""
    return ("sudo",) if os.geteuid() != 0 and any(argv[:1] == ("sudo",) for argv in step.commands) else ()


def _restore_marks(taking: Taking, left: frozenset[str]) -> None:
    """apt also remembers which packages were asked for by hand; installing an old version marks it so."""
    then, now = set(taking.saved.about["manual"]), set(manual_packages())
    extra, lost = now - then, then - now
    for after in taking.after:
        changed = difference(taking.before, list(after.about["after"]))
        ours = {name_of(each).partition(":")[0] for each in (*changed.added, *changed.back)}
        ours |= then ^ set(after.about["manual"])
        extra, lost = extra & ours, lost & ours
    extra -= {name.partition(":")[0] for name in left}
    if extra:
        command_back(taking.acting, taking.run, taking.step, (*_root(taking.step), "apt-mark", "auto", *sorted(extra)))
    if lost:
        command_back(taking.acting, taking.run, taking.step, (*_root(taking.step), "apt-mark", "manual", *sorted(lost)))


def command_back(acting: Acting, run: Run, step: Step, argv: tuple[str, ...]) -> None:
    ended = run_command(acting, argv, run=run.number, step=step.id)
    if ended.status != 0:
        last = ended.tail[-1] if ended.tail else "it printed nothing"
        raise CouldNotAct(
            f"undo of {step.title!r} stopped: {shlex.join(argv)} ended with status {ended.status} ({last}); "
            f"the whole output is in {ended.log}. Fix that and run undo again."
        )
