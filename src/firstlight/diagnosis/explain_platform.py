"""Ways out for one machine: no commands of another system's package manager, and ours name a saved machine."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable
from dataclasses import replace

from firstlight.diagnosis.explain import Explained, Explanation
from firstlight.diagnosis.signatures import Commands
from firstlight.ways.platform import Family, Manager, Platform

_RPM = frozenset(each for each in Manager if each.is_rpm)
_APT = frozenset((Manager.APT,))
# program -> the managers that it belongs to
_PROGRAMS: dict[str, frozenset[Manager]] = {
    **dict.fromkeys(("apt", "apt-get", "apt-mark", "apt-cache", "apt-key", "add-apt-repository"), _APT),
    **dict.fromkeys(("dpkg", "dpkg-query", "ubuntu-drivers"), _APT),
    "rpm": _RPM,
    **{each.value: frozenset((each,)) for each in Manager if each not in (Manager.APT, Manager.NONE)},
    "yum": frozenset((Manager.DNF, Manager.YUM)),  # dnf answers to that name
}
_OF_A_MACHINE = ("firstlight doctor", "firstlight plan")
_BEFORE_A_PROGRAM = frozenset(("sudo", "&&", "||", ";", "|"))


def for_platform(explained: Explained, platform: Platform) -> Explained:
    """The same explanations with commands that this machine's system has; all of them where its system is not known."""
    if platform.manager is Manager.NONE and platform.family is Family.OTHER:
        return explained
    return _mapped(explained, lambda commands: _own(commands, platform))


def for_saved_machine(explained: Explained, facts_file: str) -> Explained:
    """The same explanations with commands of ours that look at the saved machine, not at the one they are pasted on."""
    return _mapped(explained, lambda commands: about_saved_machine(commands, facts_file))


def about_saved_machine(commands: Commands, facts_file: str) -> Commands:
    """Commands such as `firstlight doctor` with --facts."""
    option = f" --facts {shlex.quote(facts_file)}"
    return Commands(commands.say, tuple(line + option if line in _OF_A_MACHINE else line for line in commands.run))


def _mapped(explained: Explained, change: Callable[[Commands], Commands]) -> Explained:
    return replace(explained, explanations=tuple(_changed(each, change) for each in explained.explanations))


def _changed(explanation: Explanation, change: Callable[[Commands], Commands]) -> Explanation:
    signature = explanation.signature
    told = ((way, change(way)) for way in signature.ways_out)
    ways = tuple(replace(way, say=new.say, run=new.run) for way, new in told)
    return replace(explanation, signature=replace(signature, prove=change(signature.prove), ways_out=ways))


def _own(commands: Commands, platform: Platform) -> Commands:
    foreign = [line for line in commands.run if _is_foreign(line, platform.manager)]
    if not foreign:
        return Commands(commands.say, commands.run)
    packages = dict.fromkeys(name for line in foreign for name in _installed(line))
    whose = "/".join(dict.fromkeys(program for line in foreign for program in _programs(line)))
    here = "a package manager that we do not know" if platform.manager is Manager.NONE else platform.manager.value
    wanted = f" Wanted is what {whose} calls {', '.join(packages)}." if packages else ""
    say = f"{commands.say} (Commands of {whose} are left out: this machine has {here}.{wanted})"
    return Commands(say.strip(), tuple(line for line in commands.run if line not in foreign))


def _is_foreign(line: str, manager: Manager) -> bool:
    return any(manager not in _PROGRAMS[program] for program in _programs(line))


def _programs(line: str) -> list[str]:
    """The programs of package managers that a command starts: 'sudo apt-get update && ...' -> ['apt-get']."""
    words = ["&&", *line.split()]
    starts = (word for before, word in itertools.pairwise(words) if before in _BEFORE_A_PROGRAM)
    return [word for word in starts if word in _PROGRAMS]


def _installed(line: str) -> list[str]:
    """The packages that a command installs: 'sudo apt-get install --yes gcc' -> ['gcc']."""
    _, found, names = line.partition(" install ")
    return [name for name in names.split() if name[0].isalnum()] if found and "&&" not in names else []
