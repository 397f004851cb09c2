"""Write sonames.json, library_releases.json and placeholder_projects.json anew from a package index, or compare.

    python -m tools.make_sonames                            all three files, from pip's own index
    python -m tools.make_sonames --as-of 2026-11-15         as the index was on that day: later uploads do not count
    python -m tools.make_sonames --check nvidia-cudss-cu13  compare one project with the committed rows, write nothing

No wheel is downloaded: a wheel's file list and METADATA stand at its end, which is one range request, and the header
of a library is another. --check looks as of the day that the committed rows carry.

Exit: 0 written or the same, 1 --check saw differences, 2 bad usage, 4 the index could not be read.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from firstlight.errors import CouldNotLook
from firstlight.tables import load
from firstlight.tables.document import encode_row
from tools.refresh_pins import DATA, MACHINES, File, Index, required, wheel_of, written
from tools.refresh_tables import fetch, pip_index_url, project_files
from tools.remote_wheel import arches, listing

_AT_ONCE = 8
# What NVIDIA packs libraries under, without the CUDA suffix; every project of the index that is one of these, alone
# or with a suffix, is read. nvpl itself is a meta package.
PARTS = (
    "cudensitymat", "cupauliprop", "custatevec", "cutensor", "cutensornet", "nvidia-cublas", "nvidia-cublasmp",
    "nvidia-cuda-cupti", "nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-cuda-opencl", "nvidia-cuda-runtime",
    "nvidia-cuda-sanitizer-api", "nvidia-cuda-tileiras", "nvidia-cudla", "nvidia-cudnn", "nvidia-cudnn-jit",
    "nvidia-cudss", "nvidia-cufft", "nvidia-cufftmp", "nvidia-cufile", "nvidia-curand", "nvidia-cusolver",
    "nvidia-cusolvermp", "nvidia-cusparse", "nvidia-cusparselt", "nvidia-libcal", "nvidia-libmathdx",
    "nvidia-libnvcomp", "nvidia-nccl", "nvidia-npp", "nvidia-nvcomp", "nvidia-nvfatbin",
    "nvidia-nvjitlink", "nvidia-nvjpeg", "nvidia-nvjpeg2k", "nvidia-nvml-dev", "nvidia-nvptxcompiler",
    "nvidia-nvshmem", "nvidia-nvtiff", "nvidia-nvtx", "nvidia-nvvm", "nvpl-blas", "nvpl-fft", "nvpl-lapack",
    "nvpl-rand", "nvpl-scalapack", "nvpl-sparse", "nvpl-tensor", "tensorrt-libs", "tensorrt-rtx-libs",
)  # fmt: skip
_PLACEHOLDER_BYTES = 100_000  # those seen have 1.4 KB; nvidia-cuda-nvcc 13 has no library and 48 MB of programs
_NAME = re.compile(r'(?:href="|"name":\s*")(?:/simple/)?([a-z0-9._-]+)[/"]')
_SUFFIX = re.compile(r"-cu(\d\d)(\d?)(?=-libs$|$)")
_FOLDER_MAJOR = re.compile(r"(?:^|/)(?:cu|lib/)(\d\d)(?:\.\d)?(?:/|$)")  # cutensor/lib/11.0 too
_ABOUT = {
    "sonames": "Which PyPI project ships a library, in which run of releases, for which CUDA major (null: for any). "
    "Rows are runs over the releases that have a wheel for the machine, neither early nor yanked: never merge them. "
    "Written by tools/make_sonames.py.",
    "library_releases": "The releases of the projects that ship libraries, the sizes of their wheels and what they "
    "require: a row for each run of releases that require the same. Written by tools/make_sonames.py.",
    "placeholder_projects": "Projects on PyPI that sound as if they shipped a library and hold none, and which one "
    "does. Written by tools/make_sonames.py.",
}


@dataclass(frozen=True, slots=True)
class Release:
    """One wheel that was read: nvidia-cudss-cu13 0.8.0.10 for x86_64, its libraries and requirements."""

    version: str
    url: str
    bytes: int
    libraries: tuple[str, ...]
    requires: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """A project as the index has it: its wheels by machine, and its newest file where it has no library."""

    name: str
    releases: tuple[tuple[str, tuple[Release, ...]], ...]
    newest: str
    newest_file: str
    newest_bytes: int

    @property
    def has_libraries(self) -> bool:
        return any(release.libraries for _, releases in self.releases for release in releases)


def projects_of(simple: str) -> tuple[str, ...]:
    """The names on the index that are of PARTS: nvidia-cudss-cu12, nvidia-cudss-cu13."""
    page = fetch(simple.rstrip("/") + "/", {"Accept": "text/html"}).body.decode("utf-8", errors="replace")
    return tuple(sorted(name for name in set(_NAME.findall(page)) if part_of(name) in PARTS))


def part_of(project: str) -> str:
    """nvidia-cudss of nvidia-cudss-cu13, tensorrt-libs of tensorrt-cu13-libs."""
    return _SUFFIX.sub("", project)


def cuda_major_of(project: str, folder: str) -> int | None:
    """13 of nvidia-cudss-cu13, and of nvidia-cublas by its folder nvidia/cu13/lib; None: of any, as nvpl-blas."""
    match = _SUFFIX.search(project) or _FOLDER_MAJOR.search(folder)
    return int(match[1]) if match else None


def read_project(index: Index, simple: str, *, name: str, as_of: str) -> Project:
    """Every wheel of a project that was uploaded by a day."""
    dated = {
        version: kept
        for version, files in sorted(index.releases(name).items())
        if (kept := tuple(file for file in files if file.uploaded <= as_of))
    }
    urls = {file.filename: file.url for file in project_files(simple, name)}
    releases = []
    for machine in MACHINES:
        wheels = [(version, wheel_of(files, machine)) for version, files in dated.items()]
        found = tuple(
            _read_release(file, str(version), url=urls[file.name], machine=machine)
            for version, file in wheels
            if file is not None and file.name in urls
        )
        releases.append((machine, found))
    newest = max(dated, default=None)
    file = max(dated[newest], key=lambda each: each.size) if newest is not None else None
    return Project(
        name=name,
        releases=tuple(releases),
        newest="" if newest is None else str(newest),
        newest_file="" if file is None else file.name,
        newest_bytes=0 if file is None else file.size,
    )


def _read_release(file: File, version: str, *, url: str, machine: str) -> Release:
    held = listing(url, file.size)
    requires = required(held.metadata, machine).items()
    return Release(
        version=version,
        url=url,
        bytes=file.size,
        libraries=held.libraries,
        requires=tuple(sorted(f"{name}{_extras(each.extras)}{each.specifier}" for name, each in requires)),
    )


def _extras(extras: Iterable[str]) -> str:
    return f"[{','.join(sorted(extras))}]" if extras else ""


def soname_rows(project: Project, *, today: str) -> Iterator[dict[str, object]]:
    """The runs of releases that ship each library of a project, those of another machine left out."""
    for machine, releases in project.releases:
        runs = [
            (path, run)
            for path in sorted({path for release in releases for path in release.libraries})
            for held, group in itertools.groupby(releases, key=lambda release, path=path: path in release.libraries)  # type: ignore[misc]
            if held and (run := tuple(group))
        ]
        seen = _machines_named(runs)
        for path, run in runs:
            folder, soname = posixpath.split(path)
            if seen[path, run[-1].version] == machine:
                yield {
                    "soname": soname,
                    "project": project.name,
                    "machine": machine,
                    "cuda_major": cuda_major_of(project.name, folder),
                    "first": run[0].version,
                    "last": run[-1].version,
                    "in_newest": run[-1] is releases[-1],
                    "folder": folder,
                    "source": "file lists and ELF headers of the PyPI wheels of this project",
                    "date": today,
                    "confidence": "measured",
                }


def _machines_named(runs: list[tuple[str, tuple[Release, ...]]]) -> dict[tuple[str, str], str]:
    """What the header of each library says in the last release of its run."""
    wanted: dict[Release, list[str]] = {}
    for path, run in runs:
        wanted.setdefault(run[-1], []).append(path)
    found = {}
    for release, paths in wanted.items():
        for path, arch in arches(release.url, release.bytes, paths=paths).items():
            found[path, release.version] = arch
    return found


def release_rows(project: Project, *, today: str) -> Iterator[dict[str, object]]:
    """The releases of a project that ships libraries, a row for each run with the same requirements."""
    for machine, releases in project.releases if project.has_libraries else ():
        for requires, group in itertools.groupby(releases, key=lambda release: release.requires):
            run = tuple(group)
            yield {
                "project": project.name,
                "machine": machine,
                "first": run[0].version,
                "versions": [release.version for release in run],
                "bytes": [release.bytes for release in run],
                "requires": list(requires),
                "source": "METADATA of these PyPI wheels, and PyPI's list of files",
                "date": today,
                "confidence": "measured",
            }


def placeholder_rows(projects: tuple[Project, ...], *, today: str) -> Iterator[dict[str, object]]:
    """The projects without a library beside a project of the same part that has one."""
    real = [project.name for project in projects if project.has_libraries]
    for project in projects:
        instead = _instead(project.name, real)
        if not project.has_libraries and project.newest_bytes < _PLACEHOLDER_BYTES and instead:
            kind = "wheel" if project.newest_file.endswith(".whl") else "source archive"
            yield {
                "project": project.name,
                "newest": project.newest,
                "bytes": project.newest_bytes,
                "instead": instead,
                "source": f"PyPI's list of files{': a ' + kind if project.newest_file else ''}",
                "date": today,
                "confidence": "measured",
            }


def _instead(name: str, real: list[str]) -> str:
    """The project of the same part and CUDA major, else of the highest major: nvidia-cublas for nvidia-cublas-cu13."""
    same = [each for each in real if part_of(each) == part_of(name)]
    major = cuda_major_of(name, "")
    fitting = [each for each in same if cuda_major_of(each, "") == major]
    plain = [each for each in same if cuda_major_of(each, "") is None and (major or 13) >= 13]
    return max(fitting or plain or (same if major is None else []), default="")


def read_all(simple: str, names: Iterable[str], *, as_of: str) -> tuple[Project, ...]:
    """The projects of these names, several at once."""
    index = Index(simple)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(lambda name: read_project(index, simple, name=name, as_of=as_of), names))


def rows_of(projects: tuple[Project, ...], *, today: str) -> dict[str, list[dict[str, object]]]:
    """The rows of the three tables in the order in which they are committed."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        libraries = [
            row for rows in pool.map(lambda each: list(soname_rows(each, today=today)), projects) for row in rows
        ]
    return {
        "sonames": sorted(libraries, key=_order),
        "library_releases": [row for project in projects for row in release_rows(project, today=today)],
        "placeholder_projects": list(placeholder_rows(projects, today=today)),
    }


