"""The line of a log that tells most where no row knows the error, and the kind of error that it reads like.

The last exception of a traceback, or the first error of a build: not pip's or make's note that something failed.
"""

from __future__ import annotations

import re

# Patterns are text: most logs are explained by a row, and compiling these would only cost time then.
# A line that names an error and says something of it, unlike the level of a log: {"level": "error", ...}
_NAMED = (
    r"(?:\w(?:Error|Exception)|\b[Ee]rror|\bERROR|\bFATAL|\b[Ff]atal(?: error)?)\b(?: \[?\w+\]?)?\s?:"
    r"(?!\s*\"?[}\],]*\s*$)"
)
_EXCEPTION = r"^\W{0,8}(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit)(?:: \S|\s*$)"
# What only passes on that something else failed, or speaks of errors in general.
_NOTE = (
    r"(?i)subprocess-exited-with-error|This error originates from a subprocess|Failed building wheel"
    r"|did not run successfully"
    r"|metadata-generation-failed|build stopped: subcommand failed|\*\*\* \[.*\] Error \d|Command errored out"
    r"|exited with (?:code|status|error)|returned (?:a )?non-zero|failed-wheel-build|Could not build wheels|frame #\d+:"
    r"|errors? might be asynchronously|CUDA_LAUNCH_BLOCKING|handling of the above exception"
    r"|direct cause of the following"
    r"|\b0 errors?\b|\bno errors?\b|error_log|on_error|errors?=|Errors? were encountered|ChildFailedError"
    r"|ProcessRaisedException|CalledProcessError|ShardCannotStart|\bShard \d+ failed|runner process has terminated"
    r"|\berror code: \d+\W*$|required plugin \S+: task_init\(\) failed|\braise [\w.]+\("
    r"|ld returned 1 exit status|-Werror|error-limit|RuntimeError: Error compiling objects|Error building extension"
)
_INFORMATION = r"(?:^|[:\s])I(?:\d{4} [\d:.]+ +\d+)? ?[\w./-]+\.(?:cc|cpp|cu|h):\d+\]"
# How a shell says that a program was ended by a signal; it counts where nothing stands behind it.
_BY_SHELL = r"^(?:\S+: line \d+:\s+)?(?:\d+ )?"
_ENDED = (
    rf"{_BY_SHELL}(?:Killed|Segmentation fault|Bus error|Aborted|Illegal instruction"
    r"|Floating point exception)\b(?:\s+\(core dumped\))?"
)
_KINDS: tuple[tuple[str, str], ...] = (
    (
        "a program that was killed from outside, mostly because the machine's or the container's memory ran out",
        rf"{_BY_SHELL}Killed\b",
    ),
    (
        "a crash in compiled code: a library that does not fit, or a fault of its own",
        rf"{_BY_SHELL}(?:Segmentation fault|Aborted|Illegal instruction|Floating point exception)",
    ),
    ("a crash in compiled code, mostly because /dev/shm is full", rf"{_BY_SHELL}Bus error"),
    ("memory that ran out", r"out of memory|cannot allocate|bad_alloc|MemoryError|\bOOM\b"),
    ("a full disk", r"no space left"),
    ("a missing right", r"permission|not permitted|access denied|EACCES|forbidden|unauthori"),
    (
        "a network, proxy or certificate",
        r"connect|resolve host|unreachable|certificate|SSL|proxy|timed? ?out|\b40[1347]\b|\b50[0234]\b",
    ),
    (
        "two versions that do not go together",
        r"version|mismatch|incompatib|cannot import name|has no attribute|unexpected keyword|undefined symbol"
        r"|deprecated|not supported|requires",
    ),
    (
        "something that is not installed, or not where it is looked for",
        r"no module named|no such file|not found|cannot find|could not find|could not load|cannot open",
    ),
    ("a fault in the source that is compiled", r"\.(?:cu|cuh|cpp|cc|c|h|hpp)[:(]\d+(?![\d\]])"),
    (
        "a fault in the program or its data",
        r"(?:Key|Index|Type|Value|Attribute|Assertion|NotImplemented|Name|ZeroDivision)Error|assert",
    ),
)


def is_information(text: str) -> bool:
    """Whether a line is of the level of information, as glog and TensorFlow write it: 'I util/port.cc:153] ...'."""
    return re.search(_INFORMATION, text) is not None


def is_exception(text: str) -> bool:
    """Whether a line is the last of a traceback: 'KeyError: b'."""
    return re.match(_EXCEPTION, text) is not None and not re.search(_NOTE, text)


def is_telling(text: str) -> bool:
    """Whether a line names an error itself, and not only that something failed."""
    return re.search(_NAMED, text) is not None and not re.search(_NOTE, text)


def is_end(text: str) -> bool:
    """Whether a line says how a program was ended by a signal: 'Segmentation fault (core dumped)'."""
    return re.match(_ENDED, text) is not None


def kind_of(text: str) -> str:
    """What an unknown error reads like, e.g. 'a missing right'; '' where nothing speaks for a kind."""
    return next((kind for kind, words in _KINDS if re.search(words, text, re.IGNORECASE)), "")
