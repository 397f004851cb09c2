"""Names of programs that an action is followed through, and how each is called."""

from __future__ import annotations

import re

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish", "busybox"}
_PYTHON = re.compile(r"(?:python|pypy|ipython)[\d.]*t?|py|pythonw")
_PIP = re.compile(r"pip[\d.]*|pip-[\d.]+")
EVAL_FLAGS = {
    "perl": ("-e", "-E"),
    "ruby": ("-e",),
    "node": ("-e", "--eval", "-p", "--print"),
    "nodejs": ("-e", "--eval", "-p", "--print"),
    "php": ("-r",),
    "lua": ("-e",),
    "deno": ("eval",),
    "bun": ("-e", "--eval"),
    "Rscript": ("-e",),
    "R": ("-e",),
    "julia": ("-e", "-E", "--eval", "--print"),
}

# wrapper -> (options that take a value in the next word, words before the command)
WRAPPERS: dict[str, tuple[frozenset[str], int]] = {
    "sudo": (
        frozenset(
            [
                "-u",
                "-g",
                "-h",
                "-p",
                "-C",
                "-r",
                "-t",
                "-T",
                "-U",
                "-D",
                "-R",
                "--user",
                "--group",
                "--host",
                "--prompt",
                "--chdir",
                "--chroot",
            ]
        ),
        0,
    ),
    "doas": (frozenset(("-u", "-C")), 0),
    "nice": (frozenset(("-n", "--adjustment")), 0),
    "ionice": (frozenset(["-c", "-n", "-p", "-P", "-u", "--class", "--classdata"]), 0),
    "timeout": (frozenset(["-k", "-s", "--kill-after", "--signal"]), 1),
    "gtimeout": (frozenset(["-k", "-s", "--kill-after", "--signal"]), 1),
    "nohup": (frozenset(), 0),
    "setsid": (frozenset(), 0),
    "stdbuf": (frozenset(["-i", "-o", "-e", "--input", "--output", "--error"]), 0),
    "chrt": (frozenset(["-T", "-P", "-D"]), 1),
    "taskset": (frozenset(), 1),
    "numactl": (frozenset(["-N", "-m", "-C", "-i", "-p", "-S", "-f", "-L", "-l"]), 0),
    "time": (frozenset(["-f", "-o", "--format", "--output"]), 0),
    "command": (frozenset(), 0),
    "builtin": (frozenset(), 0),
    "exec": (frozenset(("-a",)), 0),
    "coproc": (frozenset(), 0),
    "then": (frozenset(), 0),
    "chroot": (frozenset(), 1),
    "flock": (frozenset(["-w", "-E", "--timeout", "--conflict-exit-code"]), 1),
    "unbuffer": (frozenset(), 0),
    "caffeinate": (frozenset(("-t", "-w")), 0),
    "catchsegv": (frozenset(), 0),
    "watch": (frozenset(["-n", "--interval", "-q", "--equexit"]), 0),
    "fakeroot": (frozenset(("-l", "-s", "-i")), 0),
    "dbus-run-session": (frozenset(), 0),
    "proxychains4": (frozenset(("-f",)), 0),
}
CONTAINERS = {
    "docker",
    "podman",
    "nerdctl",
    "apptainer",
    "singularity",
    "kubectl",
    "enroot",
    "docker-compose",
    "buildah",
}
MANAGERS = {
    "uv", "uvx", "conda", "mamba", "micromamba", "pixi", "apt", "apt-get", "aptitude", "dnf", "yum", "zypper",
    "microdnf",
    "tdnf", "apk", "pacman", "brew", "poetry", "pdm", "pipenv", "pipx", "easy_install", "pip-sync", "hatch", "rye",
    "npm", "yarn",
    "pnpm", "bun", "cargo", "gem", "go", "snap", "dpkg", "rpm", "apt-mark",
}  # fmt: skip
# Programs whose words are words: nothing that they are given is run.
PLAIN = {
    "echo", "printf", "grep", "egrep", "fgrep", "rg", "ag", "git", "gh", "man", "which", "type", "whereis", "ls",
    "cat",
    "less", "more", "head", "tail", "wc", "sort", "uniq", "cut", "tr", "sed", "awk", "jq", "diff", "cmp", "file",
    "stat",
    "rm", "cp", "mv", "ln", "mkdir", "touch", "chmod", "chown", "test", "[", "cd", "pwd", "true", "false", ":",
    "export",
    "curl", "wget", "tar", "zip", "unzip", "du", "df", "ps", "kill", "date", "sleep", "basename", "dirname",
    "realpath",
    "readlink", "info", "help", "apropos", "tldr", "apt-cache", "ldd", "nm", "readelf", "tee",
    "sha256sum", "md5sum", "base64", "pkill", "pgrep", "killall", "pytest", "ruff", "mypy", "code", "hash",
    "systemctl",
    "rsync", "scp", "openssl", "tree", "vim", "vi", "nano", "emacs", "set", "unset", "return", "exit", "local",
    "read",
}  # fmt: skip
# Programs that overwrite files which their words do not name: overwrites.py says which.
OVERWRITE = {"git", "patch", "cp", "rsync", "scp", "tar", "bsdtar", "unzip"}
# Programs that run text which they are handed: runners.py follows it.
RUNNERS = {
    "awk", "gawk", "mawk", "nawk", "sed", "gsed", "vim", "vi", "nvim", "ex", "ed", "view", "gvim", "emacs", "tmux",
    "screen", "at", "batch", "gdb", "lldb", "cuda-gdb", "git", "just",
}  # fmt: skip
# Variables whose value is a command that another program runs.
COMMANDS_IN_VARIABLES = {
    "PROMPT_COMMAND", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "SUDO_EDITOR", "RSYNC_RSH", "GIT_EDITOR", "GIT_PAGER",
    "GIT_SEQUENCE_EDITOR", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EXTERNAL_DIFF", "GIT_ASKPASS",
}  # fmt: skip
# What these print is made to be given to eval.
EVAL_SAFE = {"ssh-agent", "dircolors", "direnv", "brew", "starship", "zoxide", "fnm", "pyenv", "rbenv", "lesspipe"}
BUILTINS_THAT_DO_NOTHING = {
    "cd", "true", "false", ":", "test", "[", "pwd", "exit", "return", "echo", "printf", "export", "local", "readonly",
    "declare", "unset", "set", "shift", "break", "continue", "wait", "umask", "read", "pushd", "popd", "type", "let",
}  # fmt: skip
COMPILERS = {"nvcc", "gcc", "g++", "cc", "c++", "clang", "clang++", "nvc", "nvc++", "hipcc", "rustc", "ninja",
        "cmake",
             "ptxas", "nvlink", "ld", "gfortran", "meson", "bazel", "icx", "icpx"}  # fmt: skip