def _order(row: dict[str, object]) -> tuple[str, str, str, Version, str]:
    return str(row["soname"]), str(row["project"]), str(row["machine"]), Version(str(row["first"])), str(row["folder"])


def differences(simple: str, names: tuple[str, ...]) -> Iterator[str]:
    """Rows that the index, as of the committed day, would give otherwise, and rows that it would not give."""
    tables = load()
    as_of = max(row.date for row in tables.rows("sonames")).isoformat()
    everything = not names
    names = names or projects_of(simple)
    now = rows_of(read_all(simple, names, as_of=as_of), today=as_of)
    for subject, rows in now.items():
        if subject == "placeholder_projects" and not everything:
            continue  # what to take instead is known only beside the other projects
        have = [encode_row(row) for row in tables.rows(subject)]
        have = [{name: value for name, value in row.items() if name != "note"} for row in have]
        have = [row for row in have if everything or row["project"] in names]
        yield from (f"{subject}: only on the index: {_told(row)}" for row in rows if row not in have)
        yield from (f"{subject}: only in the tables: {_told(row)}" for row in have if row not in rows)


def _told(row: dict[str, object]) -> str:
    kept = (value for name, value in row.items() if name not in ("source", "date", "confidence", "bytes"))
    return " ".join(str(value) for value in kept)


