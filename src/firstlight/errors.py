"""The one exception tree.

    FirstlightError            what every caller may catch
    +-- BadInput               a file, argument or field that we were given is not usable (exit 2)
    |   +-- BadVersion         text that is not a version of the kind asked for
    |   +-- BadFactsFile       a facts document or recorded machine that cannot be read back
    |   +-- UnsupportedInput   a tensor, block pattern or option that the kernels do not take
    |   +-- NotOurs            a file that we would act on and that another user made, or can change
    +-- CouldNotLook           a host or needed data is out of reach (exit 4)
    |   +-- HostNotReached     ssh did not get an answer of a host
    +-- NotStarted             the command behind `run` could not be started (126 or 127, as a shell has it)
    +-- CouldNotAct            a change to the machine was refused or failed; what was done is in the journal (exit 1)
        +-- NotBegun           the lock or the journal could not be had, so that nothing was begun (exit 1)
        +-- AnotherIsActing    another firstlight holds the machine's lock (exit 4)

A bad machine is a Finding (data), never one of these. Messages say what was given, what is
accepted and what to do, in one line.
"""

from __future__ import annotations


class FirstlightError(Exception):
    """Root of the tree; carries the exit code that the command line uses."""

    exit_code = 5


class BadInput(FirstlightError):
    """What we were given cannot be used."""

    exit_code = 2


class BadVersion(BadInput, ValueError):
    """Text that is not a version of the kind asked for, e.g. 'abc' as a driver version."""


class BadFactsFile(BadInput):
    """A facts document or recorded machine that cannot be read back; names the field."""


class UnsupportedInput(BadInput, ValueError):
    """A tensor, block pattern or option that the kernels do not take, e.g. block 48."""


class NotOurs(BadInput):
    """A file or folder that we would act on and that another user made, or can change; names owner and mode.

    `do` says what makes it ours again, e.g. "close it to others with `chmod go-w /x`"; "" where nothing does.
    """

    def __init__(self, message: str, *, do: str = "") -> None:
        super().__init__(message)
        self.do = do


class CouldNotLook(FirstlightError):
    """A host or needed data is out of reach."""

    exit_code = 4


class HostNotReached(CouldNotLook):
    """ssh did not get an answer of a host; `do` is the one command that helps, "" where none does."""

    def __init__(self, reason: str, *, do: str = "") -> None:
        super().__init__(f"{reason}: {do}" if do else reason)
        self.reason, self.do = reason, do


class NotStarted(FirstlightError):
    """A user's command that could not be started; carries the exit code that a shell would end with."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class CouldNotAct(FirstlightError):
    """A change to the machine was refused or failed; the journal holds what was done before it."""

    exit_code = 1


class NotBegun(CouldNotAct):
    """The lock or the journal could not be had: there is nothing to go on with or to take back."""


class AnotherIsActing(CouldNotAct):
    """Another firstlight is changing this machine now."""

    exit_code = 4
