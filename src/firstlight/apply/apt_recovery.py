"""Before an apt step: finishes what a killed apt or dpkg left half-way, because apt does nothing until that is done."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from firstlight.apply.apt_state import Package, answer, half_done, has_unmerged_notes, wait_until_free
from firstlight.apply.commands import Ended
from firstlight.apply.conditions import run
from firstlight.errors import CouldNotAct
from firstlight.frozen import dataclass
from firstlight.ways.step import Step, StepKind

Argv = tuple[str, ...]
CONFIGURE = ("dpkg", "--configure", "-a")
REPAIR = ("apt-get", "install", "--fix-broken", "--yes")
AGAIN = ("apt-get", "install", "--reinstall", "--yes")
_THEN = "then run the same command again"


@dataclass(frozen=True, slots=True)
class Recovering:
    """How a recovery acts: what runs a command with its start and end in the journal, and who is told."""

    act: Callable[[Argv], Ended]
    say: Callable[[str], None]
    root: Argv  # what comes before each command: sudo, or nothing


def uses_dpkg(step: Step) -> bool:
    """Whether a step changes Debian packages; those of dnf are another matter."""
    return step.kind is StepKind.APT and any("apt-get" in argv or "dpkg" in argv for argv in step.commands)


def settle_interrupted(how: Recovering) -> None:
    """Let dpkg finish what it can by itself and write its notes together; enough to take packages away."""
    wait_until_free(how.say)
    left = half_done()
    if left or has_unmerged_notes():
        how.say(f"dpkg was interrupted{_names(left)}: finishing that first, with {shlex.join((*how.root, *CONFIGURE))}")
        how.act((*how.root, *CONFIGURE))  # what it could not finish is looked at, whatever its exit code says


def settle_for_undo(how: Recovering) -> None:
    """As above, and unpack again what was cut off: dpkg knows only then which files to take away."""
    settle_interrupted(how)
    torn = tuple(package for package in half_done() if package.torn and not package.is_being_removed)
    if not torn:
        return
    try:
        _unpack_again(how, torn)
    except CouldNotAct as error:
        how.say(f"{error}\nContinuing without that: files of its half-made unpacking may stay (*.dpkg-new).")


def finish_interrupted(how: Recovering, step: Step) -> None:
    """Bring every package into a whole state before a step, without removing any that is whole."""
    settle_interrupted(how)
    left = half_done()
    _finish_removals(how, tuple(package for package in left if package.is_being_removed))
    torn = tuple(package for package in left if package.torn and not package.is_being_removed)
    if torn and not _brings_a_file(step):
        _unpack_again(how, torn)
    if not _brings_a_file(step) and (half_done() or run((*how.root, *_without_lock("apt-get", "check"))).returncode):
        _repair(how)


def _brings_a_file(step: Step) -> bool:
    """dpkg --install FILE mends what it was killed in; no repository may have that package."""
    return any("dpkg" in argv and "--install" in argv for argv in step.commands)


def _without_lock(program: str, *words: str) -> Argv:
    """Questions to apt change nothing and take no lock: that was free a moment ago."""
    return (program, "-o", "Debug::NoLocking=true", *words)


def _finish_removals(how: Recovering, packages: tuple[Package, ...]) -> None:
    """A removal that was begun: the package is half gone, and apt takes it for installed."""
    for word, wanted in (("--remove", "deinstall"), ("--purge", "purge")):
        names = tuple(package.name for package in packages if package.wanted == wanted)
        if names:
            argv = (*how.root, "dpkg", word, "--force-remove-reinstreq", *names)
            how.say(f"the removal of {', '.join(names)} was interrupted: finishing it with {shlex.join(argv)}")
            _must(how, argv)


def _unpack_again(how: Recovering, packages: tuple[Package, ...]) -> None:
    """apt leaves a package that was cut off while unpacking as it is, unless it is named."""
    names = tuple(package.name for package in packages)
    _refuse_removals(how, (*AGAIN, *names), names)
    automatic = answer(("apt-mark", "showauto", *names), "say which packages came by themselves").split()
    argv = (*how.root, *AGAIN, *names)
    how.say(f"{', '.join(names)} was cut off while it was unpacked: doing that again with {shlex.join(argv)}")
    _must(how, argv)
    if automatic:  # naming a package makes apt think that a person asked for it
        _must(how, (*how.root, "apt-mark", "auto", *automatic))


def _repair(how: Recovering) -> None:
    names = tuple(package.name for package in half_done())
    _refuse_removals(how, REPAIR, names)
    argv = (*how.root, *REPAIR)
    how.say(f"packages lack what they need{_named(names)}: getting it with {shlex.join(argv)}")
    _must(how, argv)


def _refuse_removals(how: Recovering, argv: Argv, names: Argv) -> None:
    """Try a repair on paper: one that would remove packages is for a person to decide."""
    tried = run((*how.root, *_without_lock(*argv, "--simulate")))
    said = next((line for line in reversed((tried.stdout + tried.stderr).splitlines()) if line.strip()), "no reason")
    byhand = shlex.join((*how.root, *(word for word in argv if word != "--yes")))
    if tried.returncode != 0:
        force = shlex.join((*how.root, "dpkg", "--remove", "--force-remove-reinstreq", *names))
        raise CouldNotAct(
            f"packages are half installed{_named(names)}, and apt cannot finish them: {said}\n"
            f"Bring back the repository they came from and run\n  {byhand}\nor take them away with\n  {force}\n{_THEN}."
        )
    gone = [line.split()[1] for line in tried.stdout.splitlines() if line.startswith(("Remv ", "Purg "))]
    if gone:
        raise CouldNotAct(
            f"packages are half installed{_named(names)}, and finishing them would remove {', '.join(gone)}. "
            f"Nothing was removed. If that is right, run\n  {byhand}\n{_THEN}."
        )


def _must(how: Recovering, argv: Argv) -> None:
    ended = how.act(argv)
    if ended.status != 0:
        last = next((line for line in reversed(ended.tail) if line.strip()), "it printed nothing")
        raise CouldNotAct(
            f"an interrupted dpkg could not be fixed: {shlex.join(argv)} ended with status {ended.status} "
            f"({last}); the whole output is in {ended.log}. Fix that, {_THEN}."
        )


def _names(packages: tuple[Package, ...]) -> str:
    return _named(tuple(f"{package.name} is {package.state}" for package in packages))


def _named(words: Argv) -> str:
    shown = (*words[:4], *((f"{len(words) - 4} more",) if len(words) > 4 else ()))
    return f" ({', '.join(shown)})" if words else ""
