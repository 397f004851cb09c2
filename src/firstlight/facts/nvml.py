"""NVML asked in a child process, `nvidia-smi --query-gpu` where NVML is not usable: readings for the other probes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from firstlight.ahead import NVML_LIMIT_S, pynvml_place
from firstlight.elf.ld_cache import read_ld_cache
from firstlight.facts.children import child_script
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import ChildAnswer, Completed, Machine, Outcome

LIBRARY = "libnvidia-ml.so.1"
LIMIT_S = NVML_LIMIT_S / 0.8  # the child stops asking before it is killed, so that what it learned is kept
MOST_DEVICES = 128
_TEXT_LIMIT = 1000
_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # NVML_VALUE_NOT_AVAILABLE as an unsigned number
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
)
_WSL_SMI = "/usr/lib/wsl/lib/nvidia-smi"
_QUERY: tuple[str, ...] = (
    "index",
    "name",
    "compute_cap",
    "memory.total",
    "driver_version",
    "uuid",
    "pci.bus_id",
    "mig.mode.current",
    "ecc.mode.current",
    "power.limit",
    "clocks.sm",
    "clocks.max.sm",
    "persistence_mode",
)
# Drivers before 450 have no MIG and before 510 no compute_cap; they reject the whole query for one such name.
_SHORT_QUERY = tuple(name for name in _QUERY if name not in ("compute_cap", "mig.mode.current"))
_REJECTED = "not a valid field"
_READING_OF = {
    "mig.mode.current": "mig_mode",
    "ecc.mode.current": "ecc_mode",
    "clocks.sm": "clock_sm_mhz",
    "clocks.max.sm": "clock_sm_max_mhz",
    "pci.bus_id": "pci_address",
    "memory.total": "memory_bytes",
    "power.limit": "power_limit_mw",
}
_E = TypeVar("_E", bound=enum.Enum)
_SWITCH = {"Enabled": 1, "Disabled": 0}


@dataclass(frozen=True, slots=True)
class Readings:
    """What one source said of one device: Readings({"pcie_width": 16}, "NVML", "not asked").number("pcie_width")."""

    values: Mapping[str, object]
    source: str
    absent: str  # why a name that is not among the values is unknown

    def text(self, name: str) -> Fact[str]:
        value = self.values.get(name)
        if isinstance(value, str):
            value = "".join(character for character in value if character.isprintable()).strip()[:_TEXT_LIMIT]
            if value:
                return Known(value, self.source)
        return self._unknown(name)

    def number(self, name: str) -> Fact[int]:
        value = self.values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0 and value not in _NOT_AVAILABLE:
            return Known(value, self.source)
        return self._unknown(name)

    def flag(self, name: str) -> Fact[bool]:
        value = self.number(name)
        return Known(bool(value.value), self.source) if isinstance(value, Known) else value

    def member(self, name: str, kind: type[_E]) -> Fact[_E]:
        """The member of an enum whose members stand in NVML's order: 0 of ComputeMode is DEFAULT."""
        number = self.number(name)
        if isinstance(number, Unknown):
            return number
        members = tuple(kind)
        if number.value >= len(members):
            return Unknown(f"{self.source}: {name} {number.value} is not known to this firstlight")
        return Known(members[number.value], number.seen_in)

    def inside(self, name: str) -> tuple[Readings, ...]:
        """The readings of a list, e.g. of the MIG devices of one GPU."""
        return _each(self.values.get(name), self.source)

    def _unknown(self, name: str) -> Unknown:
        value = self.values.get(name)
        if value is None:
            return Unknown(self.absent)
        if isinstance(value, Unknown):
            return value
        if isinstance(value, Mapping) and isinstance(value.get("error"), str):
            return Unknown(f"{self.source}: {value['error'][:_TEXT_LIMIT]}")
        return Unknown(f"{self.source}: {name} is {ascii(value)[:40]}")


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """What was asked of NVML (or of nvidia-smi in its place): system-wide readings and one set for each GPU."""

    library: Fact[str]  # the file behind libnvidia-ml.so.1, e.g. /usr/lib64/libnvidia-ml.so.580.159.04
    init_code: Fact[int]  # what nvmlInit returned: 0, 9 driver not loaded, 18 driver/library mismatch
    init_message: Fact[str]
    count: Fact[int]
    system: Readings
    devices: tuple[Readings, ...]


def ask_nvml(machine: Machine, *, limit_s: float = LIMIT_S) -> NvmlAnswer:
    """All that NVML tells; where it is not there or does not start, what `nvidia-smi --query-gpu` tells."""
    library = _find_library(machine)
    if isinstance(library, Unknown):
        return _ask_nvidia_smi(machine, _unusable(library, library.reason), limit_s=limit_s)
    said = machine.child(child_script("nvml"), pynvml_place(), f"{limit_s * 0.8:g}", timeout_s=limit_s)
    answer = _from_child(said, library)
    if isinstance(answer.init_code, Known) and answer.init_code.value == 0:
        return answer
    return _ask_nvidia_smi(machine, answer, limit_s=limit_s)


def _find_library(machine: Machine) -> Fact[str]:
    """Where libnvidia-ml.so.1 lies; a cheap look, so that a machine without a driver pays for no child process."""
    named = tuple(part for part in (machine.env("LD_LIBRARY_PATH") or "").split(":") if part.startswith("/"))
    cached = read_ld_cache(machine).lookup(LIBRARY, arch=machine.host.arch, hwcaps=())
    for path in (
        *(f"{folder.rstrip('/')}/{LIBRARY}" for folder in named),
        *(entry.path for entry in cached),
        *(f"{folder}/{LIBRARY}" for folder in _FOLDERS),
    ):
        if machine.stat(path) is not None:
            return Known(machine.real_path(path), seen_in=path)
    return Unknown(f"no {LIBRARY} in LD_LIBRARY_PATH, the loader's cache or the usual library folders")


