"""Which libcuda a program would load after a change, and what of its answers still holds."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.compat import CompatLibrary, driver_version_of
from firstlight.facts.known import Fact, Known, Origin, Unknown, value_or
from firstlight.facts.libcuda import LIBCUDA, LibcudaCandidate, LibcudaFacts, loaders_choice
from firstlight.tables import Tables
from firstlight.versions import CudaVersion, DriverVersion
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING, planned
from firstlight.ways.way import Way

_BEFORE_CACHE = (FoundBy.PATH, FoundBy.PRELOAD, FoundBy.RPATH, FoundBy.LIBRARY_PATH, FoundBy.RUNPATH)


def asked_anew(facts: Facts) -> Facts:
    """The facts without what cuInit said: it was another driver, library or setting that said it."""
    libcuda = replace(
        facts.libcuda, init_code=ONLY_RUNNING, init_name=ONLY_RUNNING, init_text=ONLY_RUNNING, device_count=ONLY_RUNNING
    )
    return replace(facts, libcuda=libcuda)


def counted_anew(facts: Facts) -> Facts:
    """The same where CUDA lists other devices than before; where it started, it starts."""
    starts = isinstance(facts.libcuda.init_code, Known) and facts.libcuda.init_code.value == 0
    return replace(facts, libcuda=replace(facts.libcuda, device_count=ONLY_RUNNING)) if starts else asked_anew(facts)


def asked_again(facts: Facts) -> Facts:
    """The same where CUDA does not start or lists no device; what works goes on working."""
    libcuda = facts.libcuda
    starts = isinstance(libcuda.init_code, Known) and libcuda.init_code.value == 0
    return facts if starts and value_or(libcuda.device_count, 1) > 0 else asked_anew(facts)


def with_candidates(facts: Facts, tables: Tables, candidates: tuple[LibcudaCandidate, ...], *, way: Way) -> Facts:
    """The facts with other libcuda files for the loader to meet; the answers stay where the same file wins."""
    libcuda = facts.libcuda
    if candidates == libcuda.candidates:
        return facts
    would_load = loaders_choice(candidates)
    if isinstance(would_load, Known):
        would_load = replace(would_load, origin=Origin.PLANNED)
    facts = replace(
        facts,
        libcuda=replace(libcuda, candidates=candidates, would_load=would_load),
        compat=tuple(_as_it_answered(libcuda, each) for each in facts.compat),
    )
    if isinstance(would_load, Known) and _is_same(libcuda.would_load, would_load.value):
        kept = libcuda.would_load if _holds(libcuda.would_load, would_load.value) else would_load
        return replace(facts, libcuda=replace(facts.libcuda, would_load=kept))
    return with_other_library(facts, tables, way)


def with_other_library(facts: Facts, tables: Tables, way: Way) -> Facts:
    """The facts after another libcuda took the place of the one that answered."""
    facts = asked_anew(facts)
    found = facts.libcuda.would_load
    if isinstance(found, Unknown):
        return replace(facts, libcuda=_silent(facts.libcuda, found))
    cuda = cuda_of_library(facts, tables, found.value)
    offered: Fact[CudaVersion] = ONLY_RUNNING if cuda is None or found.value.is_stub else planned(cuda, way)
    return replace(facts, libcuda=replace(facts.libcuda, loaded_path=ONLY_RUNNING, driver_cuda=offered))


def cuda_of_library(facts: Facts, tables: Tables, library: LibcudaCandidate) -> CudaVersion | None:
    """The CUDA that a libcuda reports: by the note of a compat library, else by its driver branch."""
    if isinstance(library.version, Unknown):
        return None
    for each in facts.compat:
        same = isinstance(each.version, Known) and each.version.value == library.version.value
        if library.is_compat and same and isinstance(each.note, Known):
            return each.note.value.cuda
    return tables.native_cuda(library.version.value)


def compat_candidate(library: CompatLibrary, folder: str) -> LibcudaCandidate:
    """A compat library as the start file loads it: by its path, whatever the loader would find."""
    return LibcudaCandidate(
        path=f"{folder}/{LIBCUDA}",
        real_path=library.library,
        version=library.version if isinstance(library.version, Known) else driver_version_of(library.library),
        found_by=FoundBy.PATH,
        entry=folder,
        is_stub=False,
        is_compat=True,
        is_damaged=False,
    )


def drivers_own(facts: Facts, version: Fact[DriverVersion]) -> LibcudaCandidate:
    """The driver's own libcuda where packages and container runtimes put it, e.g. /usr/lib/x86_64-linux-gnu."""
    wsl = value_or(facts.place.wsl_libraries, "")  # Windows' own, where no package puts anything
    own = (each for each in facts.libcuda.candidates if is_drivers_own(each) and posixpath.dirname(each.path) != wsl)
    found = next(own, None)
    folder = f"/usr/lib/{facts.place.arch}-linux-gnu" if found is None else posixpath.dirname(found.path)
    path = f"{folder}/{LIBCUDA}"
    real = f"{folder}/libcuda.so.{version.value}" if isinstance(version, Known) else path
    rule = FoundBy.DEFAULT if found is None else found.found_by
    entry = folder if found is None else found.entry
    return LibcudaCandidate(path, real, version, rule, entry, is_stub=False, is_compat=False, is_damaged=False)


