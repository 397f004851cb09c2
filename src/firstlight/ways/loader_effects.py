"""What ways of the loader do to the facts: libraries wired, unwired, registered, linked, fetched or moved aside."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.compat import CompatLibrary
from firstlight.facts.cuda_libraries import FoundIn, LibraryFound
from firstlight.facts.known import Known, Unknown
from firstlight.facts.libcuda import LIBCUDA, LibcudaCandidate
from firstlight.facts.mps import MpsFacts
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.facts.torch_libraries import MissingLibrary, TorchLibraries
from firstlight.tables import Tables
from firstlight.ways import kinds
from firstlight.ways.libcuda_on_paper import (
    after_ldconfig,
    asked_again,
    compat_candidate,
    drivers_own,
    lying_at,
    put_in_cache,
    with_candidates,
    with_other_library,
)
from firstlight.ways.loader_steps import names_of
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING, planned
from firstlight.ways.way import Way

# Folders that every loader searches without being told: a file there is found though no path leads to it any more.
_DEFAULT_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def after_loader(way: Way, facts: Facts, tables: Tables) -> Facts | None:
    """The facts after a way of the loader; None for any other way."""
    match way:
        case kinds.Unwire(by=kinds.WiredBy.LIBRARY_PATH):
            gone = _all_names(facts, way.folders)
            kept = tuple(each for each in facts.libcuda.ld_library_path if not each or plain(each) not in gone)
            return with_library_path(facts, tables, kept, way=way)
        case kinds.Unwire(by=kinds.WiredBy.PRELOAD):
            kept = tuple(each for each in facts.libcuda.ld_preload if each not in way.folders)
            return with_preload(facts, tables, kept, way=way)
        case kinds.Unwire(by=kinds.WiredBy.LOADER_CONF):
            return _without_conf(way, facts, tables)
        case kinds.Unwire():
            return _without_runtimes_copy(way, facts, tables)
        case kinds.RegisterFolder():
            return _registered(way, facts, tables)
        case kinds.RefreshLoaderCache():
            return _cache_made_anew(way, facts, tables)
        case kinds.FetchCompat():
            return replace(facts, compat=with_compat(facts, _fetched(way)))
        case kinds.WireCompat():
            return _wired(way, facts, tables)
        case kinds.LinkFile():
            return _linked(way, facts)
        case kinds.RemoveFiles():
            return _moved_aside(way, facts, tables)
    return None


def _cache_made_anew(way: kinds.RefreshLoaderCache, facts: Facts, tables: Tables) -> Facts:
    """ldconfig forgets what is gone, and gives a driver's file the name that it is asked for by."""
    left = tuple(each for each in facts.libcuda.candidates if not is_forgotten(each))
    nameless = next((each for each in facts.libcuda.out_of_reach if posixpath.basename(each) != LIBCUDA), "")
    if nameless:
        path = f"{posixpath.dirname(nameless)}/{LIBCUDA}"
        new = replace(lying_at(facts, path, found_by=FoundBy.CACHE, entry=posixpath.dirname(path)), real_path=nameless)
        left = put_in_cache(left, new)
        facts = replace(facts, libcuda=replace(facts.libcuda, out_of_reach=()))
    return with_candidates(facts, tables, after_ldconfig(left), way=way)


def is_forgotten(each: LibcudaCandidate) -> bool:
    """Whether only the cache still leads there: of a folder that is no driver's, no file of ldconfig's names it."""
    return each.found_by is FoundBy.CACHE and each.entry == "/etc/ld.so.cache" and (each.is_compat or each.is_stub)


def _all_names(facts: Facts, folders: tuple[str, ...]) -> set[str]:
    """The folders under every name that is known of them: a link and what it leads to are taken out together."""
    return {name for folder in folders if folder for name in names_of(facts, plain(folder))}


def plain(path: str) -> str:
    """A path without '..' and a trailing slash."""
    return posixpath.normpath(path) if path else path


def with_library_path(facts: Facts, tables: Tables, path: tuple[str, ...], *, way: Way) -> Facts:
    """The facts with another LD_LIBRARY_PATH: libcuda, torch's libraries and those of CUDA follow."""
    before = facts.libcuda.ld_library_path
    if path == before:
        return facts
    facts = replace(facts, libcuda=replace(facts.libcuda, ld_library_path=path))
    kept, gone = {plain(each) for each in path}, {plain(each) for each in before} - {plain(each) for each in path}
    found: list[LibcudaCandidate] = []
    later: list[LibcudaCandidate] = []
    for each in facts.libcuda.candidates:
        if each.found_by is not FoundBy.LIBRARY_PATH or plain(each.entry) in kept:
            found.append(each)
        elif _is_default(facts, posixpath.dirname(each.path)):
            later.append(replace(each, found_by=FoundBy.DEFAULT, entry=posixpath.dirname(each.path)))
    new = [_reached(facts, each) for each in path if plain(each) not in {plain(old) for old in before}]
    met = [each for each in new if each is not None]
    files = {each.real_path for each in met}
    left = (each for each in (*found, *later) if each.real_path not in files)
    facts = with_candidates(facts, tables, (*met, *left), way=way)
    reached = {each.path for each in met}
    out_of_reach = tuple(each for each in facts.libcuda.out_of_reach if each not in reached)
    facts = replace(facts, libcuda=replace(facts.libcuda, out_of_reach=out_of_reach))
    return _libraries_without(facts, tables, gone) if gone else facts


