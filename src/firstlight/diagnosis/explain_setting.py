"""The system that a text shows that it is of (Windows, WSL, a Mac, ROCm, no apt), and the answer for it."""

from __future__ import annotations

import enum
import functools
import json
import pkgutil
import re
from dataclasses import replace
from typing import Any

from firstlight.diagnosis.signatures import Commands, Signature, WayOut, way_types
from firstlight.frozen import dataclass

SETTINGS = "data/error_settings.json"

# Patterns are text: they are compiled where something is known, once.
_WSL = rb"(?i)microsoft-standard|/usr/lib/wsl|\bwsl ?[12]?\b|/mnt/[c-f]/|\bdxg(?:k|core)"
_WINDOWS = (
    rb"(?i)(?<![a-z0-9])[a-z]:(?:[\\/](?![\\/])|\\\\\w)|\b(?:0xc0000\w{3}|322122\d{4})\b"
    rb"|[\w-]\.dll\b|win_amd64|\bWinError|\bMSVC\b|\bcl\.exe|visual studio"
    rb"|\bwin(?:dows)? ?1[01]\b|\\site-packages\\|\bnvcuda64?\b|\bDLL load failed"
)
_MAC = (
    rb"(?i)(?<![\w.])/Users/\w|/private/var/folders/"
    rb"|/opt/homebrew/|/Library/Frameworks/|\bmac ?os\b|\bmacosx_\d|\bmacbook|\bos ?x\b 1\d"
    rb"|\bM[1-5] (?:Pro|Max|Ultra|chip)\b|Apple (?:silicon|M\d)|\.dylib\b|\bdarwin\b|\bmps backend"
)
_NOT_MAC = (
    rb"(?i)\bnvidia-smi\b.*\d|geforce|\brtx ?\d|\bnvrm\b|\bubuntu\b|\bwindows\b|\blinux\b|[c-e]:\\|/home/\w|/root/"
)
_AMD = (
    rb"\bHIP (?:error|out of memory)|\bhipError|\+rocm\d|/opt/rocm|\bgfx(?:9|1[0-2])[0-9a-f]{1,3}\b|\bamdgpu\b"
    rb"|(?i:\bradeon\b)"
)
_NOT_AMD = rb"(?i)\bnvidia\b|geforce|\brtx ?\d{4}|\btesla\b|libcuda\.so|\+cu\d\d"
_RPM = rb"(?i)\.(?:fc[2-4]\d|el[7-9]|el10|amzn\d+)\b|\bfedora\b|\b(?:dnf|yum) (?:-y )?install\b|\bopensuse\b|\bzypper\b"
_ARCH = rb"(?i)-arch\d-\d|-cachyos\b|\bmanjaro\b|\bpacman -S|\barch ?linux\b|\bcachyos\b|\bendeavouros\b"
_DEBIAN = rb"(?i)\bubuntu\b|\bdebian\b|\bapt(?:-get)?\b|\.deb\b|linux mint|pop!_os"
_LINUX = (
    rb"(?i)(?<![\w.:])/(?:usr|home|root|opt|mnt|etc|dev|proc|lib|var|tmp|workspace|app|content|scratch)/"
    rb"|\w\.so\b|linux|ubuntu|debian|\bapt(?:-get)?\b"
)
# A variable before a command is how the shells of Linux write it; these are its loader's and its compilers'.
_LINUX_VARIABLES = ("LD_", "LIBRARY_PATH=", "CPATH=", "CC=", "CXX=", "CFLAGS=", "CXXFLAGS=", "PATH=")
_LINUX_WORDS = (
    r"\b(?:LD_LIBRARY_PATH|LD_PRELOAD|ldconfig|apt|apt-get|dkms|modprobe|ulimit|systemctl|nouveau|initramfs"
    r"|firstlight|it is Linux)\b"
)
_FILTERED = r"\s+2>/dev/null|(?:\s+2>&1)?(?:\s*\|\s*(?:grep|head|tail|tee|sort|cut)\b[^|]*)+$"  # more is shown without
_ASSIGNED = r"[A-Za-z_]\w*=\S*"