def main(argv: list[str] | None = None) -> int:
    """Write the three files, or compare with --check."""
    today = datetime.date.today().isoformat()
    parser = argparse.ArgumentParser(description="Write the tables of library providers from a package index.")
    parser.add_argument("project", nargs="*", help="with --check: which; default: all")
    parser.add_argument("--check", action="store_true", help="compare and print, write nothing")
    parser.add_argument("--as-of", default=today, metavar="DAY", help="leave out what was uploaded later")
    parser.add_argument("--index-url", help="a simple index; default: the one pip uses")
    parser.add_argument("--folder", type=Path, default=DATA, help="where the files go")
    options = parser.parse_args(argv)
    if unknown := sorted(name for name in options.project if part_of(name) not in PARTS):
        parser.error(f"{unknown[0]} is not among them; accepted: e.g. nvidia-cudss-cu13, nvpl-lapack")
    if options.project and not options.check:
        parser.error("projects go with --check: the files are written whole")
    try:
        simple = options.index_url or pip_index_url()
        if options.check:
            found = list(differences(simple, tuple(options.project)))
            print("\n".join([*found, f"{len(found)} differences"]))
            return 1 if found else 0
        tables = rows_of(read_all(simple, projects_of(simple), as_of=options.as_of), today=options.as_of)
    except CouldNotLook as error:
        print(f"make_sonames: {error}", file=sys.stderr)
        return error.exit_code
    for subject, rows in tables.items():
        (options.folder / f"{subject}.json").write_text(written(subject, _ABOUT[subject], rows), encoding="utf-8")
        print(f"{len(rows)} rows of {subject}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
