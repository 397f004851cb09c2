"""Environments that programs are started from: this one, a login shell, an interactive one, cron's and ssh's."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping

from firstlight.frozen import dataclass

LOGIN, INTERACTIVE, CRON, SSH = "login", "interactive", "cron", "ssh"
_POSIX_SHELLS = ("bash", "zsh", "sh", "dash", "ksh")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SSH_PORT = 22
_SSH = (
    "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=no",
    "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shelled:
    """A command line and the whole environment it starts with."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]


def in_shell(shell: str, argv: tuple[str, ...]) -> Shelled:
    """The command as it is started from a fresh shell; '' is the environment firstlight itself runs in.

    Fresh means: nothing but who the user is. What the shell's own files add is what is to be seen.
    """
    if not shell:
        return Shelled(argv, dict(os.environ))
    who = _who()
    if shell == LOGIN:
        return Shelled((_login_shell(), "-lc", 'exec "$0" "$@"', *argv), {**who, "PATH": _SYSTEM_PATH, "TERM": "dumb"})
    if shell == INTERACTIVE:  # what a terminal in a desktop or an editor starts: it reads .bashrc alone
        bash = _login_shell() if _login_shell().endswith(("bash", "zsh")) else "/bin/bash"
        return Shelled((bash, "-ic", 'exec "$0" "$@"', *argv), {**who, "PATH": _SYSTEM_PATH, "TERM": "dumb"})
    if shell == CRON:  # crontab(5): SHELL, LOGNAME, HOME and a PATH of two folders; no file is read
        only = {"HOME": who["HOME"], "LOGNAME": who["LOGNAME"], "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
        return Shelled(("/bin/sh", "-c", 'exec "$0" "$@"', *argv), only)
    assert shell == SSH, shell
    import shlex

    return Shelled((*_SSH, "localhost", shlex.join(argv)), dict(os.environ))


def ssh_answers(port: int = _SSH_PORT) -> str:
    """Why ssh to this machine is not tried; '' where a server answers and this user has a key that may fit.

    Without a key the server would log a refused login, so it is not asked.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.settimeout(2)
            banner = connection.recv(64)
    except OSError as error:
        return f"no ssh server answers on 127.0.0.1:{port} ({error.strerror or 'no answer'})"
    if not banner.startswith(b"SSH-"):
        return f"what answers on 127.0.0.1:{port} is not an ssh server"
    folder = os.path.join(_who()["HOME"], ".ssh")
    if not os.path.exists(os.path.join(folder, "authorized_keys")):
        return f"an ssh server answers, but {folder}/authorized_keys is not there: no key of this user is let in"
    names = os.listdir(folder) if os.access(folder, os.R_OK) else []
    if not os.environ.get("SSH_AUTH_SOCK") and not any(name.startswith("id_") for name in names):
        return f"an ssh server answers, but there is no key in {folder} and no agent to log in with"
    return ""


def _who() -> dict[str, str]:
    home = os.environ.get("HOME", "")
    try:
        entry = pwd.getpwuid(os.getuid())
        name, home, shell = entry.pw_name, home or entry.pw_dir, entry.pw_shell
    except KeyError:  # a container started with a user id that has no name
        name, shell = os.environ.get("USER", "nobody"), "/bin/sh"
    return {"HOME": home or "/", "USER": name, "LOGNAME": name, "SHELL": shell or "/bin/sh"}


def _login_shell() -> str:
    """The user's own shell where it takes -lc as a POSIX shell does, else bash or sh."""
    shell = _who()["SHELL"]
    if os.path.basename(shell) in _POSIX_SHELLS and os.access(shell, os.X_OK):
        return shell
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