class Setting(enum.Enum):
    """The system that a text is of, where it shows one."""

    NOT_SHOWN = ""
    WINDOWS = "windows"
    WSL = "wsl"
    MACOS = "macos"
    ROCM = "rocm"
    RPM = "rpm"
    ARCH = "arch"


NOTHING = r"(?!)"  # a pattern that nothing matches
_NO_GENERAL_WORD = (Setting.WSL, Setting.ROCM)  # of these only an own answer is told


def setting_of(text: bytes) -> Setting:
    """The system that a text shows: 'C:\\...\\nvcuda.dll' is Windows, unless paths of Linux stand beside it."""
    if _finder(_WSL).search(text):
        return Setting.WSL
    if _finder(_WINDOWS).search(text) and not _finder(_LINUX).search(text):
        return Setting.WINDOWS
    if _finder(_MAC).search(text) and not _finder(_NOT_MAC).search(text):
        return Setting.MACOS
    if _finder(_AMD).search(text) and not _finder(_NOT_AMD).search(text):
        return Setting.ROCM
    if _finder(_DEBIAN).search(text):
        return Setting.NOT_SHOWN
    if _finder(_RPM).search(text):
        return Setting.RPM
    return Setting.ARCH if _finder(_ARCH).search(text) else Setting.NOT_SHOWN


def in_setting(signature: Signature, setting: Setting) -> Signature:
    """The same answer for the system of the text: without commands that it has not, with its own way first."""
    if setting is Setting.NOT_SHOWN:
        return signature
    if setting.value in signature.product or setting.value in signature.code:
        return signature  # a row of that system itself
    names = (signature.code, signature.product, signature.family)
    own = next((each for name in names for each in _own_answers(setting) if name in each.of), None)
    foreign = _foreign_words(setting, own)
    ways = tuple(_kept(way, setting) for way in signature.ways_out if not re.search(foreign, _words(way)))
    prove = Commands(signature.prove.say, _lines(signature.prove.run, setting))
    if (ways, prove.run) == (signature.ways_out, signature.prove.run) and setting is Setting.WINDOWS:
        return signature  # nothing of Linux was in it
    if own is None and (ways, prove.run) == (signature.ways_out, signature.prove.run):
        return signature
    if own is None and setting in _NO_GENERAL_WORD:
        return signature
    if own is not None and own.replaces:
        prove = Commands("what the system has", own.way.run)
        return replace(
            signature, cause=f"{_says(setting)} {own.cause}", prove=prove, ways_out=(own.way, *ways), one_of=False
        )
    cause = " ".join(filter(None, (signature.cause, _says(setting), own.cause if own else "")))
    if own is not None:
        knows_best = bool(signature.product) and signature.product not in own.of and bool(ways)
        last = own.is_last or (knows_best and setting is not Setting.MACOS)
        ways = (*ways, own.way) if last else (own.way, *ways)
    ways = ways or signature.ways_out
    return replace(signature, cause=cause, prove=prove if prove.run else _own_proof(signature, setting), ways_out=ways)


def _own_proof(signature: Signature, setting: Setting) -> Commands:
    """What proves it there, for an answer whose proof is made of commands that the system does not have."""
    names = (signature.code, signature.product, signature.family)
    known = (each for row in _rows() if row["setting"] == setting.value for each in row.get("proofs", ()))
    own = {name: Commands(each["expect"], tuple(each["run"])) for each in known for name in each["of"]}
    return next((own[name] for name in names if name in own), signature.prove)


@dataclass(frozen=True, slots=True)
class _Own:
    """What one system says of some families or rows."""

    of: frozenset[str]
    cause: str
    way: WayOut
    is_last: bool  # the row's own ways come before it
    leaves_out: str  # ways with these words are of no use in that system
    replaces: bool  # the system alone is the cause


