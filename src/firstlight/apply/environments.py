"""What is installed in a Python environment: distributions, whether they are whole, and what a killed pip left."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Any

from firstlight.apply.children import child_script
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine.spawn import ask_python

LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Installed:
    """One distribution, e.g. torch 2.9.0+cu130; `torn` says what is missing of it, "" where it is whole."""

    name: str  # normal form: flash-attn
    version: str  # "" where neither its metadata nor its folder's name tells
    path: str  # of its .dist-info or .egg-info
    torn: str
    recorded: bool  # its installer wrote a RECORD: pip and uv came to their end
    direct: bool  # it came from a folder, a file or a repository, not from an index
    requested: bool  # somebody asked for it by name; without it, it came because another package needs it

    @property
    def pin(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True)
class Debris:
    """What pip moved aside and never took away, e.g. site-packages/~orch of site-packages/torch."""

    path: str
    real: str  # "" where it could have been more than one thing, or nothing we know
    owners: tuple[str, ...]  # distributions that list `real`


@dataclass(frozen=True, slots=True)
class Environment:
    """All of an environment that pip and uv change."""

    distributions: tuple[Installed, ...]
    debris: tuple[Debris, ...]
    unowned: tuple[str, ...]  # files and folders where packages are installed to that no distribution lists

    @property
    def pins(self) -> tuple[str, ...]:
        """name==version of everything, sorted."""
        return tuple(sorted({each.pin for each in self.distributions}))

    @property
    def torn(self) -> tuple[str, ...]:
        """The names of which no whole copy is there."""
        return tuple(sorted({each.name for each in self.distributions} - self.whole))

    @property
    def whole(self) -> frozenset[str]:
        return frozenset(each.name for each in self.distributions if not each.torn)

    def named(self, name: str) -> tuple[Installed, ...]:
        """The copies of a distribution; one, unless something went wrong."""
        return tuple(each for each in self.distributions if each.name == name)


EMPTY = Environment((), (), ())


def look_at(interpreter: str, folder: str = "") -> Fact[Environment]:
    """What is installed; an environment that was not made yet is known to be empty, one that gives no answer is not.

    `folder`: what lies there alone, whether or not the interpreter has it on its path, e.g. a user's own packages.
    """
    try:
        there = is_there(interpreter)
    except OSError as error:
        return Unknown(f"{interpreter} could not be looked at: {error.strerror}")
    if not there:
        left = folder or _packages_beside(interpreter)
        if left:
            return Unknown(f"{interpreter} is not there, and {left} is: an environment without its interpreter")
        return Known(EMPTY, f"there is no {interpreter} yet")
    bare = (interpreter, "-I", "-B")  # -B: looking leaves no compiled files behind
    return _asked(bare, (folder,) if folder else (), os.environ)


def first_on_path(python: tuple[str, ...], env: Mapping[str, str]) -> Fact[Environment]:
    """What a command that is started as this Python sees, a user's own packages and PYTHONPATH too, in its order."""
    return _asked((*python, "-B"), (), env)


def _asked(python: tuple[str, ...], folders: tuple[str, ...], env: Mapping[str, str]) -> Fact[Environment]:
    interpreter = next(each for each in reversed(python) if each not in ("-I", "-B"))
    said = ask_python(python, child_script("environment"), folders, timeout_s=LIMIT_S, env=env)
    if not said.ok:
        return Unknown(f"{interpreter} was asked what is installed: {said.complaint}")
    try:
        return Known(_environment(said.answer), interpreter)
    except (KeyError, TypeError, ValueError) as error:
        return Unknown(f"{interpreter} was asked what is installed, and its answer cannot be read ({error!r})")


def is_there(path: str) -> bool:
    """Whether something is at a path, links not followed; an OSError where nobody may look, which is not a no."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _environment(answer: Any) -> Environment:
    return Environment(
        tuple(_installed(each) for each in answer["distributions"]),
        tuple(Debris(str(each["path"]), str(each["real"]), tuple(each["owners"])) for each in answer["debris"]),
        tuple(str(each) for each in answer["unowned"]),
    )


def _installed(said: Any) -> Installed:
    return Installed(
        name=str(said["name"]),
        version=str(said["version"]),
        path=str(said["path"]),
        torn=str(said["torn"]),
        recorded=bool(said["recorded"]),
        direct=bool(said["direct"]),
        requested=bool(said["requested"]),
    )


def _packages_beside(interpreter: str) -> str:
    """A package in the folder that the interpreter would have used, e.g. where somebody removed bin/ alone."""
    prefix = glob.escape(os.path.dirname(os.path.dirname(interpreter)))
    if not os.path.isfile(f"{os.path.dirname(os.path.dirname(interpreter))}/pyvenv.cfg"):
        return ""
    return next(iter(glob.glob(f"{prefix}/lib*/python3*/site-packages/*.dist-info")), "")
