"""The same questions by a POSIX sh, for a host without a Python that is new enough: fewer facts, and why no more.

`probe.sh` prints one line an answer; here the lines become evidence.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path

from firstlight.diagnosis.finding import Rule
from firstlight.errors import CouldNotLook
from firstlight.facts.by_sh import BY_SH
from firstlight.facts.nvml import smi_words
from firstlight.frozen import dataclass
from firstlight.machine.evidence import Evidence, PathEvidence, command_key, marks
from firstlight.machine.interface import Completed, Host, Outcome, Stat

_KINDS = {"-": "file", "d": "folder", "c": "device", "b": "device", "s": "socket"}
_FOLDER = Stat("folder", size=0, mode=0o755, uid=0, gid=0, inode=0, writable=False)
_BITS = {"r": 4, "w": 2, "x": 1, "s": 1, "t": 1}


# The facts that the script asks for; a rule that looks at others would take "nobody asked" for "not there".
_ASKED = ("place", "container", "driver", "gpus")


def rules_for_sh(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules that can be asked of a host that answered by its sh."""
    return tuple(rule for rule in rules if all(path.split(".")[0] in _ASKED for path in rule.looks_at))


@functools.cache
def _script() -> str:
    return Path(__file__).with_name("probe.sh").read_text(encoding="ascii")


def sh_script(token: str) -> str:
    """The script: what it prints stands between the two lines of the token."""
    begin, end = marks(token)
    return _script().replace("@BEGIN@", begin).replace("@END@", end).replace("@SMI@", " ".join(smi_words()))


@dataclass(frozen=True, slots=True)
class _Line:
    """One answer: what kind, of what, and the rest of the line."""

    kind: str
    name: str
    rest: str


def is_sh_answer(answer: bytes) -> bool:
    """Whether the host answered by its sh."""
    return answer.startswith(b"firstlight-sh\n")


def read_sh_answer(answer: bytes) -> Evidence:
    """The evidence that the script's lines are; CouldNotLook where a line is none of its."""
    lines = [_parsed(line) for line in answer.decode("ascii", "replace").splitlines()[1:]]
    host = {line.name: _text(line.rest).strip() for line in lines if line.kind == "H"}
    evidence = Evidence(host=_host(host), recorded_by=BY_SH)
    for line in lines:
        _add(evidence, line)
    return evidence


def _parsed(line: str) -> _Line:
    kind, _, rest = line.partition(" ")
    if kind not in ("H", "E", "T", "D", "A", "L", "S", "C", "N"):
        raise CouldNotLook(f"its sh answered with a line that was not asked for: {line[:60]!r}")
    name, _, rest = rest.partition(" ")
    return _Line(kind, name, rest)


def _add(evidence: Evidence, line: _Line) -> None:
    if line.kind == "E":
        evidence.env[line.name] = _text(line.rest)
    elif line.kind == "T":
        evidence.paths[line.name] = PathEvidence(text=_text(line.rest))
    elif line.kind == "D":
        evidence.paths[line.name] = PathEvidence(why_not="permission denied")
    elif line.kind == "A":
        evidence.paths[line.name] = PathEvidence(why_not="no such file")
    elif line.kind == "L":
        names = [name for name in _text(line.rest).split("\n") if name not in ("", ".", "..")]
        evidence.paths[line.name] = PathEvidence(names=names, stat=_FOLDER)
    elif line.kind == "S":
        evidence.paths[line.name] = PathEvidence(stat=_stat(line.rest))
    elif line.kind == "C":
        said, _, words = line.rest.partition(" ")
        argv = tuple(words.split(" "))
        status = int(line.name) if line.name.isdecimal() else 1
        evidence.commands[command_key(argv)] = Completed(argv, Outcome.EXITED, status, _text(said), "")
    elif line.kind == "N":
        argv = (line.name, *line.rest.split(" ")) if line.rest else (line.name,)
        evidence.commands[command_key(argv)] = Completed(argv, Outcome.NOT_FOUND, -1, "", "")


def _text(digits: str) -> str:
    try:
        return bytes.fromhex(digits).decode("utf-8", "replace")
    except ValueError:
        raise CouldNotLook("its sh answered with digits that are not a number") from None


def _stat(rest: str) -> Stat:
    """What `ls -ldn` says: '1 crw-rw-rw- 1 0 0 195, 0 Nov 18 01:00 /dev/nvidia0'."""
    words = rest.split()
    if len(words) < 5 or len(words[1]) < 10 or not (words[3].isdecimal() and words[4].isdecimal()):
        raise CouldNotLook(f"its ls answered with a line that is not one of ls: {rest[:60]!r}")
    letters = words[1]
    mode = sum(_BITS.get(letters[1 + place], 0) << (6 - place // 3 * 3) for place in range(9))
    return Stat(_KINDS.get(letters[0], "other"), 0, mode, int(words[3]), int(words[4]), 0, words[0] == "1")


def _host(said: dict[str, str]) -> Host:
    return Host(
        hostname=said.get("hostname", ""), user=said.get("user", ""), home=said.get("home", ""), cwd="/",
        uid=int(said["uid"]) if said.get("uid", "").isdecimal() else -1,
        kernel_release=said.get("kernel_release", ""), arch=said.get("arch", ""),
        python_version="", python_executable="", python_prefix="", python_base_prefix="",
        now=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )  # fmt: skip
