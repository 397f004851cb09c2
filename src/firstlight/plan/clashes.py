"""Which wants cannot be had together, and the requirement that says so."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from firstlight.frozen import dataclass
from firstlight.plan.builds import CPU, Build
from firstlight.plan.pins import Place, admits, misfit, pin_on, takes_torch, torch_pin
from firstlight.plan.sets import ORDER, agree, on_torch_index, same_cuda
from firstlight.plan.want import Want
from firstlight.tables import Tables
from firstlight.tables.pin_rows import PackagePins
from firstlight.tables.row import Pin


@dataclass(frozen=True, slots=True)
class Clash:
    """Two things that cannot be had together, e.g. vllm 0.11.0 and torch==2.9.0+cu130.

    sentence: vllm 0.11.0 requires torch==2.8.0; wanted is torch==2.9.0+cu130.
    """

    first: str
    second: str
    said_by: str  # the source of the requirement
    sentence: str


def find_clashes(
    tables: Tables, wants: tuple[Want, ...], *, builds: tuple[Build, ...], place: Place
) -> tuple[Clash, ...]:
    """Every pair of wants of which no two releases go together; builds are those of the wanted torch, or all."""
    torch = next((want for want in wants if want.project == "torch"), Want("torch", "", "", "torch"))
    found: list[Clash] = []
    others = sorted((want for want in wants if want.project in ORDER), key=lambda want: ORDER.index(want.project))
    for want in others:
        rows = fitting_releases(tables, want, place)
        if rows and builds:
            found += _with_torch(tables, torch, want, builds=builds, rows=rows, place=place)
    for first, second in combinations(others, 2):
        found += _between(tables, first, second, place=place)
    return tuple(found)


def releases_within(tables: Tables, want: Want) -> list[PackagePins]:
    """The known releases that a want's bounds admit, newest first."""
    return [row for row in reversed(tables.package_releases(want.project)) if admits(want.specifier, row.version)]


def fitting_releases(tables: Tables, want: Want, place: Place) -> list[PackagePins]:
    """Those of them that have a file for this processor and Python; all where none has."""
    rows = releases_within(tables, want)
    return [row for row in rows if not misfit(row, place)] or rows


def _with_torch(
    tables: Tables, torch: Want, want: Want, *, builds: tuple[Build, ...], rows: list[PackagePins], place: Place
) -> Iterator[Clash]:
    machine, wanted = place.machine, _torch_wanted(torch, builds)
    pairs = [(build, row) for build in builds for row in rows if takes_torch(tables, row, build.torch, machine=machine)]
    if not pairs and want.project == "triton":
        yield _triton_clash(tables, want, build=builds[0], wanted=wanted, place=place)
    elif not pairs:
        yield _pin_clash(rows[0], want, wanted=wanted, pin=pin_on(rows[0], "torch", machine=machine))
    tags = {build.cuda.tag if build.has_cuda else CPU for build in builds}
    if want.local and want.local not in tags:
        sentence = f"{want.text} is a build for {want.local}; wanted is {wanted}. Both have to be the same build."
        yield Clash(want.text, wanted, "the names of the builds", sentence)
    fitting = pairs or [(build, rows[0]) for build in builds if want.exact]
    if not fitting or any(
        same_cuda(row, build, machine=machine) or on_torch_index(tables, row, build) for build, row in fitting
    ):
        return
    build, row = fitting[0]
    name = f"{row.project} {row.version}"
    has = f"has CUDA {build.cuda.major}" if build.has_cuda else "has no CUDA"
    linked = f"PyPI's wheel of {name} is linked with libcudart.so.{row.cuda_major(machine)}"
    yield Clash(name, wanted, f"{row.source}, {row.date}", f"{linked}; wanted is {wanted}, which {has}.")


def _torch_wanted(torch: Want, builds: tuple[Build, ...]) -> str:
    """torch==2.9.0+cu130 as it was wanted; of a range which releases are meant."""
    if torch.exact:
        return torch.text
    versions = sorted({build.torch for build in builds})
    which = versions[0].public if len(versions) == 1 else f"{versions[0].public} to {versions[-1].public}"
    if len(versions) == 1:
        return f"torch {which}, the only one that runs here" if not builds[0].why_not else f"torch {which}"
    return f"{torch.text} ({which})"


def _triton_clash(tables: Tables, want: Want, *, build: Build, wanted: str, place: Place) -> Clash:
    pin = torch_pin(tables, build.torch, "triton", machine=place.machine)
    release = tables.torch_release(build.torch, "x86_64")
    said_by = "" if release is None else f"{release.source}, {release.date}"
    name = f"torch {build.torch.public}"
    more = "" if "(" not in wanted else f", and no other of {wanted} fits either"
    return Clash(name, want.text, said_by, f"{name} requires {pin}; wanted is {want.text}{more}.")


def _between(tables: Tables, first: Want, second: Want, *, place: Place) -> Iterator[Clash]:
    """A clash of two packages beside torch: vllm 0.11.0 requires torchvision==0.23.0."""
    machine = place.machine
    rows, others = fitting_releases(tables, first, place), fitting_releases(tables, second, place)
    if not rows or not others or any(agree(row, other, machine=machine) for row in rows for other in others):
        return
    for row, wanted, mine in ((rows[0], second, first), (others[0], first, second)):
        pin = pin_on(row, wanted.project, machine=machine)
        if pin is not None:
            yield _pin_clash(row, mine, wanted=wanted.text, pin=pin)


def _pin_clash(row: PackagePins, want: Want, *, wanted: str, pin: Pin | None) -> Clash:
    name = f"{row.project} {row.version}"
    said = f"requires {pin}" if pin is not None else f"goes with torch {row.version} and later"
    if want.exact:
        sentence = f"{name} {said}; wanted is {wanted}."
    else:
        sentence = (
            f"{name}, the newest of {want.text} for this machine, {said}; wanted is {wanted}. "
            f"No other release of {want.text} fits either."
        )
    return Clash(name, wanted, f"{row.source}, {row.date}", sentence)
