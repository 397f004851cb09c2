"""The packages that are shipped: those an option brings, or those of the machine that fit together. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import platform
from firstlight.errors import BadInput, BadVersion
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.place import Platform
from firstlight.frozen import dataclass
from firstlight.plan.option import Option
from firstlight.plan.sets import PackageSet
from firstlight.plan.solve import WIDEST, solve
from firstlight.plan.want import PROJECTS, Channel, Want, parse_want
from firstlight.tables import Tables
from firstlight.tables.torch_index import index_of_version
from firstlight.versions import CudaVersion, TorchVersion
from firstlight.ways.building import installed_versions, split_requirement
from firstlight.ways.kinds import InstallWheels
from firstlight.ways.way_back import is_from_index

OTHER_MACHINES = 'files for other machines, named by GPU and oldest driver, e.g. --for "H100, driver >= 550"'
_COMPILED = "flash-attn"  # no index has a wheel of it: it is compiled against the torch that is installed


@dataclass(frozen=True, slots=True)
class Part:
    """Packages that come from one index, e.g. torch==2.9.0+cu130 from https://download.pytorch.org/whl/cu130."""

    index: str  # "" = the index that pip is set to
    requirements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Packages:
    """What is shipped, torch's index first, and what is installed on the machine but does not come along."""

    parts: tuple[Part, ...]
    left_out: tuple[str, ...]


def packages_of(question: Question, option: Option, wants: tuple[Want, ...]) -> Packages:
    """What the option brings; where it brings no torch, what is installed there and fits together."""
    installs = [way for way in option.ways if isinstance(way, InstallWheels)]
    brought = {each.project: (each, way.index) for way in installs for each in way.packages}
    if _COMPILED in brought:
        asked = any(want.project == _COMPILED for want in wants)
        instead = "Leave it out." if asked else f"Files can come without it. {_say(question)}"
        raise BadInput(f"{_COMPILED}: no index has a wheel, it is compiled on the machine itself. {instead}")
    if unpinned := [each.project for each, _ in brought.values() if not each.version and is_from_index(each)]:
        raise BadInput(f"{', '.join(unpinned)}: the newest of a channel has no number to pin. {_say(question)}")
    placed = {
        name: (index if index and is_from_index(each) else index_of_version(each.version), each.requirement)
        for name, (each, index) in brought.items()
        if each.version
    }
    if "torch" in placed and wants:
        return Packages(_by_index(placed.values()), ())
    return _together(question, wants, placed)


def _by_index(placed: Iterable[tuple[str, str]]) -> tuple[Part, ...]:
    found: dict[str, list[str]] = {}
    for index, requirement in sorted(placed, key=lambda each: _order(each[1])):
        found.setdefault(index, []).append(requirement)
    return tuple(Part(index, tuple(requirements)) for index, requirements in found.items())


def _order(requirement: str) -> int:
    name = split_requirement(requirement)[0]
    return PROJECTS.index(name) if name in PROJECTS else len(PROJECTS)


def _together(question: Question, wants: tuple[Want, ...], placed: dict[str, tuple[str, str]]) -> Packages:
    """What the option brings and what is installed beside it, as far as all can be had together from an index.

    placed: by project, the index and the pin of what the option brings.
    """
    have = {**installed_versions(question.facts.environment)}
    if "torch" not in placed:
        _keepable(question, have)
    have |= {name: split_requirement(pin)[1] for name, (_, pin) in placed.items()}
    asked = {want.project for want in wants}
    # triton comes with torch, which pins it
    names = [name for name in PROJECTS if name in have and (name in asked or (not asked and name != "triton"))]
    taken: tuple[Want, ...] = (parse_want(f"torch=={have['torch']}"),)
    best, left_out = _solved(question, taken), []
    for name in (each for each in names if each != "torch"):
        more = (*taken, parse_want(f"{name}=={have[name]}"))
        found = _solved(question, more)
        if found is None:
            left_out.append(
                f"{name}=={have[name]}: cannot be installed together with {', '.join(w.text for w in taken)}"
            )
        else:
            taken, best = more, found
    if best is None:  # an old release that the tables do not know is there as it is named
        torch = placed.get("torch", (index_of_version(have["torch"]), f"torch=={have['torch']}"))
        return Packages(_by_index([torch]), tuple(left_out))
    picks = (placed.get(pick.project, (pick.index, pick.requirement)) for pick in best.picks)
    return Packages(_by_index(picks), tuple(left_out))


def _keepable(question: Question, have: dict[str, str]) -> None:
    """Refuse a torch that is there but cannot be had elsewhere."""
    if "torch" not in have:
        raise BadInput(f"the plan brings no torch, and the machine has none. {_say(question)}")
    if platform(question.facts) is Platform.JETSON:
        where = "comes from an index for its JetPack, which no file that is written here can name"
        raise BadInput(f"The torch of a Jetson {where}. {_say(question)}")
    _shippable(have["torch"], question)


def _say(question: Question) -> str:
    """What can be asked for instead: the newest torch of an index that runs there, if there is one."""
    sets = solve(question, (parse_want("torch"),), channel=Channel.STABLE).sets
    best = next((each.torch for each in sets if not each.torch.from_source), None)
    if best is None:
        return f"No torch of an index runs there as it is. Accepted: {OTHER_MACHINES}."
    return f'Say which torch: --want "{best.requirement}".'


def _solved(question: Question, wants: tuple[Want, ...]) -> PackageSet | None:
    sets = solve(question, wants, channel=Channel.STABLE, driver_cuda=WIDEST).sets
    return next((each for each in sets if not any(pick.from_source for pick in each.picks)), None)


def torch_of(packages: Packages, question: Question) -> TorchVersion:
    """The torch that is shipped."""
    names = (split_requirement(each) for part in packages.parts for each in part.requirements)
    return _shippable(next(version for name, version in names if name == "torch"), question)


def _shippable(text: str, question: Question) -> TorchVersion:
    """A release of an index; a nightly is gone from it after some weeks, a build of somebody's own never was there."""
    try:
        version = TorchVersion.parse(text)
    except BadVersion as error:
        raise BadInput(f"{error} {_say(question)}") from None
    if version.is_nightly:
        raise BadInput(f"torch {version} is a nightly, which its index drops after some weeks. {_say(question)}")
    if version.stage == 1 or (version.local and not re.fullmatch(r"cu\d+|cpu", version.local)):
        raise BadInput(f"torch {version} is on no index: no file can bring it. {_say(question)}")
    return version


def cuda_of(torch: TorchVersion, machine: str, tables: Tables) -> Fact[CudaVersion]:
    """The CUDA that a torch is built with; Unknown where it is built without."""
    if torch.cuda is not None:
        return Known(torch.cuda, f"the name {torch}")
    release = tables.torch_release(torch.public, machine)
    if torch.local == "cpu" or (release is not None and release.wheel_cuda is None):
        return Unknown("it is built without CUDA")
    if release is None or release.wheel_cuda is None:
        raise BadInput(
            f"which CUDA torch {torch} is built with is not in the tables, so no gate can be computed. Name the build, "
            f'e.g. --want "torch=={torch.public}+cu128".'
        )
    return Known(release.wheel_cuda, f"{release.source}, {release.date}")
