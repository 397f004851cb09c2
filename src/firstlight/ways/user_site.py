"""The folder of a user's own packages (pip's --user): which it is, and a pip that sees what is in it first."""

from __future__ import annotations

import posixpath

from firstlight.facts.distributions import find_distribution
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.ways.back import Argv

_OF_THEIR_OWN = (EnvironmentKind.VENV, EnvironmentKind.UV_VENV, EnvironmentKind.TOOL)
MANAGED = "--break-system-packages"  # what lies in the home folder is no package of the distribution's


def user_site_of(environment: PythonEnvironment | None) -> str:
    """/home/user/.local/lib/python3.12/site-packages where it comes before the environment's own; "" elsewhere.

    In a virtual environment it comes behind, if at all, and pip takes nothing out of it there.
    """
    if environment is None or environment.kind in _OF_THEIR_OWN or not environment.site_packages:
        return ""
    first = environment.site_packages[0]
    return "" if first.startswith((f"{environment.prefix}/", "/usr/")) else first


def base_of(folder: str) -> str:
    """/home/user/.local of /home/user/.local/lib/python3.12/site-packages; "" of a folder of another form."""
    lib = posixpath.dirname(folder)
    above = posixpath.dirname(lib)
    of_user = posixpath.basename(folder) == "site-packages" and posixpath.basename(lib).startswith("python3")
    return posixpath.dirname(above) if of_user and posixpath.basename(above) == "lib" else ""


def seeing_first(python: str, folder: str) -> Argv:
    """The interpreter with this user folder in front of all else, whatever the variables of the caller say."""
    return ("env", "-u", "PYTHONPATH", "-u", "PYTHONNOUSERSITE", f"PYTHONUSERBASE={base_of(folder)}", python)


def taken_out(python: str, folder: str, names: tuple[str, ...], *, environment: PythonEnvironment) -> Argv:
    """The command that takes packages out of a user folder."""
    flags = (MANAGED,) if environment.externally_managed else ()
    return (*seeing_first(python, folder), "-m", "pip", "uninstall", "--yes", *flags, *names)


def put_back(uninstall: Argv) -> Argv:
    """How the same pip puts packages into the folder that the command takes them out of, with nothing else changed."""
    flags = (MANAGED,) if MANAGED in uninstall else ()
    return (*uninstall[: uninstall.index("uninstall")], "install", "--user", "--no-deps", *flags)


def folder_of_copy(environment: PythonEnvironment | None, name: str) -> str:
    """Where the copy lies that pip would take out, if others lie elsewhere or it is a user's own; "" elsewhere."""
    found = None if environment is None else find_distribution(environment.distributions, name)
    if environment is None or found is None:
        return ""
    folders = {each.folder for each in environment.distributions if each.name == name}
    return found.folder if len(folders) > 1 or found.folder == user_site_of(environment) else ""
