"""Why nouveau came first although it is forbidden: what /etc/modprobe.d says, and what the early boot image holds."""

from __future__ import annotations

import re

from firstlight.facts.driver import DriverFacts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine, Outcome

_FOLDERS = ("/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
_FORBIDS = r"(?m)^[ \t]*(?:blacklist[ \t]+nouveau\b|install[ \t]+nouveau[ \t]+/(?:usr/)?bin/(?:true|false))"
_COMMAND_LINE = "/proc/cmdline"
_ON_COMMAND_LINE = r"(?:rd\.driver\.blacklist|modprobe\.blacklist|module_blacklist)=[^\s]*\bnouveau\b"
_LIST_S = 20.0
# What lists the image of the running kernel; the first that is here is asked.
_LISTERS = (
    ("lsinitramfs", "/boot/initrd.img-{kernel}"),
    ("lsinitrd", "/boot/initramfs-{kernel}.img"),
    ("lsinitcpio", "/boot/initramfs-linux.img"),
)


@dataclass(frozen=True, slots=True)
class EarlyImage:
    """What keeps nouveau out, and whether the image that the kernel starts from has it; asked where it is loaded."""

    forbidden_in: Fact[tuple[str, ...]]  # files that forbid nouveau
    forbidden_at_start: Fact[bool]  # on the kernel's command line
    holds_nouveau: Fact[bool]
    holds_the_ban: Fact[bool]  # whether one of those files is in the image, too


def probe_early_image(machine: Machine, driver: DriverFacts) -> EarlyImage:
    """Whether nouveau is forbidden on disk and still in the early boot image."""
    loaded = driver.nouveau_loaded
    if not isinstance(loaded, Known) or not loaded.value:
        none = Unknown("not looked at: nouveau is not loaded")
        return EarlyImage(none, none, none, none)
    files = _forbidding(machine)
    at_start = _at_start(machine)
    if isinstance(files, Unknown) or not files.value:
        none = Unknown("not looked at: no file forbids nouveau")
        return EarlyImage(files, at_start, none, none)
    listed = _listed(machine)
    return EarlyImage(files, at_start, _holds(listed, r"/nouveau\.ko"), _holds(listed, _names_of(files.value)))


def _forbidding(machine: Machine) -> Fact[tuple[str, ...]]:
    found = []
    for folder in _FOLDERS:
        for name in machine.list(folder, "*.conf"):
            text = machine.read(f"{folder}/{name}", limit=64 << 10) or ""
            if re.search(_FORBIDS, text):
                found.append(f"{folder}/{name}")
    if found or machine.stat(_FOLDERS[0]) is not None:
        return Known(tuple(found), _FOLDERS[0])
    return Unknown(f"{_FOLDERS[0]}: {machine.why_not(_FOLDERS[0])}")


def _at_start(machine: Machine) -> Fact[bool]:
    text = machine.read(_COMMAND_LINE, limit=8192)
    if text is None:
        return Unknown(f"{_COMMAND_LINE}: {machine.why_not(_COMMAND_LINE)}")
    return Known(re.search(_ON_COMMAND_LINE, text) is not None, _COMMAND_LINE)


def _listed(machine: Machine) -> Fact[str]:
    reasons = []
    for program, image in _LISTERS:
        path = image.format(kernel=machine.host.kernel_release)
        done = machine.run((program, path), timeout_s=_LIST_S, keep=r"nouveau|modprobe\.d/")
        if done.ok:
            return Known(done.stdout, f"{program} {path}")
        if done.outcome is not Outcome.NOT_FOUND:
            reasons.append(done.complaint)
    return Unknown("; ".join(reasons) or f"none of {', '.join(name for name, _ in _LISTERS)} is here")


def _holds(listed: Fact[str], pattern: str) -> Fact[bool]:
    if isinstance(listed, Unknown):
        return listed
    return Known(re.search(pattern, listed.value) is not None, listed.seen_in)


def _names_of(files: tuple[str, ...]) -> str:
    """A pattern of the files' names under modprobe.d, where the image has its copies of them."""
    return rf"modprobe\.d/(?:{'|'.join(re.escape(path.rpartition('/')[2]) for path in files)})\b"