def lying_at(facts: Facts, path: str, *, found_by: FoundBy, entry: str) -> LibcudaCandidate:
    """The driver's own libcuda in a folder that the loader did not look into: of the loaded module's version."""
    kernel, wsl = facts.driver.kernel_version, value_or(facts.place.wsl_libraries, "")
    version: Fact[DriverVersion] = kernel if posixpath.dirname(path) != wsl else NOT_READ
    real = f"{posixpath.dirname(path)}/libcuda.so.{version.value}" if isinstance(version, Known) else path
    own = drivers_own(facts, version)
    return replace(own, path=path, real_path=real, found_by=found_by, entry=entry)


def is_drivers_own(candidate: LibcudaCandidate) -> bool:
    """Whether it is the driver's place: no stub, no compat folder."""
    return not candidate.is_stub and not candidate.is_compat


def after_ldconfig(candidates: tuple[LibcudaCandidate, ...]) -> tuple[LibcudaCandidate, ...]:
    """The candidates once the cache is made anew: the first of its entries counts, which is there then."""
    if any(each.found_by is FoundBy.CACHE for each in candidates):
        return candidates
    first = next((each for each in candidates if each.found_by is FoundBy.LATER_CACHE_ENTRY), None)
    return tuple(replace(each, found_by=FoundBy.CACHE) if each is first else each for each in candidates)


def put_in_cache(candidates: tuple[LibcudaCandidate, ...], new: LibcudaCandidate) -> tuple[LibcudaCandidate, ...]:
    """The candidates with one more, in its place in the loader's order: behind the paths, before the other folders."""
    others = tuple(each for each in candidates if each.real_path != new.real_path and each.path != new.path)
    place = next((index for index, each in enumerate(others) if each.found_by not in _BEFORE_CACHE), len(others))
    later = tuple(replace(each, found_by=FoundBy.LATER_CACHE_ENTRY) if each.found_by is FoundBy.CACHE else each
                  for each in others[place:])  # fmt: skip
    return (*others[:place], new, *(later if new.found_by is FoundBy.CACHE else others[place:]))


def _as_it_answered(libcuda: LibcudaFacts, library: CompatLibrary) -> CompatLibrary:
    """A compat library with what cuInit said through it while the loader took it."""
    used = isinstance(libcuda.would_load, Known) and libcuda.would_load.value.real_path == library.library
    told = used and value_or(libcuda.init_code, -1) == 0 and isinstance(library.init_code, Unknown)
    return replace(library, init_code=libcuda.init_code) if told else library


def _silent(libcuda: LibcudaFacts, why: Unknown) -> LibcudaFacts:
    return replace(
        libcuda, loaded_path=why, driver_cuda=why, init_code=why, init_name=why, init_text=why, device_count=why
    )


def _is_same(before: Fact[LibcudaCandidate], now: LibcudaCandidate) -> bool:
    return isinstance(before, Known) and before.value.real_path == now.real_path


def _holds(before: Fact[LibcudaCandidate], now: LibcudaCandidate) -> bool:
    return isinstance(before, Known) and before.value == now
