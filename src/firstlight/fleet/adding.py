"""A host that is added by hand: a block of ssh_config and a line of an inventory, as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.fleet.target import Target, parse_target
from firstlight.frozen import dataclass

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])?")
_POD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_POD_ALIAS = re.compile(r"(?im)^[ \t]*HostKeyAlias[ \t]+pod-([A-Za-z0-9][A-Za-z0-9_-]{0,63})[ \t]*$")
_HOST_LINE = re.compile(r"\s*host\s+(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Added:
    """A host under a name of the team's; the key of a pod is kept under its id, since addresses change hands."""

    name: str
    target: Target
    pod: str = ""

    @property
    def key_alias(self) -> str:
        return f"pod-{self.pod}" if self.pod else self.name


def parse_added(name: str, address: str, pod: str) -> Added:
    """What was given, refused where it could be an option or a pattern of ssh."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"{ascii(name)[:80]} is not a name for a host; accepted: letters, digits, _ . - as in pod1")
    if pod and not _POD.fullmatch(pod):
        raise BadInput(f"--pod {ascii(pod)[:80]}: accepted is the id that the provider shows, e.g. a1b2c3d4e5")
    return Added(name, parse_target(address), pod)


def block_of(added: Added, known_hosts: str) -> str:
    """The block for ssh: strict about keys, which are kept in a file of the project's own."""
    target = added.target
    lines = [
        f"Host {added.name}",
        f"    HostName {target.host.replace('%', '%%')}",  # fe80::1%eth0: ssh reads %e as a word of its own
        *((f"    User {target.user}",) if target.user else ()),
        f"    Port {target.port or 22}",
        f"    HostKeyAlias {added.key_alias}",
        f'    UserKnownHostsFile "{known_hosts}"',
        "    StrictHostKeyChecking yes",
    ]
    return "\n".join(lines) + "\n"


def with_pod_of(text: str, added: Added) -> Added:
    """The host with the pod that the ssh_config has for it, where none was given: its key is kept under that id."""
    if added.pod:
        return added
    for block in _blocks(text):
        match = _POD_ALIAS.search(block) if _named(block) == added.name else None
        if match is not None and f"pod-{match.group(1)}" != added.name:
            return replace(added, pod=match.group(1))
    return added


def config_with(text: str, added: Added, known_hosts: str) -> str:
    """The ssh_config with the host's block in the place of an older one of that name, or behind the others."""
    kept = [block.rstrip("\n") for block in _blocks(text) if _named(block) != added.name]
    return "\n\n".join(block for block in (*kept, block_of(added, known_hosts).rstrip("\n")) if block) + "\n"


def inventory_with(text: str, added: Added) -> str:
    """The inventory with the name in a line of its own; Ansible reads the same file."""
    if added.name in text.split():
        return text
    return (text if not text or text.endswith("\n") else f"{text}\n") + f"{added.name}\n"


def _blocks(text: str) -> Iterator[str]:
    """What stands before the first Host, and each block from its Host on."""
    block = ""
    for line in text.splitlines(keepends=True):
        if _HOST_LINE.fullmatch(line.rstrip("\n")) and block:
            yield block
            block = ""
        block += line
    if block.strip():
        yield block


def _named(block: str) -> str:
    match = _HOST_LINE.match(block)
    return match.group(1).strip() if match else ""
