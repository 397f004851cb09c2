"""What each way fetches, piece by piece. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.facts.known import Origin, Unknown
from firstlight.tables.compat_rows import CompatDownload
from firstlight.tables.cost_rows import FetchedBy, Work
from firstlight.ways import kinds
from firstlight.ways.piece import Piece
from firstlight.ways.way import Way
from firstlight.ways.wheels_fetched import Asked, Found, closing_wheels, not_installed, wheels_fetched

_LISTS = Piece("lists", 0, "the repository's key and lists of packages are not counted", Work.APT_PACKAGES)
_SYNCHRONISED = Piece(
    "lock", 0, "what else the project's lock has and the environment lacks is not counted", Work.UV_WHEELS,
    Origin.ASSUMED,
)  # fmt: skip
_ANOTHER = Unknown("what is fetched there depends on the other machine")
# No command is named that would tell, and these fetch nothing: power, fans, a setting, how a program is started.
_BY_HAND = (kinds.Why.FIRMWARE, kinds.Why.HARDWARE, kinds.Why.COOLING, kinds.Why.PROGRAM)
_IMAGE_LINE = Unknown("what the image fetches when it is built is not known")


def fetched(way: Way, asked: Asked) -> Iterator[Found]:
    """The downloads of a way; nothing where nothing is fetched. An Unknown among them leaves the whole unknown."""
    match way:
        case kinds.InstallWheels():
            yield from wheels_fetched(way, asked)
        case kinds.CloseLibraries():
            yield from closing_wheels(way, asked)
        case kinds.KeepInProject():
            yield _SYNCHRONISED
            yield from wheels_fetched(kinds.InstallWheels(not_installed(way.packages, asked), way.index), asked)
        case kinds.InstallConda():
            yield _conda(way, asked)
        case kinds.BuildFromSource():
            yield _download(FetchedBy.GIT, way.project, asked, Work.ARCHIVE)
        case kinds.SetUpRepository():
            yield _LISTS
        case kinds.InstallPackages():
            for package in way.packages:
                yield _package(package, asked)
        case kinds.InstallDriver():
            yield _download(FetchedBy.SYSTEM, f"nvidia-driver-{way.branch}", asked, Work.APT_PACKAGES)
        case kinds.BuildModules() if way.headers:
            yield _package(way.headers, asked)
        case kinds.FetchCompat():
            yield _compat(way.file, asked)
        case kinds.UseImage():
            yield _download(FetchedBy.CONTAINERS, way.image, asked, Work.ARCHIVE)
        case kinds.OtherMachine():
            yield _ANOTHER
        case kinds.ChangeImage():
            yield _IMAGE_LINE
        case kinds.AskPerson(fetches=what) if what:
            yield Unknown(f"the size of {what} is not in the tables")
        case kinds.AskPerson(cures=True, commands=()) if way.why not in _BY_HAND:
            yield Unknown("what you fetch for it is not known")


def _download(fetched_by: FetchedBy, name: str, asked: Asked, unpacked_by: Work) -> Found:
    row = asked.tables.download(fetched_by, name, machine=asked.arch)
    if row is None:
        return Unknown(f"the size of {name or 'that image'} is not in the tables")
    return Piece(name, row.bytes, f"size of {name} estimated from the tables ({row.date})", unpacked_by, Origin.ASSUMED)


def _package(name: str, asked: Asked) -> Found:
    if name.startswith("cuda-compat-"):
        return _compat_near(name.removeprefix("cuda-compat-").replace("-", "."), asked, Work.APT_PACKAGES)
    return _download(FetchedBy.SYSTEM, name, asked, Work.APT_PACKAGES)


def _conda(way: kinds.InstallConda, asked: Asked) -> Found:
    name, _, version = way.package.partition("=")
    if name == "cuda-compat":
        return _compat_near(version, asked, Work.ARCHIVE)
    return _download(FetchedBy.CONDA, way.package, asked, Work.ARCHIVE)


def _compat(file: str, asked: Asked) -> Found:
    row = next((row for row in _compat_rows(asked) if row.file == file), None)
    if row is None:
        return Unknown(f"the size of {file} is not in the tables")
    return Piece(file, row.download_bytes, f"{row.source}, {row.date}", Work.ARCHIVE)


def _compat_near(cuda: str, asked: Asked, unpacked_by: Work) -> Found:
    """The compat library of a CUDA release, e.g. 13.0; else about as that of the closest one."""
    rows = [row for row in _compat_rows(asked) if row.machine == asked.arch] or list(_compat_rows(asked))
    if not rows:
        return Unknown(f"the size of the compat library of CUDA {cuda} is not in the tables")
    major, _, minor = cuda.partition(".")
    wanted = (int(major or 0), int(minor.partition(".")[0] or 0))
    row = min(rows, key=lambda each: (abs(each.cuda.major - wanted[0]), abs(each.cuda.minor - wanted[1])))
    if (row.cuda.major, row.cuda.minor) == wanted:
        return Piece(row.file, row.download_bytes, f"{row.source}, {row.date}", unpacked_by)
    return Piece(
        f"cuda-compat {cuda}", row.download_bytes, f"size estimated from {row.file}", unpacked_by, Origin.ASSUMED
    )


def _compat_rows(asked: Asked) -> tuple[CompatDownload, ...]:
    return tuple(row for row in asked.tables.rows("compat_downloads") if isinstance(row, CompatDownload))
