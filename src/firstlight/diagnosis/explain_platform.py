"""Ways out for one machine: the commands of another system's package manager are left out, with what they install."""

from __future__ import annotations

import itertools
from dataclasses import replace

from firstlight.diagnosis.explain import Explained, Explanation
from firstlight.diagnosis.signatures import Commands, WayOut
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
_BEFORE_A_PROGRAM = frozenset(("sudo", "&&", "||", ";", "|"))


def for_platform(explained: Explained, platform: Platform) -> Explained:
    """The same explanations with commands that this machine's system has; all of them where its system is not known."""
    if platform.manager is Manager.NONE and platform.family is Family.OTHER:
        return explained
    return replace(explained, explanations=tuple(_fitted(each, platform) for each in explained.explanations))


def _fitted(explanation: Explanation, platform: Platform) -> Explanation:
    signature = explanation.signature
    ways = tuple(_way(each, platform) for each in signature.ways_out)
    return replace(explanation, signature=replace(signature, prove=_own(signature.prove, platform), ways_out=ways))


def _way(way: WayOut, platform: Platform) -> WayOut:
    own = _own(way, platform)
    return WayOut(own.say, own.run, way.ways)


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
