"""One name that a source tree reads from outside, and where."""

from __future__ import annotations

import enum

from firstlight.frozen import dataclass


class ReadKind(enum.Enum):
    """How a name is read; the order is that of what a user would call it."""

    OPTION = "option"  # option() of CMake
    DEPENDENT_OPTION = "dependent option"  # cmake_dependent_option(): on only where something else is
    CACHE = "cache entry"  # set(... CACHE ...)
    CMAKE_ENVIRONMENT = "environment, in CMake"  # $ENV{NAME}
    ENVIRONMENT = "environment, in Python"  # os.environ, os.getenv in setup.py and what it imports
    VARIABLE = "variable"  # ${NAME} or if(NAME): -D may set it, and the file may set it again
    RUN_TIME = "environment, when it runs"  # getenv() of the program that is built


DECLARED = (ReadKind.OPTION, ReadKind.DEPENDENT_OPTION, ReadKind.CACHE)
BY_ENVIRONMENT = (ReadKind.CMAKE_ENVIRONMENT, ReadKind.ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class Read:
    """USE_CUDA, an option with the default ON, read at CMakeLists.txt:182."""

    name: str
    kind: ReadKind
    where: str
    default: str = ""
    says: str = ""
