"""Fills a bundle: pip downloads as a child process, and again what only the other machine needs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable

from firstlight.apply.bundle import (
    MANIFEST,
    Bundle,
    Wheel,
    manifest_text,
    names_in,
    plan_digest,
    what_lacks,
)
from firstlight.apply.commands import run_logged
from firstlight.apply.disk import Disk
from firstlight.apply.shelf import listed_wheel
from firstlight.errors import BadInput, CouldNotAct
from firstlight.frozen import dataclass
from firstlight.secrets import has_login, without_login
from firstlight.ways.back import Argv
from firstlight.ways.wheel_target import Target, pip_flags

LOG = "download.log"
_ROUNDS = 8  # of what pip left out because its markers are read for the machine that downloads


@dataclass(frozen=True, slots=True)
class Source:
    """Where wheels come from: pip's own index (""), another, or folders alone."""

    index: str = ""
    folders: tuple[str, ...] = ()

    @property
    def flags(self) -> Argv:
        if self.folders:
            return ("--no-index", *(word for folder in self.folders for word in ("--find-links", folder)))
        return ("--index-url", self.index) if self.index and not self.is_secret else ()

    @property
    def is_secret(self) -> bool:
        """Whether the address carries a password, which belongs in no log and in no list of processes."""
        return has_login(self.index)

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, **({"PIP_INDEX_URL": self.index} if self.is_secret else {})}

    @property
    def name(self) -> str:
        return ", ".join(self.folders) or without_login(self.index)


@dataclass(frozen=True, slots=True)
class Part:
    """Requirements that come from one source."""

    requirements: tuple[str, ...]
    source: Source


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is bundled: the parts in the order of their downloads, and for whom."""

    made_for: str
    option: str
    target: Target
    parts: tuple[Part, ...]

    @property
    def requirements(self) -> tuple[str, ...]:
        return tuple(each for part in self.parts for each in part.requirements)


def refuse_folder(folder: str) -> None:
    """A folder that holds something else than an earlier bundle is not filled."""
    if not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise BadInput(f"--out {folder}: it is not a folder; accepted: a new one, an empty one, or a bundle.")
        return
    foreign = [name for name in names_in(folder) if not (name.endswith(".whl") or name in (MANIFEST, LOG))]
    if foreign:
        raise BadInput(
            f"--out {folder}: it holds {foreign[0]!a}, which is not part of a bundle; accepted: a new folder, an empty "
            "one, or a bundle to continue."
        )


def fill(folder: str, chosen: Chosen, *, watch: Callable[[str], None]) -> Bundle:
    """Download what is chosen and everything it needs there; files that are there already are not fetched again."""
    disk = Disk()
    disk.make_folders(folder)
    disk.remove(f"{folder}/{MANIFEST}")  # until it is whole again, it is no bundle
    sources: dict[str, str] = dict.fromkeys(_wheels(folder), "")
    for part in chosen.parts:
        _fetch(folder, chosen, part, watch=watch)
        sources.update((name, part.source.name) for name in _wheels(folder) if not sources.get(name))
    for _ in range(_ROUNDS):
        lacking = what_lacks(folder, _wheels(folder), requirements=chosen.requirements, target=chosen.target)
        if not lacking:
            break
        _fetch_without_needs(folder, chosen, lacking, watch=watch)
        sources.update((name, chosen.parts[0].source.name) for name in _wheels(folder) if not sources.get(name))
    else:
        lacks = ", ".join(lacking)
        raise CouldNotAct(f"the bundle is not whole: {lacks} could not be found for {chosen.target.words}.")
    bundle = Bundle(
        made_for=chosen.made_for,
        target=chosen.target,
        option=chosen.option,
        requirements=chosen.requirements,
        plan_digest=plan_digest(chosen.requirements, index=chosen.parts[0].source.name, target=chosen.target),
        wheels=tuple(_described(folder, name, sources[name]) for name in _wheels(folder)),
    )
    disk.write(f"{folder}/{MANIFEST}", manifest_text(bundle).encode(), mode=0o644)
    return bundle


def _wheels(folder: str) -> tuple[str, ...]:
    return tuple(name for name in names_in(folder) if name.endswith(".whl"))


def _described(folder: str, name: str, source: str) -> Wheel:
    found = listed_wheel(folder, name)
    size = os.path.getsize(f"{folder}/{name}")
    return Wheel(name, found.wheel.project, found.wheel.version, size, found.sha256, source)


def download_command(folder: str, target: Target, part: Part) -> Argv:
    """pip download for another machine; what lies in the folder already is taken from there."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-input", "--dest", folder)
    return (*pip, *pip_flags(target), *part.source.flags, "--find-links", folder, *part.requirements)


def _fetch(folder: str, chosen: Chosen, part: Part, *, watch: Callable[[str], None]) -> None:
    """With what pip says is needed; for a foreign target pip may ask for what only this machine needs: then without."""
    target = chosen.target
    try:
        _run(folder, part, target, watch=watch)
    except CouldNotAct:
        if (target.machine, target.python) == (platform.machine(), ".".join(platform.python_version_tuple()[:2])):
            raise
        _run(folder, Part(("--no-deps", *part.requirements), part.source), target, watch=watch)


def _fetch_without_needs(
    folder: str, chosen: Chosen, lacking: tuple[str, ...], *, watch: Callable[[str], None]
) -> None:
    """Each from the first source that has it: PyTorch's index has the libraries that torch pins, PyPI the rest."""
    for wanted in lacking:
        for number, part in enumerate(chosen.parts, 1):
            try:
                _run(folder, Part(("--no-deps", wanted), part.source), chosen.target, watch=watch)
                break
            except CouldNotAct:
                if number == len(chosen.parts):
                    raise


def _run(folder: str, part: Part, target: Target, *, watch: Callable[[str], None]) -> None:
    argv = download_command(folder, target, part)
    ended = run_logged(argv, log=f"{folder}/{LOG}", env=part.source.environ, started=lambda process: None, watch=watch)
    if ended.status == 0:
        return
    last = next((line for line in reversed(ended.tail) if line.startswith("ERROR")), (*ended.tail, "nothing")[-1])
    if "No module named pip" in last:
        raise CouldNotAct(f"{sys.executable} has no pip. Install it there: {sys.executable} -m ensurepip")
    wanted = " ".join(part.requirements)
    raise CouldNotAct(
        f"pip could not download {wanted} for {target.words}: {last.removeprefix('ERROR: ')[:300]}. "
        f"The whole output is in {folder}/{LOG}; the same command continues with what is there."
    )