def _reached(facts: Facts, folder: str) -> LibcudaCandidate | None:
    """The libcuda that a new element of LD_LIBRARY_PATH leads to, where one is known to lie there."""
    for each in facts.libcuda.candidates:
        if posixpath.dirname(each.path) == plain(folder):
            return replace(each, found_by=FoundBy.LIBRARY_PATH, entry=folder)
    at_hand = (f"{facts.place.wsl_libraries.value}/{LIBCUDA}",) if isinstance(facts.place.wsl_libraries, Known) else ()
    for path in (*facts.libcuda.out_of_reach, *at_hand):
        if posixpath.split(path) == (plain(folder), LIBCUDA):
            return lying_at(facts, path, found_by=FoundBy.LIBRARY_PATH, entry=folder)
    for library in facts.compat:
        if plain(folder) in (library.folder, *library.aliases):
            return replace(compat_candidate(library, plain(folder)), found_by=FoundBy.LIBRARY_PATH, entry=folder)
    return None


def with_preload(facts: Facts, tables: Tables, preload: tuple[str, ...], *, way: Way) -> Facts:
    """The facts with other preloaded libraries; one that is gone may have answered in libcuda's place."""
    if preload == facts.libcuda.ld_preload:
        return facts
    facts = replace(facts, libcuda=replace(facts.libcuda, ld_preload=preload))
    kept = (each for each in facts.libcuda.candidates if each.found_by is not FoundBy.PRELOAD or each.entry in preload)
    return with_other_library(with_candidates(facts, tables, tuple(kept), way=way), tables, way)


def _libraries_without(facts: Facts, tables: Tables, gone: set[str]) -> Facts:
    """torch's libraries and those of CUDA once folders are out of LD_LIBRARY_PATH."""
    libraries = tuple(_elsewhere(facts, each, gone) for each in facts.cuda_libraries.libraries)
    kept = tuple(each for each in libraries if each is not None)
    facts = replace(facts, cuda_libraries=replace(facts.cuda_libraries, libraries=kept))
    if isinstance(facts.torch_libraries, Unknown):
        return facts
    torch = facts.torch_libraries
    return replace(facts, torch_libraries=replace(torch, value=_torch_without(facts, tables, torch.value, gone=gone)))


def _elsewhere(facts: Facts, each: LibraryFound, gone: set[str]) -> LibraryFound | None:
    """A library of LD_LIBRARY_PATH once its folder is out: a toolkit's is still there, another is off the way."""
    if each.found_in is not FoundIn.LD_LIBRARY_PATH or posixpath.dirname(each.path) not in gone:
        return each
    homes = (home for one in facts.toolkits.toolkits for home in (one.path, *one.found_by) if home.startswith("/"))
    return replace(each, found_in=FoundIn.TOOLKIT) if any(each.path.startswith(f"{home}/") for home in homes) else None


def _torch_without(facts: Facts, tables: Tables, torch: TorchLibraries, *, gone: set[str]) -> TorchLibraries:
    shadowed = tuple(each for each in torch.shadowed if plain(each.entry) not in gone)
    back = {each.name: each.instead_of for each in torch.shadowed if plain(each.entry) in gone}
    wheels = {each.name for each in facts.nvidia_wheels}
    loaded, missing = [], list(torch.missing)
    for each in torch.loaded:
        if each.found_by is not FoundBy.LIBRARY_PATH or plain(each.entry) not in gone:
            loaded.append(each)
        elif each.name in back:
            loaded.append(replace(each, path=back[each.name], found_by=FoundBy.RUNPATH, entry=""))
        elif not any(row.project in wheels for row in tables.wheels_with(each.name, machine=facts.place.arch)):
            missing.append(MissingLibrary(each.name, each.requested_by, ""))  # else torch opens the wheel's own by path
    offered, system = torch.libstdcxx_offered, facts.runtime.libstdcxx
    if isinstance(offered, Known) and posixpath.dirname(plain(offered.seen_in)) in gone:
        elsewhere = isinstance(system, Known) and posixpath.dirname(plain(system.seen_in)) not in gone
        offered = system if elsewhere else ONLY_RUNNING
    return replace(torch, loaded=tuple(loaded), missing=tuple(missing), shadowed=shadowed, libstdcxx_offered=offered)


