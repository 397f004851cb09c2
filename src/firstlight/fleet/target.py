"""What a host is called on the command line: [USER@]HOST[:PORT], or a name of ssh_config."""

from __future__ import annotations

import re

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

MOST_HOSTS = 1000
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_ACCEPTED = "[USER@]HOST[:PORT] or a name of ssh_config, e.g. root@10.0.0.7:2222, node01 or [fe80::1]:22"
# What ssh itself would read as an option, or hand to a shell of ours, is no name.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}\$?")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\.?")
_IPV6 = re.compile(r"(?=[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:)[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9_.-]{1,32})?")


@dataclass(frozen=True, slots=True)
class Target:
    """A host as it was named, e.g. Target("root@pod:2222", "pod", user="root", port=2222)."""

    name: str
    host: str
    user: str = ""
    port: int = 0  # 0: what ssh_config says, else 22

    @property
    def spec(self) -> str:
        """What leads there on a command line, e.g. root@10.0.0.7:2222, also where its name is one of an inventory."""
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")

    @property
    def words(self) -> tuple[str, ...]:
        """What ssh is given to reach it; `--` ends its options, so that no name can be one."""
        port = ("-p", str(self.port)) if self.port else ()
        user = ("-l", self.user) if self.user else ()
        return (*port, *user, "--", self.host)


def parse_target(given: str) -> Target:
    """The host that a text names; everything else is refused before anything is connected to."""
    user, at, rest = given.rpartition("@")
    host, port = _host_and_port(rest)
    if (at and not _USER.fullmatch(user)) or not (_NAME.fullmatch(host) or _IPV6.fullmatch(host)):
        raise BadInput(f"{_shown(given)} is not a host; accepted: {_ACCEPTED}")
    return Target(given, host, user, _port(port, given))


def parse_targets(given: str) -> tuple[Target, ...]:
    """The hosts of a list with commas, e.g. "node01,root@pod:2222"."""
    parts = [part.strip() for part in given.split(",")]
    if not any(parts):
        raise BadInput(f"no host was given; accepted: {_ACCEPTED}, several with commas")
    return checked(tuple(parse_target(part) for part in parts))


def checked(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """The same hosts, refused where one is named twice or where they are too many for one table."""
    if not targets:
        raise BadInput("the inventory names no host; give at least one")
    if len(targets) > MOST_HOSTS:
        raise BadInput(
            f"{len(targets):,} hosts were given; at most {MOST_HOSTS:,} are looked at. Name a group of them."
        )
    seen: dict[str, Target] = {}
    for target in targets:
        if target.name in seen:
            raise BadInput(f"{_shown(target.name)} was given twice; name each host once")
        seen[target.name] = target
    return targets


def once_each(reached: tuple[tuple[Target, str], ...]) -> None:
    """Refuse a machine that stands under two names: (target, where ssh goes for it, e.g. "10.0.0.7:22")."""
    seen: dict[str, str] = {}
    for target, found in reached:
        name, colon, port = found.rpartition(":")
        where = f"localhost{colon}{port}" if name in _THIS_MACHINE else found
        if where in seen:
            raise BadInput(f"{_shown(seen[where])} and {_shown(target.name)} are the same host ({where}); name it once")
        seen[where] = target.name


def _host_and_port(rest: str) -> tuple[str, str]:
    if rest.startswith("["):
        host, closed, after = rest[1:].partition("]")
        return (host, after[1:]) if closed and (not after or after.startswith(":")) else ("", "")
    if rest.count(":") > 1:  # an IPv6 address without brackets has no port
        return rest, ""
    host, _, port = rest.partition(":")
    return host, port if ":" in rest else ""


def _port(text: str, given: str) -> int:
    if not text:
        if given.endswith(":") and "[" not in given and given.count(":") == 1:
            raise BadInput(f"{_shown(given)} has no port behind its colon; accepted: {_ACCEPTED}")
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 5 or not 0 < int(text) < 65536:
        raise BadInput(f"{_shown(given)}: {_shown(text)} is not a port; accepted: 1 to 65535")
    return int(text)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")
