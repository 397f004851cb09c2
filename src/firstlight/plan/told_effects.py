"""What the lines of a finding take: root, and whether what they remove comes back."""

from __future__ import annotations

import re

from firstlight.plan.option import Reversible

# A command stands at the start of a line, behind a sign of the shell, or behind words: 'then: apt-get purge NAME'.
_AT = r"(?:^|[\s'\"|&;])"
_OF_ROOT = re.compile(
    _AT + r"(?:sudo|ldconfig|apt-mark|update-initramfs|modprobe|rmmod|mokutil|reboot)(?=[\s,]|$)"
    r"|" + _AT + r"(?:apt|apt-get|dpkg|dnf|yum|rpm)\s+\S"
    r"|" + _AT + r"(?:rm|mv|ln|cp|tee)\s[^|;&]*?/(?:usr|etc|lib|lib64|opt|var)/"
    r"|" + _AT + r"find\s+/(?:usr|etc|lib|lib64|opt|var)/.*\s-delete"
)
_DELETES = re.compile(_AT + r"(?:rm\s|find\s.*\s-delete)")
_UNINSTALLS = re.compile(_AT + r"(?:apt|apt-get|dnf|yum)\s+(?:remove|purge|autoremove)|\bpip uninstall\b")
_ELSEWHERE = ("in the image:", "on the host,")  # whoever may do it there is not the user here


def takes_root(lines: tuple[str, ...]) -> bool:
    """Whether a command in any of the lines takes root; another way to do a step does not count."""
    return any(_OF_ROOT.search(_command(line)) for line in lines if not line.startswith(("or ", *_ELSEWHERE)))


def reversible_by(lines: tuple[str, ...]) -> Reversible:
    """How far what the lines do can be taken back where they have no way back of their own.

    A file that is deleted is gone; a package that is removed can be installed again, perhaps in another version.
    """
    commands = [_command(line) for line in lines if not line.startswith("or ")]
    if any(_DELETES.search(line) for line in commands):
        return Reversible.NO
    return Reversible.PARTLY if any(_UNINSTALLS.search(line) for line in commands) else Reversible.YES


def least(*ways: Reversible) -> Reversible:
    """Of several parts the one that comes back least: no before partly before yes."""
    return max(ways, key=tuple(Reversible).index)


def _command(line: str) -> str:
    return line.partition("  # ")[0]