def _without_conf(way: kinds.Unwire, facts: Facts, tables: Tables) -> Facts:
    gone = _all_names(facts, way.folders)
    candidates = facts.libcuda.candidates
    if way.conf in facts.libcuda.compat_conf_files or any(_by_conf(each, way.conf, gone) for each in candidates):
        files = tuple(each for each in facts.libcuda.compat_conf_files if each != way.conf)
        facts = replace(facts, libcuda=replace(facts.libcuda, compat_conf_files=files))
        left = tuple(each for each in candidates if not _by_conf(each, way.conf, gone))
        facts = with_candidates(facts, tables, after_ldconfig(left), way=way)
    libraries = tuple(
        each
        for each in facts.cuda_libraries.libraries
        if each.found_in is not FoundIn.SYSTEM or posixpath.dirname(each.path) not in gone
    )
    return replace(facts, cuda_libraries=replace(facts.cuda_libraries, libraries=libraries))


def _by_conf(each: LibcudaCandidate, conf: str, folders: set[str]) -> bool:
    cached = each.found_by in (FoundBy.CACHE, FoundBy.LATER_CACHE_ENTRY)
    return cached and (each.entry == conf or posixpath.dirname(plain(each.path)) in folders)


def _without_runtimes_copy(way: kinds.Unwire, facts: Facts, tables: Tables) -> Facts:
    """The image's compat library no longer lies over the host's own libcuda."""
    found, kernel = facts.libcuda.would_load, facts.driver.kernel_version
    if isinstance(found, Unknown) or isinstance(kernel, Unknown):
        return facts
    copied = isinstance(found.value.version, Known) and found.value.version.value != kernel.value
    if not copied or found.value.is_compat:
        return facts
    own = drivers_own(facts, planned(kernel.value, way))
    others = tuple(each for each in facts.libcuda.candidates if each.path != own.path)
    return with_candidates(facts, tables, (own, *others), way=way)


def _registered(way: kinds.RegisterFolder, facts: Facts, tables: Tables) -> Facts:
    folder = plain(way.folder)
    path = next((each for each in facts.libcuda.out_of_reach if posixpath.dirname(each) == folder), "")
    if path:
        out_of_reach = tuple(each for each in facts.libcuda.out_of_reach if each != path)
        facts = replace(facts, libcuda=replace(facts.libcuda, out_of_reach=out_of_reach))
        new = lying_at(facts, f"{folder}/{LIBCUDA}", found_by=FoundBy.CACHE, entry=way.conf)
        facts = with_candidates(facts, tables, put_in_cache(facts.libcuda.candidates, new), way=way)
    else:
        facts = with_candidates(facts, tables, after_ldconfig(facts.libcuda.candidates), way=way)
    there = {each.file for each in facts.cuda_libraries.libraries if posixpath.dirname(each.path) == folder}
    return without_missing(facts, there)


def without_missing(facts: Facts, names: set[str]) -> Facts:
    """The facts with libraries of torch found that were missing before."""
    torch = facts.torch_libraries
    if isinstance(torch, Unknown) or not any(each.name in names for each in torch.value.missing):
        return facts
    left = tuple(each for each in torch.value.missing if each.name not in names)
    return replace(facts, torch_libraries=replace(torch, value=replace(torch.value, missing=left)))


def _fetched(way: kinds.FetchCompat) -> CompatLibrary:
    return CompatLibrary(
        folder=way.folder,
        aliases=(),
        library=f"{way.folder}/libcuda.so.{way.driver}",
        version=planned(way.driver, way),
        note=NOT_READ,
        package=Unknown("no dpkg or conda file list names it"),
        init_code=NOT_READ,
    )


def with_compat(facts: Facts, library: CompatLibrary) -> tuple[CompatLibrary, ...]:
    """The compat libraries with one more, unless one lies in that folder already."""
    if any(library.folder in (each.folder, *each.aliases) for each in facts.compat):
        return facts.compat
    return (*facts.compat, library)