def _unusable(library: Fact[str], reason: str) -> NvmlAnswer:
    unknown = Unknown(reason)
    return NvmlAnswer(library, unknown, unknown, unknown, Readings({}, "NVML", absent=reason), ())


def _from_child(said: ChildAnswer, library: Fact[str]) -> NvmlAnswer:
    if not said.ok:
        return _unusable(library, said.complaint)
    if isinstance(unusable := said.answer.get("unusable"), str):
        return _unusable(library, unusable)
    mapped = Readings(said.answer, "/proc/self/maps of the nvml child", absent="").text("library")
    library = mapped if isinstance(mapped, Known) else library
    init = said.answer.get("init")
    started = Readings(init if isinstance(init, Mapping) else {}, "nvmlInit", absent="the nvml child gave no init code")
    code = started.number("code")
    if not isinstance(code, Known) or code.value != 0:
        message = started.text("error")
        shown = message.value if isinstance(message, Known) else message.reason
        reason = f"NVML: {shown}" + (f" ({code.value})" if isinstance(code, Known) else "")
        return NvmlAnswer(library, code, message, Unknown(reason), Readings({}, "NVML", absent=reason), ())
    system = Readings(said.answer, "NVML", absent="NVML was not asked")
    return NvmlAnswer(
        library,
        code,
        Unknown("NVML started"),
        system.number("count"),
        system,
        _each(said.answer.get("devices"), "NVML"),
    )


def _each(items: object, source: str) -> tuple[Readings, ...]:
    found = items[:MOST_DEVICES] if isinstance(items, list) else []
    readings = []
    for item in found:
        if isinstance(item, Mapping):
            said = item.get("error")  # the handle of this device could not be had, e.g. "GPU is lost"
            readings.append(
                Readings(item, source, absent=f"{source}: {said if isinstance(said, str) else 'not asked'}")
            )
    return tuple(readings)


def _ask_nvidia_smi(machine: Machine, answer: NvmlAnswer, *, limit_s: float) -> NvmlAnswer:
    """The answer with what nvidia-smi says put in; its banner is never read, since its wording changes."""
    limit_s /= 2  # a driver that hangs was waited for once already
    query = _QUERY
    done = _query(machine, query, limit_s=limit_s)
    if not done.ok and _REJECTED in done.stdout + done.stderr:
        query = _SHORT_QUERY
        done = _query(machine, query, limit_s=limit_s)
    why_not_nvml = answer.system.absent
    rows = _rows(done.stdout, query, absent=f"{why_not_nvml}; nvidia-smi was not asked for it")
    if done.outcome is Outcome.EXITED and rows:
        return replace(answer, count=Known(len(rows), "nvidia-smi"), system=rows[0], devices=rows)
    why = "nvidia-smi: no line has the fields that were asked for" if done.ok else done.complaint
    reason = f"{why_not_nvml}; {why}"
    return replace(answer, count=Unknown(reason), system=Readings({}, "NVML", absent=reason))


def smi_words(fields: tuple[str, ...] = _QUERY) -> tuple[str, ...]:
    """The words that ask nvidia-smi for these fields of every GPU, without its banner."""
    return ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")


def _query(machine: Machine, fields: tuple[str, ...], *, limit_s: float) -> Completed:
    words = smi_words(fields)
    done = machine.run(words, timeout_s=limit_s)
    if done.outcome is Outcome.NOT_FOUND and machine.stat(_WSL_SMI) is not None:
        return machine.run((_WSL_SMI, *words[1:]), timeout_s=limit_s)
    return done


def _rows(text: str, fields: tuple[str, ...], *, absent: str) -> tuple[Readings, ...]:
    """Readings of each line that has as many cells as were asked for; complaints between them are passed over."""
    rows = []
    for line in text.splitlines()[:MOST_DEVICES]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields):
            values: dict[str, object] = {}
            for field, cell in zip(fields, cells, strict=True):
                values.update(_cell(field, cell))
            rows.append(Readings(values, "nvidia-smi", absent))
    return tuple(rows)


def _cell(field: str, text: str) -> dict[str, object]:
    """One cell under the name NVML's reading has: ("memory.total", "143771") is {"memory_bytes": 150754820096}."""
    name = _READING_OF.get(field, field)
    if text.startswith("[") or text in ("N/A", "ERR!", ""):
        unknown = Unknown(f"nvidia-smi: {text.strip('[]') or 'nothing said'}")
        return {"capability_major": unknown, "capability_minor": unknown} if field == "compute_cap" else {name: unknown}
    if field == "compute_cap":
        major, _, minor = text.partition(".")
        return {"capability_major": _whole(major), "capability_minor": _whole(minor)}
    if field in ("name", "uuid", "driver_version", "pci.bus_id"):
        return {name: text}
    if field in ("mig.mode.current", "ecc.mode.current", "persistence_mode"):
        return {name: _SWITCH.get(text, text)}
    if field == "memory.total":
        return {name: _scaled(text, 1 << 20)}
    return {name: _scaled(text, 1000) if field == "power.limit" else _whole(text)}


def _whole(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else text


def _scaled(text: str, factor: int) -> object:
    """A number in another unit: ("700.00", 1000) is 700000; text that is no number stays as it is."""
    whole, _, rest = text.partition(".")
    if not isinstance(number := _whole(whole), int) or not isinstance(_whole(rest or "0"), int):
        return text
    return number * factor + int(f"0{rest}") * factor // 10 ** len(rest)
