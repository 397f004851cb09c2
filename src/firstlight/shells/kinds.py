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

# Files that a shell reads by itself in a home folder; in /etc they have no dot.
START_FILES = (
    ".profile", ".bash_profile", ".bash_login", ".bashrc", ".zshenv", ".zprofile", ".zshrc", ".zlogin", ".kshrc",
    ".login", ".cshrc", ".tcshrc", ".pam_environment",
)  # fmt: skip
_IN_ETC = ("/etc/environment", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/csh.cshrc", "/etc/csh.login")
_FOLDERS = ("profile.d", "activate.d", "environment.d", "zsh")


def is_start_file(path: str) -> bool:
    """Whether shells read a file by themselves, e.g. ~/.bashrc; one that another file reads in is none."""
    folder, name = posixpath.split(path)
    if name in START_FILES or path in _IN_ETC or posixpath.basename(folder) in _FOLDERS:
        return True
    return name.endswith(".fish") and posixpath.basename(folder) in ("fish", "conf.d")


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
