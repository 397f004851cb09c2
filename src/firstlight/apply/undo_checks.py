"""What is looked at before a run is taken back: whether its records can be what its steps left behind."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from firstlight.apply.executor import Acting
from firstlight.apply.footprints import project_files
from firstlight.apply.runs import SET_SAVED, Run, about_step
from firstlight.apply.saved_files import SAVED, digest, look_at
from firstlight.apply.set_records import environments_of
from firstlight.errors import BadInput
from firstlight.ways.back import EARLY_IMAGE_TOOLS, Argv, Back, BackKind, paths_of
from firstlight.ways.step import Step

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:/@-]*")
_SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/opt", "/proc", "/root", "/run", "/sys",
    "/tmp", "/usr/bin", "/usr/lib", "/usr/local", "/var/lib",  # noqa: S108 never removed as a whole
)  # fmt: skip
# Backs that name packages, modules, services, GPUs or images: nothing that a shell or a path could be made of.
_NAMED = (
    BackKind.REMOVE_RPM, BackKind.REMOVE_YUM, BackKind.REMOVE_TDNF, BackKind.REMOVE_ZYPPER, BackKind.REMOVE_PACMAN,
    BackKind.UNLOAD_MODULES, BackKind.DISABLE_SERVICE, BackKind.STOP_SERVICE, BackKind.RESTART_SERVICE,
    BackKind.UNHOLD, BackKind.UNLOCK_RPM, BackKind.UNLOCK_YUM, BackKind.UNLOCK_ZYPPER, BackKind.COMPUTE_MODE,
    BackKind.MIG_ON, BackKind.POWER_LIMIT,
    BackKind.REMOVE_IMAGE, BackKind.EARLY_IMAGE,
)  # fmt: skip
_WATTS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MODES = ("EXCLUSIVE_PROCESS", "PROHIBITED")
_COUNTS = {
    BackKind.MOVE_BACK: 2,
    BackKind.RELOAD_LOADER: 0,
    BackKind.BOOT_MENU: 0,
}  # words; one path for every other kind


def require_agreed(run: Run, commands: tuple[Argv, ...], agreed: tuple[Argv, ...]) -> None:
    """Refuse to run a command line that a journal of 0.1 holds unless somebody agreed to this very one."""
    for argv in commands:
        if argv not in agreed:
            raise BadInput(
                f"run {run.number} was written by firstlight 0.1, whose journal holds commands as text, and nobody "
                f"agreed to this one: {shlex.join(argv)}. Run `firstlight undo` in a terminal; it shows them and asks."
            )


def check_step(acting: Acting, run: Run, step: Step) -> None:
    """Refuse what the step cannot have left behind: another path to remove, another file to write, another Python."""
    for back in step.back:
        if fault := _fault(acting, step, back):
            raise BadInput(
                f"{acting.journal.path}: the way back of {step.title!r} {fault}. Nothing was changed. Was the journal "
                "edited? Put the original back."
            )
    for record in about_step(acting.journal, SET_SAVED, run=run.number, step=step.id):
        if record.about["of"] == "distributions" and record.about["target"] not in environments_of(step):
            raise BadInput(
                f"{acting.journal.path}, line {record.number}: {record.about['target']!a} is no environment that "
                f"{step.title!r} changes. Nothing was changed. Was the journal edited? Put the original back."
            )
    for record in about_step(acting.journal, SAVED, run=run.number, step=step.id):
        path = record.about["path"]
        if not (_is_of(step, path) or _holds_ours(path, record.about)):
            raise BadInput(
                f"{acting.journal.path}, line {record.number}: {step.title!r} does not change {path!a}. Nothing was "
                "changed. Was a link moved since? Put it back, or the journal, and run undo again."
            )


def _is_of(step: Step, path: str) -> bool:
    """Whether the step names the file, by itself or through a link."""
    named = (*(change.path for change in step.files), *project_files(step))
    return any(path in (each, os.path.realpath(each), _with_real_folder(each)) for each in named)


def _with_real_folder(path: str) -> str:
    return f"{os.path.realpath(os.path.dirname(path)).rstrip('/')}/{os.path.basename(path)}"


def _holds_ours(path: str, about: Mapping[str, Any]) -> bool:
    """Whether a file holds to the byte what firstlight wrote: then putting it back loses nothing of anybody's."""
    written, found = about["written"], look_at(path)
    return bool(written) and found is not None and digest(found.data) == written


def _fault(acting: Acting, step: Step, back: Back) -> str:
    if back.kind in (BackKind.SHOWN, BackKind.STORED):
        return ""
    if back.kind in _NAMED:
        return _name_fault(step, back)
    if len(back.words) != _COUNTS.get(back.kind, 1):
        return f"({back.kind.value}) has {len(back.words)} paths"
    for path in paths_of(back):
        if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path or path == "/":
            return f"names {path!a}, which is not a plain path"
        if _holds_what_is_not_its(acting, path, back):
            return f"would remove {path!a}, which holds more than the step made"
        made = _made_by(step)
        inside = back.kind in (BackKind.FORGET_PROOFS, BackKind.FORGET_COMPILED)
        if path not in made and not (inside and path in map(os.path.dirname, made)):
            return f"names {path!a}, which its commands do not"
    return ""


def _name_fault(step: Step, back: Back) -> str:
    """What is wrong with the names of a way back: they have to be plain, and the step's own commands name them."""
    ours = {word for argv in step.commands for word in argv} | set(_MODES)
    if not back.words or not all(map(_PACKAGE.fullmatch, back.words)):
        return f"({back.kind.value}) names {back.words!a}, which are not plain names"
    if back.kind is BackKind.EARLY_IMAGE and back.words[0] not in EARLY_IMAGE_TOOLS:
        return f"names {back.words[0]!a}, which is not a tool that makes it"
    names = back.words
    if back.kind is BackKind.POWER_LIMIT and _WATTS.fullmatch(back.words[-1]):
        names = back.words[:-1]  # those of before, which no command of the step has
    other = [word for word in names if not any(_tells(each, word) for each in ours)]
    if other or len(back.words) != len(set(back.words)):
        return f"names {', '.join(other or back.words)}, which its commands do not"
    pairs = back.kind in (BackKind.COMPUTE_MODE, BackKind.POWER_LIMIT)
    return (
        f"({back.kind.value}) has {len(back.words)} words" if pairs and len(back.words) != len(("gpu", "mode")) else ""
    )


def _tells(said: str, name: str) -> bool:
    """Whether a word of a command is the name, alone or with its version: cuda-compat-13-0-580.82.07, gcc=13.2."""
    return f"{said}-".startswith(f"{name}-") or said.startswith(f"{name}=")


def _holds_what_is_not_its(acting: Acting, path: str, back: Back) -> bool:
    """Whether a folder that goes with all that is in it holds the home, the state folder or this Python."""
    if back.kind not in (BackKind.REMOVE_FOLDER, BackKind.REMOVE_CONDA):
        return False
    real = os.path.realpath(path)
    kept = (acting.folder, os.path.expanduser("~"), sys.prefix, *_SYSTEM)
    return any(f"{os.path.realpath(each)}/".startswith(f"{real}/") for each in kept)


def _made_by(step: Step) -> frozenset[str]:
    """The paths that the step's commands, conditions and files name."""
    words = [word for argv in step.commands for word in argv]
    words += [condition.target for condition in step.done_when] + [change.path for change in step.files]
    words += project_files(step)
    return frozenset(word for word in words if word.startswith("/"))
