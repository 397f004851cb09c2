"""What comes nearest to wants that cannot be had."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_answers import cuda_kept_for
from firstlight.frozen import dataclass
from firstlight.plan.builds import Build, Surety, builds_for, suits
from firstlight.plan.pins import Place, admits
from firstlight.plan.sets import Bounds, PackageSet, Search, find_set
from firstlight.plan.want import Want
from firstlight.versions import TorchVersion


@dataclass(frozen=True, slots=True)
class _Near:
    """A set and how far it is from the wants; smaller is nearer."""

    packages: PackageSet
    torch: tuple[bool, bool, bool, int]
    changed: int  # wants beside torch that it does not hold
    order: tuple[bool, int]


def nearest_sets(question: Question, torch: Want, others: tuple[Want, ...], *, place: Place) -> tuple[PackageSet, ...]:
    """The set that keeps torch nearest to what was wanted, and after it one that keeps more of the other wants.

    Both hold every wanted project and run here. Torch is kept first in its build, then its release, then its minor.
    """
    builds = builds_for(question, Want("torch", "", torch.local, "torch"), place=place)
    running = [build for build in builds if not build.why_not]
    sure = [build for build in running if build.surety is Surety.DOCUMENTED or (torch.local and suits(build, torch))]
    sure = sure or [build for build in running if build.surety is Surety.LISTED]
    found = []
    kept = cuda_kept_for(question)
    for order, build in enumerate(sure):
        for packages in find_set(Search(question.tables, build, place, others, Bounds.PREFERRED)):
            changed = sum(not _holds(packages, want) for want in others)
            found.append(
                _Near(packages, _from_torch(build, torch, sure), changed, (kept not in (None, build.cuda), order))
            )
    if not found:
        return ()
    first = min(found, key=lambda near: (near.torch, near.changed, near.order))
    second = min(found, key=lambda near: (near.changed, near.torch, near.order))
    return (first.packages, second.packages) if second.changed < first.changed else (first.packages,)


def _holds(packages: PackageSet, want: Want) -> bool:
    pick = packages.pick(want.project)
    return pick is not None and admits(want.specifier, pick.version) and want.local in ("", pick.local)


def _from_torch(build: Build, torch: Want, builds: list[Build]) -> tuple[bool, bool, bool, int]:
    """Not that build, not that release, not that minor, and how many releases away."""
    release = admits(torch.specifier, build.torch.public)
    exact = release and suits(build, torch)
    wanted = _wanted(torch, builds)
    minor = wanted.release[:2] == build.torch.release[:2]
    between = {each.torch for each in builds if min(wanted, build.torch) < each.torch <= max(wanted, build.torch)}
    return not exact, not release, not minor, len(between)


def _wanted(torch: Want, builds: list[Build]) -> TorchVersion:
    """The release that distances are counted from: the one asked for, else the newest."""
    newest = max(build.torch for build in builds)
    try:
        return TorchVersion.parse(torch.exact) if torch.exact else newest
    except ValueError:  # ==3 has one number
        return newest
