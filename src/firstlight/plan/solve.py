"""Torch and the packages around it, solved together from what their wheels require. Pure."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.facts.known import value_or
from firstlight.frozen import dataclass
from firstlight.plan.builds import Build, builds_for, place_of, suits, supposing
from firstlight.plan.clashes import Clash, find_clashes
from firstlight.plan.early import early_sets, is_early
from firstlight.plan.impossible import what_is_impossible
from firstlight.plan.nearest import nearest_sets
from firstlight.plan.pins import Place
from firstlight.plan.sets import ORDER, Bounds, PackageSet, Pick, Search, find_set
from firstlight.plan.want import Channel, Want
from firstlight.versions import CudaVersion

__all__ = ["WIDEST", "Clash", "PackageSet", "Pick", "Solution", "solve"]

# stands for "whatever driver": every wheel that the GPUs, the processor and Python take
WIDEST = CudaVersion(99, 0)
_MOST_SETS = 5  # of one want; enough to choose from, few enough to read


@dataclass(frozen=True, slots=True)
class Solution:
    """What can be installed, best first; or why not, and the nearest that can."""

    sets: tuple[PackageSet, ...]  # () = impossible
    clashes: tuple[Clash, ...]  # every pair of wants that cannot be had together
    impossible: str  # which part is impossible, in full sentences; "" where it can be had
    nearest: tuple[PackageSet, ...]  # where impossible: what comes nearest, the best first; () = nothing does


def solve(
    question: Question, wants: tuple[Want, ...], *, channel: Channel, driver_cuda: CudaVersion | None = None
) -> Solution:
    """The sets that satisfy all wants here.

    driver_cuda: as if a libcuda of that CUDA had started, e.g. 13.0 with cuda-compat-13-0, or WIDEST for any driver;
    None: what this machine's driver runs as it is.
    """
    supposed = supposing(question, wants, driver_cuda=driver_cuda)
    place = place_of(supposed, wants)
    torch = next((want for want in wants if want.project == "torch"), Want("torch", "", "", "torch"))
    if is_early(torch, channel):
        return _early(supposed, wants, channel=channel, place=place)
    others = tuple(want for want in wants if want.project in ORDER)
    builds = builds_for(supposed, torch, place=place)
    wanted = tuple(build for build in builds if suits(build, torch))
    sets = _sets(supposed, wanted, torch=torch, others=others, place=place)
    if sets:
        return Solution(sets, (), "", ())
    running = tuple(build for build in wanted if not build.why_not)
    clashes = find_clashes(question.tables, wants, builds=running or wanted, place=place)
    impossible = what_is_impossible(supposed, wants, builds=builds, clashes=clashes, place=place)
    return Solution((), clashes, impossible, nearest_sets(supposed, torch, others, place=place))


def _sets(
    question: Question, builds: tuple[Build, ...], *, torch: Want, others: tuple[Want, ...], place: Place
) -> tuple[PackageSet, ...]:
    """One set for each CUDA of a wanted release that runs; of a range of torch the best build of each release."""
    found: list[PackageSet] = []
    for build in builds:
        same = [each.torch for each in found if each.torch.version == build.torch.public]
        again = any(not torch.exact or value_or(pick.cuda, build.cuda) == build.cuda for pick in same)
        if not build.why_not and not again and len(found) < _MOST_SETS:
            found += find_set(Search(question.tables, build, place, others, Bounds.HELD))
    return tuple(found)


def _early(question: Question, wants: tuple[Want, ...], *, channel: Channel, place: Place) -> Solution:
    sets, impossible = early_sets(question, wants, channel=channel, place=place)
    if sets:
        return Solution(sets, (), "", ())
    kept = tuple(want for want in wants if not (want.project == "torch" and is_early(want, Channel.STABLE)))
    stable = solve(question, kept, channel=Channel.STABLE)
    return Solution((), (), impossible, (*stable.sets, *stable.nearest)[:1])
