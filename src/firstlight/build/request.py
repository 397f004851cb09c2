"""What a command line asks to be built, and how."""

from __future__ import annotations

import os
import re

from firstlight.build.archs import Arch
from firstlight.build.flags import Flag
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)")
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:[<>=!~].*)?")
_GIT = re.compile(r"git\+(?P<url>(?:https?|ssh|git|file)://(?:[^@/\s]+@)?[^@\s]+)(?:@(?P<ref>[\w./+-]+))?")
SDIST = (".tar.gz", ".tar.xz", ".tar.bz2", ".zip")
MOST_JOBS = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """What is built; one of the four is set: a release of an index, a folder, an archive, a repository at a ref."""

    given: str
    name: str = ""  # of a release
    version: str = ""
    folder: str = ""
    archive: str = ""
    url: str = ""
    ref: str = ""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A target and everything that was said about how to build it; "" and () = decided here."""

    target: Target
    source: str = ""
    archs: tuple[Arch, ...] = ()
    features_on: tuple[str, ...] = ()
    features_off: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    jobs: int = 0  # 0 = by memory and processors
    patches: tuple[str, ...] = ()
    build_dir: str = ""
    prefix: str = ""
    only: str = ""  # one target of the build, e.g. c10
    toolkit: str = ""
    max_minutes: int = 0
    wheel_only: bool = False
    no_deps: bool = False  # what the wheel requires when it runs is named and not brought


def parse_target(text: str) -> Target:
    """torch==2.9.1, a folder, an sdist or git+URL@REF."""
    if match := _GIT.fullmatch(text):
        return Target(text, url=match["url"], ref=match["ref"] or "")
    if text.endswith(SDIST) or os.path.isfile(text):
        if not os.path.isfile(text):
            raise BadInput(f"{text!a}: no such file. Name an sdist that is here, or NAME==VERSION to have it fetched.")
        if not text.endswith(SDIST):
            raise BadInput(f"{text!a}: no sdist; accepted is a file that ends in {', '.join(SDIST)}.")
        return Target(text, archive=os.path.abspath(text))
    if os.path.isdir(text):
        return Target(text, folder=os.path.abspath(text))
    if match := _REQUIREMENT.fullmatch(text):
        return Target(text, name=match[1], version=match[2])
    accepted = "accepted: NAME==VERSION (flash-attn==2.8.3), a folder, an sdist, or git+URL@REF."
    if match := _NAME.fullmatch(text):
        raise BadInput(
            f"{text!a}: no folder of that name is here, and a release is named with its version, {match[1]}==VERSION; "
            f"{accepted}"
        )
    raise BadInput(f"{text!a} is nothing that can be built; {accepted}")


def check_jobs(jobs: int | None) -> int:
    """--jobs, 0 where it was not given."""
    if jobs is None:
        return 0
    if not 1 <= jobs <= MOST_JOBS:
        raise BadInput(
            f"--jobs {jobs}: accepted is a number from 1 to {MOST_JOBS}; left out, memory and processors decide."
        )
    return jobs