_COMPILER = re.compile(r"(?:[a-z0-9_]+-linux-gnu-)?(gcc|g\+\+|clang|clang\+\+|cpp|nvcc)(?:-[\d.]+)?")
# Variables that make another program run, or another library load, under an allowed name.
STEERING = re.compile(
    r"PATH|LD_\w+|BASH_ENV|ENV|SHELL|IFS|MAKEFLAGS|GNUMAKEFLAGS|MAKEFILES|MFLAGS|PYTHONPATH|PYTHONHOME|PYTHONSTARTUP"
    r"|PROMPT_COMMAND|NODE_OPTIONS|PERL5LIB|PERL5OPT|RUBYOPT|GIT_\w+|CC|CXX|NVCC|NVCC_\w+|PIP_\w+|UV_\w+"
)


def is_python(name: str) -> bool:
    """Whether a name is one of Python's: python3.11."""
    return _PYTHON.fullmatch(name) is not None


def is_pip(name: str) -> bool:
    """Whether a name is one of pip's: pip3.11."""
    return _PIP.fullmatch(name) is not None


def compiler(name: str) -> str:
    """The compiler that a name stands for, '' for none: g++ for x86_64-linux-gnu-g++-13."""
    if name in COMPILERS:
        return name
    found = _COMPILER.fullmatch(name)
    return found[1] if found else ""


def is_followed(name: str) -> bool:
    """Whether a program of this name runs others, installs, compiles, or reads code."""
    return (
        name in SHELLS
        or name in MANAGERS
        or name in WRAPPERS
        or name in CONTAINERS
        or name in EVAL_FLAGS
        or name in ("env", "xargs", "find", "make", "gmake", "npx", "ssh", "su", "parallel", "firstlight")
        or is_pip(name)
        or is_python(name)
        or bool(compiler(name))
    )
