"""Which part of the wants is impossible here, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import listed
from firstlight.plan.builds import Build, Surety, suits
from firstlight.plan.clashes import Clash, releases_within
from firstlight.plan.pins import Place, admits, misfit
from firstlight.plan.sets import ORDER
from firstlight.plan.want import Want
from firstlight.tables import Tables


def what_is_impossible(
    question: Question, wants: tuple[Want, ...], *, builds: tuple[Build, ...], clashes: tuple[Clash, ...], place: Place
) -> str:
    """What of the wants cannot be had: torch 2.9.0 has no cu199; known for it: cu126, cu128 and cu130."""
    torch = next((want for want in wants if want.project == "torch"), Want("torch", "", "", "torch"))
    said = list(_of_torch(question, torch, builds=builds, place=place))
    for want in wants:
        if want.project in ORDER:
            said += _of_package(question.tables, want, place)
    if clashes:
        pairs = f"{len(clashes)} requirements clash" if len(clashes) > 1 else "a requirement clashes"
        said.append(f"{listed(want.text for want in wants)} cannot be installed together: {pairs}.")
    elif not said:
        together = listed(want.text for want in wants) or "torch"
        said.append(f"No releases are known in which {together} all go together here, though any two of them may.")
    return " ".join(said)


def _of_torch(question: Question, want: Want, *, builds: tuple[Build, ...], place: Place) -> Iterator[str]:
    if not builds:
        yield _no_such_release(question.tables, want, place)
        return
    wanted = [build for build in builds if suits(build, want)]
    if any(not build.why_not for build in wanted):
        return
    against = [build for build in builds if build.why_not and (build in wanted or not want.local)]
    if wanted or (against and len(against) == len(builds)):
        nearest = min(wanted or against, key=lambda build: len(build.why_not))
        yield from nearest.why_not
        yield from _other_pythons(question.tables, nearest, place)
    elif want.local:
        known = listed(cuda.tag for cuda in sorted({build.cuda for build in builds if build.has_cuda}))
        named = builds[0].torch.public if want.exact else "of these releases"
        yield f"torch {named} has no {want.local}; known for it: {known}."
    elif not any(build.has_cuda and not build.index for build in builds):
        yield from _no_cuda_on_pypi(question.tables, want, builds=builds, place=place)
    else:
        yield f"No build of {want.text} is known to run here."
        yield next(build.doubt for build in builds if build.doubt)


def _no_such_release(tables: Tables, want: Want, place: Place) -> str:
    releases = sorted((row.torch for row in tables.torch_releases if row.machine == place.machine), reverse=True)
    if not releases:
        machines = dict.fromkeys(row.machine for row in tables.torch_releases)
        return f"torch has no wheel for {place.machine}; known are {listed(machines)}."
    near = next((each.public for each in releases if admits(f"<={want.exact}", each.public)), "") if want.exact else ""
    if near and near != releases[0].public:
        return f"There is no {want.text}; the release before it is {near}."
    return (
        f"{want.text} is not known: the newest torch in the tables, of {tables.newest_date()}, is {releases[0].public}."
    )


def _other_pythons(tables: Tables, build: Build, place: Place) -> Iterator[str]:
    """Where Python is what does not fit: the first torch for it, and the Pythons this torch has."""
    rows = [row for row in tables.torch_releases if row.machine == place.machine]
    release = next(row for row in rows if row.torch == build.torch)
    if not place.python or place.minor in release.cpython:
        return
    fitting = sorted(row.torch for row in rows if place.minor in row.cpython)
    plain = [each for each in release.cpython if not each.endswith("t")]
    python_alone = len(build.why_not) == 1  # another Python helps with nothing else
    own = f"; an environment of Python {plain[-1]} takes torch {build.torch.public}" if python_alone else ""
    if not fitting:
        yield f"No torch has wheels for Python {place.minor} yet{own}."
    elif len(fitting) == 1:
        yield f"For Python {place.minor} there is torch {fitting[0].public}{own}."
    else:
        yield f"For Python {place.minor} there are torch {fitting[0].public} to {fitting[-1].public}{own}."


def _no_cuda_on_pypi(tables: Tables, want: Want, *, builds: tuple[Build, ...], place: Place) -> Iterator[str]:
    """PyPI's wheels for aarch64 before 2.11 have no CUDA."""
    rows = [row for row in tables.torch_releases if row.machine == place.machine and row.wheel_cuda is not None]
    since = f"; the first that has is {min(row.torch for row in rows).public}" if rows else ""
    yield f"PyPI's wheel of {want.text} for {place.machine} has no CUDA{since}."
    reported = [build for build in builds if not build.why_not and build.surety is Surety.REPORTED]
    if reported:
        names = listed(f"torch=={build.torch.public}+{build.local}" for build in reported[:2])
        yield f"Reported to be on PyTorch's index, and taken where asked for by name: {names}."


def _of_package(tables: Tables, want: Want, place: Place) -> Iterator[str]:
    rows = releases_within(tables, want)
    every = tables.package_releases(want.project)
    if not rows:
        yield (
            f"{want.text} is not known: the tables, of {tables.newest_date()}, have {want.project} "
            f"{every[0].version} to {every[-1].version}."
        )
        return
    reasons = [misfit(row, place) for row in rows]
    if all(reasons):
        more = "" if want.exact else f" No other release that {want.text} allows fits either."
        yield reasons[0] + more
