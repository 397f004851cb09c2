"""Files of settings as steps: which modules akmods builds, which kernel starts, how much memory may be locked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.ways.argv import GRUB_MENU, GRUB_NAMES, commands
from firstlight.ways.at import At
from firstlight.ways.back import Argv, Back, BackKind, shown, through
from firstlight.ways.building import as_root, once, prints, succeeds, written
from firstlight.ways.kinds import AllowLockedMemory, ChooseModules, StartKernel
from firstlight.ways.machine_steps import root_step
from firstlight.ways.step import FileChange, Step, StepKind
from firstlight.ways.way import Way

_MADE_BY_US = "# Written by firstlight; `firstlight undo` takes it back.\n"
_LIMITS = "/etc/security/limits.d/90-firstlight-memlock.conf"
_UNLIMITED = "*    - memlock unlimited\nroot - memlock unlimited\n"  # a star is every user but root
_GRUB, _MENU = "/etc/default/grub.d/90-firstlight-kernel.cfg", "/boot/grub/grub.cfg"
SETTING_FILES = (_LIMITS, _GRUB, "/etc/nvidia/kernel.conf", "/etc/rpm/macros.nvidia-kmod", _MENU)  # read before a plan


def _file_step(way: Way, at: At, change: FileChange) -> Step:
    return replace(root_step(way, at), kind=StepKind.FILE, files=(change,), done_when=(written(change),))


def memory_steps(way: AllowLockedMemory, at: At) -> Iterator[Step]:
    change = FileChange(_LIMITS, at.extras.text_of(_LIMITS) or "", _MADE_BY_US + _UNLIMITED)
    note = "It takes effect at the next login; a service has LimitMEMLOCK=infinity in its unit instead."
    yield replace(_file_step(way, at, change), note=note)


def kernel_steps(way: StartKernel, at: At) -> Iterator[Step]:
    """GRUB's menu made with another entry as its own choice, or grubby told of the kernel."""
    [choose] = commands(way, at.platform)
    name = GRUB_NAMES.get(at.platform.distribution, "")
    if not name:
        now = _exchanged(choose, way.kernel, at.facts.place.kernel_release)
        # grubby reads folders that are root's alone: only root can be told whether it is chosen already
        asks = choose[:1] == ("grubby",)
        done = (prints(choose[-1], "grubby", "--default-kernel") if asks else once("it is chosen for the next start"),)
        yield replace(root_step(way, at), done_when=done, back=shown(now))
        return
    around, own, looked_for = _in_menu(way.kernel, name, at.extras.text_of(_MENU) or "")
    entry = f'GRUB_DEFAULT="{around}>{own}"\n'
    step = _file_step(way, at, FileChange(_GRUB, at.extras.text_of(_GRUB) or "", _MADE_BY_US + entry))
    back = (through(choose, Back(BackKind.BOOT_MENU)),) if choose[-1:] == GRUB_MENU else ()
    # Where its menu has no such entry, or no such menu around it, GRUB starts the first one and says nothing.
    has_entry = (succeeds("grep", "-Fq", each, _MENU) for each in looked_for)
    note = "Upgrades of the kernel start no newer one until undo."
    yield replace(step, back=back, done_when=(*step.done_when, *has_entry), note=note)


def _in_menu(kernel: str, name: str, menu: str) -> tuple[str, str, tuple[str, str]]:
    """The menu around a kernel and its entry, with what the file has of each: by id, as titles may be translated.

    The ids end with that of the file system; where the file could not be read, the titles of the distribution.
    """
    ids = [re.search(rf"'(gnulinux-{each}advanced-[^'\s]+)'", menu) for each in ("", f"{re.escape(kernel)}-")]
    around, own = (found[1] if found is not None else "" for found in ids)
    if around and own:
        return around, own, (f"'{around}'", f"'{own}'")
    around, own = f"Advanced options for {name}", f"{name}, with Linux {kernel}"
    return around, own, (f"submenu '{around}'", f"menuentry '{own}'")


def _exchanged(argv: Argv, name: str, other: str) -> Argv:
    return tuple(word.replace(name, other) for word in argv)


def module_choice_steps(way: ChooseModules, at: At) -> Iterator[Step]:
    """The line written into the file; where another is to give way and the text was not read, by sed."""
    before = at.extras.text_of(way.file)
    if before is None and way.instead_of:
        yield _by_sed(way, at)
        return
    text = before or ""
    if way.instead_of:
        after = re.sub(rf"(?m)^([^#\n]*)\b{re.escape(way.instead_of)}$", lambda found: found[1] + way.line, text)
    elif way.line in text.splitlines():
        after = text
    else:
        after = f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{way.line}\n"
    yield _file_step(way, at, FileChange(way.file, text, after))


def _by_sed(way: ChooseModules, at: At) -> Step:
    edit = as_root(at.platform, "sed", "--in-place", f"s/^\\([^#]*\\b\\){way.instead_of}$/\\1{way.line}/", way.file)
    done = succeeds("grep", "-q", f"^[^#]*\\b{way.line}$", way.file)
    return replace(root_step(way, at), kind=StepKind.FILE, commands=(edit,), done_when=(done,))
