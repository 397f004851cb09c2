"""Which language a start-up file is written in, by its name and its first line."""

from __future__ import annotations

import enum
import posixpath
import re


class Dialect(enum.Enum):
    """How a start-up file is read."""

    SH = "sh"  # sh, bash, ksh and zsh
    FISH = "fish"
    CSH = "csh"
    ENVIRONMENT = "environment"  # NAME=value, no shell: /etc/environment


_BY_NAME = {
    ".cshrc": Dialect.CSH,
    ".tcshrc": Dialect.CSH,
    ".login": Dialect.CSH,
    "csh.cshrc": Dialect.CSH,
    "csh.login": Dialect.CSH,
    ".pam_environment": Dialect.ENVIRONMENT,
}
_BY_ENDING = {".fish": Dialect.FISH, ".csh": Dialect.CSH, ".tcsh": Dialect.CSH}


def dialect_of(path: str, text: str) -> Dialect:
    """The dialect of a file, e.g. FISH of ~/.config/fish/config.fish."""
    name = posixpath.basename(path)
    if path == "/etc/environment" or posixpath.basename(posixpath.dirname(path)) == "environment.d":
        return Dialect.ENVIRONMENT
    if name in _BY_NAME:
        return _BY_NAME[name]
    ending = posixpath.splitext(name)[1]
    if ending in _BY_ENDING:
        return _BY_ENDING[ending]
    first = re.match(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?(\w+)", text)
    if first is not None and first[1] in ("fish", "csh", "tcsh"):
        return Dialect.FISH if first[1] == "fish" else Dialect.CSH
    return Dialect.SH
