"""Start a user's command in the place of this process, as a shell would: its search, its signals, its complaints."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from typing import NoReturn

from firstlight.errors import NotStarted

SHELL = "/bin/sh"
# Python ignores these from its first line on, and a program keeps what was ignored where it was started.
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ", "SIGXFZ")
_FIRST_BYTES = 80  # of a file without #!, as bash looks at them to tell a script from a binary
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def program_of(word: str, path: str | None) -> str:
    """The file that a shell would start for a word, e.g. /usr/bin/python3 for python3; with a slash it is a path."""
    if "/" in word:
        try:
            os.stat(word)
        except OSError as error:
            raise _refused(word, error.errno or 0) from None
        if os.path.isdir(word):
            raise _refused(word, errno.EACCES)
        return word
    there = ""
    for folder in (os.defpath if path is None else path).split(":") if word else ():
        file = os.path.join(folder or ".", word)
        if os.path.isfile(file):
            if os.access(file, os.X_OK):
                return file
            there = there or file
    if there:
        raise _refused(there, errno.EACCES)
    raise NotStarted(f"{word!a}: command not found. Give its path, or put its folder on PATH.", exit_code=_NOT_FOUND)


def start(program: str, words: tuple[str, ...], environment: Mapping[str, str]) -> NoReturn:
    """Become the program; a script without #! is read by the shell. Raises NotStarted with a shell's exit code."""
    numbers = [getattr(signal, name) for name in _IGNORED_BY_PYTHON if hasattr(signal, name)]
    environment = _without_coerced_locale(environment)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    try:
        os.execve(program, list(words), environment)  # noqa: S606 the user's own command, as given
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise _refused(program, error.errno or 0) from None
        if not _may_be_a_script(program):
            raise _refused(program, errno.ENOEXEC) from None
        os.execve(SHELL, [SHELL, program, *words[1:]], environment)  # noqa: S606 what execvp(3) does
    finally:  # still here: the complaint is ours to print
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _without_coerced_locale(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the LC_CTYPE that Python sets for itself in the C locale (PEP 538)."""
    kept = dict(environment)
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read().split(b"\0")
    except OSError:
        return kept
    if not any(each.startswith(b"LC_CTYPE=") for each in given):
        kept.pop("LC_CTYPE", None)
    return kept


def _may_be_a_script(program: str) -> bool:
    """Whether a file that the kernel does not know is text: no ELF file, and no zero byte in its first line."""
    first = _beginning(program)
    return first is not None and not first.startswith(b"\x7fELF") and b"\0" not in first.partition(b"\n")[0]


def _beginning(program: str) -> bytes | None:
    """The first bytes of a plain file; None where it cannot be read. A FIFO would keep us waiting."""
    try:
        if not os.path.isfile(program):
            return None
        with open(program, "rb") as file:
            return file.read(_FIRST_BYTES)
    except OSError:
        return None


def _refused(program: str, number: int) -> NotStarted:
    """What a shell says for an error of exec, and what to do about it."""
    if number == errno.ENOENT:
        if not os.path.lexists(program) or not os.path.exists(program):
            return NotStarted(f"{program!a}: no such file. Look at its name and folder.", exit_code=_NOT_FOUND)
        needs = _interpreter_of(program)
        what = f"it asks for {needs!a}, which is not there" if needs else "what it asks for to be started is not there"
        return NotStarted(
            f"{program!a}: cannot execute: {what}. Install that, or name another in the file.", exit_code=_NOT_FOUND
        )
    if number == errno.EACCES and os.path.isdir(program):
        said = "is a folder. Name a program in it."
    elif number == errno.EACCES and os.path.isfile(program) and not os.access(program, os.X_OK):
        said = "permission denied: it is not executable. Start it with its interpreter, or chmod +x it."
    elif number == errno.EACCES:
        needs = _interpreter_of(program)
        of = f" of {needs!a}, which it asks for" if needs else ""
        said = f"permission denied. Look at the rights{of or ' of it and of its folders'}."
    elif number == errno.ENOEXEC:
        said = "cannot execute binary file: this machine does not know its format. Is it whole, and for this machine?"
    else:
        said = f"{os.strerror(number).lower()}. It was not started."
    return NotStarted(f"{program!a}: {said}", exit_code=_NOT_EXECUTABLE)


def _interpreter_of(program: str) -> str:
    """What the first line of a script asks for; '' where there is none, and for what is no script."""
    first = (_beginning(program) or b"").partition(b"\n")[0]
    words = first[2:].split() if first.startswith(b"#!") else []
    return words[0].decode("utf-8", "replace") if words else ""
