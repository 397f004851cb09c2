"""Which shells read a start-up file, and how each is asked whether it parses and what it sets."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import shutil

from firstlight.frozen import dataclass
from firstlight.shells.kinds import Dialect, dialect_of, is_start_file


@dataclass(frozen=True, slots=True)
class Reader:
    """One shell in one manner, e.g. bash, interactive."""

    shell: str
    options: tuple[str, ...]  # so that it reads nothing but the file that it is given
    parses: tuple[str, ...]  # the options with which it reads a file and runs nothing
    sources: str = "."

    def parse(self, file: str) -> tuple[str, ...]:
        return (self.shell, *self.parses, file)

    def run(self, file: str, *, answer: str) -> tuple[str, ...]:
        """Reads the file as at a start, then writes the environment of a child into `answer`."""
        say = f"{self.sources} {shlex.quote(file)}; {shutil.which('env') or '/usr/bin/env'} -0 > {shlex.quote(answer)}"
        return (self.shell, *self.options, "-c", say)


_BASH_LOGIN = Reader("bash", ("--noprofile", "--norc", "-l"), ("-n",))
_BASH_INTERACTIVE = Reader("bash", ("--noprofile", "--norc", "-i"), ("-n",))
_BASH = Reader("bash", ("--noprofile", "--norc"), ("-n",))
_SH = Reader("sh", (), ("-n",))
_ZSH = Reader("zsh", ("-f",), ("-f", "-n"))
_ZSH_LOGIN = Reader("zsh", ("-f", "-l"), ("-f", "-n"))
_ZSH_INTERACTIVE = Reader("zsh", ("-f", "-i"), ("-f", "-n"))
_KSH_INTERACTIVE = Reader("ksh", ("-i",), ("-n",))
_KSH = Reader("ksh", (), ("-n",))
_FISH = Reader("fish", ("--no-config", "-l"), ("--no-config", "--no-execute"), "source")
_FISH_INTERACTIVE = Reader("fish", ("--no-config", "-i"), ("--no-config", "--no-execute"), "source")
_TCSH = Reader("tcsh", ("-f",), ("-f", "-n"), "source")
_CSH = Reader("csh", ("-f",), ("-f", "-n"), "source")

_BY_NAME: dict[str, tuple[Reader, ...]] = {
    ".bashrc": (_BASH_INTERACTIVE,),
    "bash.bashrc": (_BASH_INTERACTIVE,),
    "bashrc": (_BASH_INTERACTIVE,),
    ".bash_profile": (_BASH_LOGIN,),
    ".bash_login": (_BASH_LOGIN,),
    ".profile": (_BASH_LOGIN, _SH),
    "profile": (_BASH_LOGIN, _SH),
    ".zshenv": (_ZSH,),
    "zshenv": (_ZSH,),
    ".zprofile": (_ZSH_LOGIN,),
    "zprofile": (_ZSH_LOGIN,),
    ".zlogin": (_ZSH_LOGIN,),
    ".zshrc": (_ZSH_INTERACTIVE,),
    "zshrc": (_ZSH_INTERACTIVE,),
    ".kshrc": (_KSH_INTERACTIVE,),
    ".login": (_TCSH, _CSH),
    ".cshrc": (_TCSH, _CSH),
    ".tcshrc": (_TCSH,),
}
_BY_SHELL = {"sh": (_SH,), "dash": (_SH,), "bash": (_BASH,), "zsh": (_ZSH,), "ksh": (_KSH,)}


def is_shell_file(path: str, text: str) -> bool:
    """Whether a file is text for a shell, or for those that read NAME=value beside them."""
    ending = posixpath.splitext(path)[1] in (".sh", ".bash", ".zsh", ".ksh", ".fish", ".csh")
    return is_start_file(path) or ending or bool(_named_in_first_line(text))


def readers_of(path: str, text: str) -> tuple[Reader, ...]:
    """The shells that read a file, whether they are on this machine or not."""
    name, dialect = posixpath.basename(path), dialect_of(path, text)
    if dialect is Dialect.FISH:
        return (_FISH, _FISH_INTERACTIVE)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if dialect is Dialect.CSH:
        return (_TCSH, _CSH)
    named = _named_in_first_line(text) or posixpath.splitext(name)[1].removeprefix(".")
    return _BY_SHELL.get(named, ()) if named not in ("", "sh") else (_BASH, _SH)


def there(readers: tuple[Reader, ...]) -> tuple[Reader, ...]:
    """Those of them that are on this machine; csh is often tcsh under another name."""
    found = [reader for reader in readers if shutil.which(reader.shell)]
    names = {os.path.realpath(shutil.which(reader.shell) or ""): reader for reader in reversed(found)}
    return tuple(reader for reader in found if reader in names.values() or reader.shell in ("bash", "zsh", "fish"))


def _named_in_first_line(text: str) -> str:
    """zsh of #!/usr/bin/env zsh; "" where no shell is named."""
    match = re.match(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?(sh|dash|bash|zsh|ksh|fish|csh|tcsh)\b", text)
    return match[1] if match else ""
