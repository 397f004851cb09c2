"""What ways take: bytes from tables, index or neighbours; seconds from bytes, a rate and the work besides. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Origin, Unknown, value_or
from firstlight.tables import Tables
from firstlight.tables.cost_rows import Duration, Per, Work
from firstlight.tables.system_rows import Family
from firstlight.ways import kinds
from firstlight.ways.asks import MAKE_ROOM
from firstlight.ways.families import family_of
from firstlight.ways.fetched import fetched
from firstlight.ways.guests import is_virtual
from firstlight.ways.index_sizes import NOT_ASKED, IndexSizes
from firstlight.ways.kinds import Manner
from firstlight.ways.piece import Piece
from firstlight.ways.way import Way
from firstlight.ways.wheels_fetched import Asked, by_uv

NOTHING: Known[int] = Known(0, "nothing is fetched")
AT_ONCE: Known[float] = Known(0.0, "nothing is fetched, built or waited for")
ASSUMED_SPEED: Known[float] = Known(50e6, "assumed", Origin.ASSUMED)  # bytes per second; printed beside the minutes
_PROCESSORS = 8  # taken where their number is not known, and said
_COMPILES = {"torch": Work.COMPILE_TORCH, "flash-attn": Work.COMPILE_FLASH_ATTN}
_USES_GPUS = (
    kinds.LoadModules, kinds.ReloadModules, kinds.ResetGpu, kinds.TurnOffMig, kinds.StartService,
)  # fmt: skip
_OF_PACKAGES = (kinds.SetUpRepository, kinds.InstallPackages, kinds.InstallDriver, kinds.RemovePackages)
_WITH_APT = (Family.UBUNTU, Family.DEBIAN, Family.OTHER)  # where nothing names a family, apt's times are taken
_EARLY_IMAGE = (kinds.ForbidModule, kinds.SetModuleOption)  # the kernel starts from a copy of what they write


def bytes_of(way: Way, facts: Facts, tables: Tables, sizes: IndexSizes = NOT_ASKED) -> Fact[int]:
    """What a way downloads, e.g. 4057767342 for torch 2.9.0 from PyPI with the wheels that it pulls."""
    return bytes_of_all((way,), facts, tables, sizes)


def seconds_of(way: Way, facts: Facts, tables: Tables, rate: Fact[float], sizes: IndexSizes = NOT_ASKED) -> Fact[float]:
    """How long a way takes at a rate in bytes per second, e.g. 127.4 seconds with what they are made of."""
    return seconds_of_all((way,), Asked(facts, tables, sizes), rate)


def bytes_of_all(ways: tuple[Way, ...], facts: Facts, tables: Tables, sizes: IndexSizes = NOT_ASKED) -> Fact[int]:
    """What a chain downloads; Unknown where one piece is."""
    pieces = _pieces(ways, Asked(facts, tables, sizes))
    if isinstance(pieces, Unknown):
        return pieces
    total = sum(piece.bytes for piece in pieces)
    if not pieces:
        return NOTHING
    about = [piece for piece in pieces if piece.origin is Origin.ASSUMED]
    basis = "; ".join(dict.fromkeys(piece.basis for piece in about or pieces))  # what is exact needs no word beside it
    return Known(total, basis, Origin.ASSUMED if about else Origin.SEEN)


def seconds_of_all(ways: tuple[Way, ...], asked: Asked, rate: Fact[float]) -> Fact[float]:
    """How long a chain takes: the download at a rate, and the work besides."""
    works = _works(ways, asked)
    if isinstance(works, Unknown):
        return works
    pieces = _pieces(ways, asked)
    if isinstance(pieces, Unknown):
        return pieces
    total = sum(piece.bytes for piece in pieces)
    if total and isinstance(rate, Unknown):
        return rate
    said: dict[str, float] = {}
    if total and isinstance(rate, Known):
        said[f"at {rate.value / 1e6:.0f} MB/s ({rate.seen_in})"] = total / rate.value
    for work, times in (*works, *_unpacking(pieces)):
        words, seconds = _worked(asked.tables.duration(work), times, asked.facts)
        said[words] = said.get(words, 0.0) + seconds
    if not said:
        return AT_ONCE
    basis = ", ".join(f"{words} {seconds:.0f} s" for words, seconds in said.items())
    return Known(sum(said.values()), basis, Origin.ASSUMED)


def _pieces(ways: tuple[Way, ...], asked: Asked) -> tuple[Piece, ...] | Unknown:
    found = []
    for way in ways:
        for piece in fetched(way, asked):
            if isinstance(piece, Unknown):
                return piece
            found.append(piece)
    return tuple(found)


def _unpacking(pieces: tuple[Piece, ...]) -> Iterator[tuple[Work, float]]:
    """Gigabytes by what unpacks them."""
    yield from ((piece.unpacked_by, piece.bytes / 1e9) for piece in pieces if piece.bytes)


def _works(ways: tuple[Way, ...], asked: Asked) -> tuple[tuple[Work, float], ...] | Unknown:
    found: list[tuple[Work, float]] = []
    for way in ways:
        work = _work(way, asked)
        if isinstance(work, Unknown):
            return work
        found.extend(work)
    return tuple(found)


def _work(way: Way, asked: Asked) -> tuple[tuple[Work, float], ...] | Unknown:
    """What takes time in a way besides downloads and their unpacking, how many times; () = done at once."""
    facts = asked.facts
    packages = isinstance(way, _OF_PACKAGES) or (isinstance(way, kinds.BuildModules) and bool(way.headers))
    if packages and family_of(facts.place) not in _WITH_APT:
        return Unknown("how long the package manager of this system takes was not measured")
    match way:
        case kinds.MakeEnvironment():
            return ((Work.VENV, 1),)
        case kinds.InstallWheels() | kinds.CloseLibraries():
            return _installing(way, asked)
        case kinds.SetUpRepository():
            return ((Work.APT_LISTS, 1),)
        case kinds.InstallPackages() | kinds.RemovePackages() | kinds.HoldPackages():
            return ((Work.APT, 1),)
        case kinds.InstallDriver():
            return (Work.APT, 1), (Work.DKMS, 1), (Work.EARLY_IMAGE, 1)
        case kinds.ConstrainProject():
            return ((Work.UV, 1),)
        case kinds.KeepInProject():
            return ((Work.UV, 2),)  # locked, then synchronised
        case kinds.BuildModules():
            return ((Work.APT, 1), (Work.DKMS, 1)) if way.headers else ((Work.DKMS, 1),)
        case kinds.BuildFromSource():
            return _compiling(way.project)
        case kinds.Restart():
            return (Work.RESTART_GUEST if is_virtual(facts) else Work.RESTART_METAL, 1), (Work.GPU_START, _gpus(facts))
        case kinds.OtherMachine():
            return Unknown("how long it takes to get another machine and set it up is not known")
        case kinds.ChangeImage() | kinds.Unwire(by=kinds.WiredBy.CONTAINER_RUNTIME):
            return Unknown("how long that image takes to build is not known")
        case kinds.AskPerson() if way.cures or way.what == MAKE_ROOM:
            return Unknown("how long it takes you is not known")
        case kinds.StartContainer():
            return Unknown("how long it takes you to set up the new container is not known")
        case _ if isinstance(way, _EARLY_IMAGE):
            return ((Work.EARLY_IMAGE, 1),)
        case _ if isinstance(way, _USES_GPUS):
            return ((Work.GPU_START, _gpus(facts)),)
        case _:
            return ()


def _installing(
    way: kinds.InstallWheels | kinds.CloseLibraries, asked: Asked
) -> tuple[tuple[Work, float], ...] | Unknown:
    start: tuple[tuple[Work, float], ...] = ((Work.UV if by_uv(asked.facts) else Work.PIP, 1),)
    if not isinstance(way, kinds.InstallWheels):
        return start
    sources = {row.project for row in asked.tables.wheel_sizes if row.machine == "source"}
    built = [each.project for each in way.packages if way.manner is Manner.COMPILED or each.project in sources]
    for project in built:
        work = _compiling(project)
        if isinstance(work, Unknown):
            return work
        start = (*start, *work)
    return start


def _compiling(project: str) -> tuple[tuple[Work, float], ...] | Unknown:
    work = _COMPILES.get(project)
    return Unknown(f"how long {project} takes to compile is not known") if work is None else ((work, 1),)


def _worked(row: Duration, times: float, facts: Facts) -> tuple[str, float]:
    """What works and how long: ('pip', 14.0), ('kernel modules built by 8 processors', 24.8)."""
    words = row.work.value.partition(",")[0]
    if row.per is not Per.PROCESSOR:
        return words, row.seconds * times
    count = _processors(facts)
    guess = "" if isinstance(facts.resources.processors, Known) else " (assumed)"
    return f"{words} by {count:.0f} processors{guess}", row.seconds * times / count


def _processors(facts: Facts) -> float:
    return max(1.0, value_or(facts.resources.processors, float(_PROCESSORS)))


def _gpus(facts: Facts) -> float:
    return float(max(1, value_or(facts.gpus.count, len(facts.gpus.devices))))