def _wired(way: kinds.WireCompat, facts: Facts, tables: Tables) -> Facts:
    """A program started through the wire: it loads the compat library, where the driver is of its branches."""
    kernel = facts.driver.kernel_version
    library = next((each for each in facts.compat if way.folder in (each.folder, *each.aliases)), None)
    if isinstance(kernel, Unknown) or kernel.value.branch not in way.branches or library is None:
        return facts
    candidate = compat_candidate(library, way.folder)
    if facts.libcuda.candidates[:1] == (candidate,):
        return facts
    others = tuple(each for each in facts.libcuda.candidates if each.real_path != candidate.real_path)
    facts = with_candidates(facts, tables, (candidate, *others), way=way)
    offered, code = facts.libcuda.driver_cuda, library.init_code
    if isinstance(offered, Unknown):
        facts = replace(facts, libcuda=replace(facts.libcuda, driver_cuda=planned(way.cuda, way)))
    if isinstance(code, Known) and facts.libcuda.init_code == ONLY_RUNNING:  # a child process has asked it
        facts = replace(facts, libcuda=replace(facts.libcuda, init_code=planned(code.value, way)))
        return _as_proved(facts, candidate, way) if code.value == 0 else facts
    return facts


def _as_proved(facts: Facts, library: LibcudaCandidate, way: Way) -> Facts:
    """What follows from a cuInit that was seen to return 0; a mask may hide GPUs from it all the same."""
    count = facts.gpus.count if isinstance(facts.gpus.cuda_visible_devices, Unknown) else ONLY_RUNNING
    libcuda = replace(
        facts.libcuda,
        loaded_path=planned(library.real_path, way),
        init_name=planned("CUDA_SUCCESS", way),
        init_text=planned("no error", way),
        device_count=planned(count.value, way) if isinstance(count, Known) else ONLY_RUNNING,
    )
    return replace(facts, libcuda=libcuda)


def _linked(way: kinds.LinkFile, facts: Facts) -> Facts:
    toolkits = tuple(_with_link(each, way) for each in facts.toolkits.toolkits)
    if toolkits != facts.toolkits.toolkits:
        return replace(facts, toolkits=replace(facts.toolkits, toolkits=toolkits))
    name, target = posixpath.basename(way.path), posixpath.basename(way.to)
    torch = facts.torch_libraries
    if name == "libstdc++.so.6" and isinstance(torch, Known) and target.startswith("libstdc++.so.6.0."):
        # libstdc++.so.6.0.33 defines GLIBCXX_3.4.33 and all before it.
        offered = Known(f"3.4.{target.removeprefix('libstdc++.so.6.0.')}", way.path)
        return replace(facts, torch_libraries=replace(torch, value=replace(torch.value, libstdcxx_offered=offered)))
    return without_missing(facts, {name})


def _with_link(toolkit: Toolkit, way: kinds.LinkFile) -> Toolkit:
    """lib64 beside nvcc, or the libcudart.so that -lcudart asks for."""
    part = None
    if any(way.path == f"{home}/lib64" for home in (toolkit.path, *toolkit.found_by)):
        part = Part.LIB64
    elif posixpath.basename(way.path) == "libcudart.so" and posixpath.dirname(way.path) in (
        f"{toolkit.path}/lib",
        f"{toolkit.path}/lib64",
        *toolkit.library_folders,
    ):
        part = Part.CUDART_LINK
    return toolkit if part is None else with_parts(toolkit, (part,))


def with_parts(toolkit: Toolkit, parts: tuple[Part, ...]) -> Toolkit:
    """A toolkit with more of its parts in place."""
    has = tuple(part for part in Part if part in toolkit.has or part in parts)
    return replace(toolkit, has=has, missing=tuple(part for part in Part if part not in has))


def _moved_aside(way: kinds.RemoveFiles, facts: Facts, tables: Tables) -> Facts:
    gone = set(way.paths)
    candidates = tuple(each for each in facts.libcuda.candidates if not gone & {each.path, each.real_path})
    facts = with_candidates(facts, tables, after_ldconfig(candidates), way=way)
    libraries = tuple(each for each in facts.cuda_libraries.libraries if each.path not in gone)
    facts = replace(
        facts,
        cuda_libraries=replace(facts.cuda_libraries, libraries=libraries),
        compat=tuple(each for each in facts.compat if not gone & {each.library, each.folder}),
    )
    pipe = facts.gpus.mps_control
    if isinstance(pipe, Known) and pipe.value.rpartition("/")[0] in gone:
        facts = asked_again(replace(facts, gpus=replace(facts.gpus, mps_control=NOT_READ)))
        facts = replace(facts, fleet=replace(facts.fleet, mps=MpsFacts(NOT_READ, NOT_READ)))
    if isinstance(facts.torch, Known) and gone & set(facts.torch.value.shadowed_by):
        left = tuple(each for each in facts.torch.value.shadowed_by if each not in gone)
        facts = replace(facts, torch=replace(facts.torch, value=replace(facts.torch.value, shadowed_by=left)))
    return facts


def _is_default(facts: Facts, folder: str) -> bool:
    arch = facts.place.arch
    return plain(folder) in (*_DEFAULT_FOLDERS, f"/lib/{arch}-linux-gnu", f"/usr/lib/{arch}-linux-gnu")