def _foreign_words(setting: Setting, own: _Own | None) -> str:
    """A pattern of the words by which a way out is of no use in that system."""
    words = _LINUX_WORDS if setting is Setting.WINDOWS else _of_no_use(setting) or NOTHING
    return f"{words}|{own.leaves_out}" if own is not None and own.leaves_out else words


def _words(way: WayOut) -> str:
    """What a way out is known by: its sentence; of its commands each is looked at by itself, except pip's and ours."""
    return " ".join((way.when, way.say, *(line for line in way.run if line.startswith(("pip ", "uv ", "firstlight ")))))


def _kept(way: WayOut, setting: Setting) -> WayOut:
    return replace(way, run=_lines(way.run, setting))


def _lines(run: tuple[str, ...], setting: Setting) -> tuple[str, ...]:
    if setting is Setting.WINDOWS:
        lines = (re.sub(_FILTERED, "", line) for line in run)
        return tuple(_for_powershell(line) for line in lines if not _is_of_linux(line))
    missing = _missing_programs(setting)
    return tuple(
        line for line in run if not re.search(_of_no_use(setting) or NOTHING, line) and not _started(line) & missing
    )


def _started(line: str) -> set[str]:
    """The programs that a command starts: 'A=1 nvidia-smi | head' -> nvidia-smi and head."""
    parts = re.split(r"\s*(?:\||&&|;)\s*", line.replace("sudo ", ""))
    return {next((word for word in part.split() if not re.fullmatch(_ASSIGNED, word)), "") for part in parts}


def _is_of_linux(line: str) -> bool:
    if "sudo " in line or _started(line) & _missing_programs(Setting.WINDOWS) or line.startswith(_LINUX_VARIABLES):
        return True
    return any(words in line for words in ("/usr/", "/dev/", "g++-", "gcc-"))


def _for_powershell(line: str) -> str:
    """A command as PowerShell takes it: 'MAX_JOBS=4 pip install x' sets a variable before the command."""
    line = re.sub(r"\bvenv/bin/(python|pip)\b", r"venv\\Scripts\\\1.exe", line)
    variables = []
    while found := re.match(r"([A-Za-z_]\w*)=('[^']*'|\"[^\"]*\"|\S*) +", line):
        value = found[2].strip("'\"")
        variables.append(f"$env:{found[1]}='{value}'; ")
        line = line[found.end() :]
    return "".join(variables) + line


@functools.cache
def _finder(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)


@functools.cache
def _missing_programs(setting: Setting) -> frozenset[str]:
    """The programs of command lines that a system does not have."""
    return frozenset(name for row in _rows() if row["setting"] == setting.value for name in row.get("has_not", ()))


@functools.cache
def _of_no_use(setting: Setting) -> str:
    """A pattern of the words of commands that do nothing, or harm, there: the driver of WSL is that of Windows."""
    return "|".join(word for row in _rows() if row["setting"] == setting.value for word in row.get("of_no_use", ()))


def _says(setting: Setting) -> str:
    return next(str(row["says"]) for row in _rows() if row["setting"] == setting.value)


@functools.cache
def _own_answers(setting: Setting) -> tuple[_Own, ...]:
    found = []
    for row in _rows():
        if row["setting"] != setting.value:
            continue
        for answer in row["answers"]:
            way = answer["way"]
            kinds = tuple(way_types()[name] for name in way["ways"])
            own = WayOut(way["say"], tuple(way["run"]), kinds)
            last, leaves_out = answer.get("last", False), answer.get("leaves_out", "")
            replaces = answer.get("replaces", False)
            found.append(_Own(frozenset(answer["of"]), answer["cause"], own, last, leaves_out, replaces))
    return tuple(found)


@functools.cache
def _rows() -> list[dict[str, Any]]:
    text = pkgutil.get_data("firstlight.diagnosis", SETTINGS)
    assert text is not None, f"{SETTINGS} is not in the package"
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows
