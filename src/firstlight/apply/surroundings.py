"""What a command is started in: the folder and the variables that decide what it takes and from where."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise

from firstlight.secrets import has_login

# Of the installers' own variables these say where to put things and how to be quiet, never what to take.
_HARMLESS = ("PIP_NO_INPUT", "PIP_DISABLE_PIP_VERSION_CHECK", "UV_CACHE_DIR", "UV_LINK_MODE", "UV_CONCURRENT_INSTALLS")
_PATHS = ("PIP_CONFIG_FILE", "PIP_CONSTRAINT", "PIP_FIND_LINKS", "PIP_REQUIREMENT", "PIP_CERT", "PIP_CLIENT_CERT")

_ENV_WORDS = 16  # `env NAME=value ... python -m pip`: how far the name of the program is looked for


def folder_for(argv: tuple[str, ...]) -> str | None:
    """The root folder for pip, which would run a pip.py of the folder it is started in; None: where we are."""
    by_pip = ("-m", "pip") in pairwise(argv[:_ENV_WORDS])
    return "/" if by_pip or is_from_list(argv) else None


def variables_for(argv: tuple[str, ...], env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a command; one that installs from a list gets none that names another place."""
    if is_from_list(argv):
        kept = {name: value for name, value in env.items() if name in _HARMLESS or not _is_installers(name)}
        return {**kept, "PIP_CONFIG_FILE": os.devnull}
    return {name: _from_here(value) if name in _PATHS else value for name, value in env.items()}


def logins_for(addresses: tuple[str, ...], env: Mapping[str, str]) -> dict[str, str]:
    """The variables that hand pip and uv the logins of indexes which their commands name without one.

    A command line is read by everybody on the machine and is kept in the journal. Both tools use the login of one
    index for another of the same host.
    """
    secret = tuple(each for each in addresses if has_login(each))
    names = ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL") if secret else ()
    return {name: " ".join(filter(None, (env.get(name, ""), *secret))) for name in names}


def is_from_list(argv: tuple[str, ...]) -> bool:
    """Whether a command installs what a file lists with its digests."""
    return "--require-hashes" in argv


def _is_installers(name: str) -> bool:
    return name.upper().startswith(("PIP_", "UV_"))


def _from_here(value: str) -> str:
    """Relative paths as they are meant, by the folder that firstlight was called in."""
    return " ".join(os.path.abspath(word) if os.path.exists(word) else word for word in value.split(" "))
