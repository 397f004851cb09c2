"""Files of settings as steps: which modules akmods builds, which kernel starts, how much memory may be locked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.ways.argv import GRUB_MENU, GRUB_NAMES, commands
from firstlight.ways.at import At
from firstlight.ways.back import Argv, Back, BackKind, shown, through
from firstlight.ways.building import NOT_MEASURED, as_root, blank, once, prints, slug, succeeds, written
from firstlight.ways.kinds import AllowLockedMemory, ChooseModules, StartKernel
from firstlight.ways.step import FileChange, Step, StepKind
from firstlight.ways.way import Way
from firstlight.ways.words import title_of

_MADE_BY_US = "# Written by firstlight; `firstlight undo` takes it back.\n"
_LIMITS = "/etc/security/limits.d/90-firstlight-memlock.conf"
_UNLIMITED = "*    - memlock unlimited\nroot - memlock unlimited\n"  # a star is every user but root
_GRUB, _MENU = "/etc/default/grub.d/90-firstlight-kernel.cfg", "/boot/grub/grub.cfg"
SETTING_FILES = (_LIMITS, _GRUB, "/etc/nvidia/kernel.conf", "/etc/rpm/macros.nvidia-kmod")  # read before a plan


def _file_step(way: Way, at: At, change: FileChange) -> Step:
    title = title_of(way, at.platform)
    return replace(
        blank(at),
        id=slug(title),
        kind=StepKind.FILE,
        title=title,
        files=(change,),
        needs_root=True,
        done_when=(written(change),),
        seconds=NOT_MEASURED,
    )


def memory_steps(way: AllowLockedMemory, at: At) -> Iterator[Step]:
    change = FileChange(_LIMITS, at.extras.text_of(_LIMITS) or "", _MADE_BY_US + _UNLIMITED)
    note = "It holds from the next login on; a service has LimitMEMLOCK=infinity in its unit instead."
    yield replace(_file_step(way, at, change), note=note)


def kernel_steps(way: StartKernel, at: At) -> Iterator[Step]:
    """GRUB's menu made with another entry as its own choice, or grubby told of the kernel."""
    [choose] = commands(way, at.platform)
    title = title_of(way, at.platform)
    name = GRUB_NAMES.get(at.platform.distribution, "")
    if not name:
        now = _exchanged(choose, way.kernel, at.facts.place.kernel_release)
        # grubby reads folders that are root's alone: only root can be told whether it is chosen already
        asks = choose[:1] == ("grubby",)
        done = (prints(choose[-1], "grubby", "--default-kernel") if asks else once("it is chosen for the next start"),)
        yield replace(
            blank(at), id=slug(title), kind=StepKind.COMMAND, title=title, commands=(choose,), needs_root=True,
            done_when=done, back=shown(now), seconds=NOT_MEASURED,
        )  # fmt: skip
        return
    entry = f'GRUB_DEFAULT="Advanced options for {name}>{name}, with Linux {way.kernel}"\n'
    step = _file_step(way, at, FileChange(_GRUB, at.extras.text_of(_GRUB) or "", _MADE_BY_US + entry))
    back = (through(choose, Back(BackKind.BOOT_MENU)),) if choose[-1:] == GRUB_MENU else ()
    has_entry = succeeds("grep", "-Fq", f"'{name}, with Linux {way.kernel}'", _MENU)  # else GRUB starts its first one
    yield replace(
        step, commands=(choose,), back=back, done_when=(*step.done_when, has_entry),
        note="Upgrades of the kernel start no newer one until undo.",
    )  # fmt: skip


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
    title = title_of(way, at.platform)
    edit = as_root(at.platform, "sed", "--in-place", f"s/^\\([^#]*\\b\\){way.instead_of}$/\\1{way.line}/", way.file)
    return replace(
        blank(at),
        id=slug(title),
        kind=StepKind.FILE,
        title=title,
        commands=(edit,),
        needs_root=True,
        done_when=(succeeds("grep", "-q", f"^[^#]*\\b{way.line}$", way.file),),
        seconds=NOT_MEASURED,
    )
