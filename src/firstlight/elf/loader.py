"""The search of glibc's dynamic loader: which file it takes for a name, and by which rule.

Order, as ld.so(8) has it and as tests hold it against the real loader: already loaded; DT_RPATH of the requester
and of its loaders, unless the requester has DT_RUNPATH; LD_LIBRARY_PATH; DT_RUNPATH of the requester alone;
ld.so.cache; default folders; in each folder those for this CPU first. Left out: setuid programs and `-z nodefaultlib`.

Named tuples instead of dataclasses: every start of firstlight imports this, and a dataclass takes a millisecond more.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.elf.ld_cache import LD_CACHE, LdCache, read_ld_cache
from firstlight.elf.opening import Meeting, Met, meet
from firstlight.elf.reader import ElfFile, defined_versions
from firstlight.machine.interface import Machine

_VARIABLES = r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))"  # compiled when first met
# What each x86-64 level adds, in the names of /proc/cpuinfo.
# what glibc before 2.37 asks of an Intel processor for the names haswell and avx512_1 (sysdeps/x86/cpu-features.c)
_HASWELL = {"avx2", "bmi1", "bmi2", "abm", "movbe", "popcnt"}
_WIDE = {"avx512cd", "avx512bw", "avx512dq", "avx512vl"}
_X86_LEVELS = (
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)


_NOT_OPENED = (Meeting.ABSENT, Meeting.ENDS_ROW)


class FoundBy(enum.Enum):
    """Which rule of the search led to a file."""

    PATH = "a path in the name"
    PRELOAD = "LD_PRELOAD"
    RPATH = "DT_RPATH"
    LIBRARY_PATH = "LD_LIBRARY_PATH"
    RUNPATH = "DT_RUNPATH"
    CACHE = "ld.so.cache"
    DEFAULT = "default folder"
    LATER_CACHE_ENTRY = "a later entry of ld.so.cache"  # never loaded: the loader tries the first entry only


class LoaderSetup(NamedTuple):
    """What the search depends on apart from the files; setup._replace(library_path=...) asks what-if."""

    arch: str
    library_path: tuple[str, ...]  # elements of LD_LIBRARY_PATH as written
    preload: tuple[str, ...]  # LD_PRELOAD, then /etc/ld.so.preload
    cache: LdCache
    default_folders: tuple[str, ...]
    hwcaps: tuple[str, ...]  # glibc-hwcaps folders this CPU may use, best first
    lib: str  # what $LIB stands for, e.g. lib/x86_64-linux-gnu
    older_folders: tuple[str, ...] = ()  # tls, x86_64: what glibc before 2.37 tries inside every folder


class Candidate(NamedTuple):
    """A file the search meets, and why, e.g. /opt/x/libb.so by DT_RUNPATH, entry '$ORIGIN', owner /opt/x/liba.so."""

    path: str  # as the loader opens it: links not resolved, '..' kept
    rule: FoundBy
    entry: str  # the search path element as written; the cache file or the default folder otherwise
    owner: str  # the object whose RPATH or RUNPATH it is, else ""
    arch: str  # "" when the loader stops there, e.g. at a file that is no ELF file
    fault: str = ""  # why it stops there: "file too short"
    is_fatal: bool = False  # the process dies there; where LD_PRELOAD names a file that is refused, it goes on


class Search(NamedTuple):
    """Files for one name: candidates in the loader's order, its choice first; other machines' files are passed over."""

    name: str
    candidates: tuple[Candidate, ...]
    passed_over: tuple[Candidate, ...]

    @property
    def winner(self) -> Candidate | None:
        """The file that is loaded; None when there is none, or the loader stops at one that is damaged."""
        first = self.candidates[0] if self.candidates else None
        return None if first is None or not first.arch or first.rule is FoundBy.LATER_CACHE_ENTRY else first


def loader_setup(machine: Machine, *, arch: str = "") -> LoaderSetup:
    """How the loader of this machine searches, for programs of the machine's own arch unless another is named.

    For another arch it is what a machine of that arch with the same files would do.
    """
    arch = arch or machine.host.arch
    triplet = f"{arch}-linux-gnu"
    library_path = machine.env("LD_LIBRARY_PATH") or ""
    listed = "\n".join(line.partition("#")[0] for line in (machine.read("/etc/ld.so.preload") or "").splitlines())
    # Debian's loader knows its multiarch folders by itself and not /lib64; others do it the other way round.
    debian = machine.stat(f"/lib/{triplet}") is not None
    first = (f"/lib/{triplet}", f"/usr/lib/{triplet}") if debian else ("/lib64", "/usr/lib64")
    return LoaderSetup(
        arch=arch,
        library_path=tuple(library_path.replace(";", ":").split(":")) if library_path else (),
        preload=tuple((machine.env("LD_PRELOAD") or "").replace(":", " ").split() + listed.replace(":", " ").split()),
        cache=read_ld_cache(machine),
        default_folders=(*first, "/lib", "/usr/lib"),
        hwcaps=_usable_hwcaps(machine) if arch == machine.host.arch == "x86_64" else (),
        lib=f"lib/{triplet}" if debian else "lib64",
    )


def whole_setup(machine: Machine, *, arch: str = "") -> LoaderSetup:
    """The same with the folders that glibc before 2.37 tries besides, e.g. /opt/x/lib/tls/x86_64.

    Apart from loader_setup because they are two more questions for every folder, and hardly ever there.
    """
    setup = loader_setup(machine, arch=arch)
    older = _older_folders(machine, setup.cache, arch=setup.arch) if setup.arch == machine.host.arch else ()
    return setup._replace(older_folders=older)


def search(machine: Machine, setup: LoaderSetup, *, name: str, chain: tuple[ElfFile, ...] = ()) -> Search:
    """Every file the loader could take for a name, e.g. for libcuda.so.1.

    `chain` is the requester, the object that loaded it, and so on to the program; empty for a plain program
    without a search path of its own.
    """
    candidates: list[Candidate] = []
    passed_over: list[Candidate] = []
    for candidate in walk(machine, setup, name=name, chain=chain, folders={}):
        (candidates if candidate.arch in (setup.arch, "") else passed_over).append(candidate)
    return Search(name, tuple(candidates), tuple(passed_over))


def walk(
    machine: Machine, setup: LoaderSetup, *, name: str, chain: tuple[ElfFile, ...], folders: dict[str, tuple[str, ...]]
) -> Iterator[Candidate]:
    """The files for a name one by one in the loader's order; `folders` remembers which folders exist."""
    name = expand(name, chain[0] if chain else None, setup=setup)
    if "/" in name:
        path = _absolute(machine, name)
        met = meet(machine, path)
        if met.meeting not in _NOT_OPENED:
            yield _candidate(path, FoundBy.PATH, met, entry=name)
        return
    cached: list[str] = []
    tried: set[str] = set()
    ended: set[tuple[FoundBy, str]] = set()  # search paths whose other folders are not tried any more
    for rule, entry, owner in _entries(setup, chain):
        if rule is FoundBy.CACHE:
            cached = [hit.path for hit in setup.cache.lookup(name, arch=setup.arch, hwcaps=setup.hwcaps)]
            paths = cached[:1]
        elif rule is FoundBy.LATER_CACHE_ENTRY:
            paths = cached[1:]
        else:
            paths = [f"{place}/{name}" for place in _places(machine, setup, entry=entry, owner=owner, known=folders)]
        row = (rule, "" if owner is None else owner.path)
        for path in paths:
            if path in tried or row in ended:  # torch's libraries bring the same six folders again and again
                continue
            tried.add(path)
            met = meet(machine, path)
            if met.meeting is Meeting.ENDS_ROW:
                ended.add(row)
            elif met.meeting is not Meeting.ABSENT:
                yield _candidate(path, rule, met, entry=entry, owner=row[1])


def _places(
    machine: Machine, setup: LoaderSetup, *, entry: str, owner: ElfFile | None, known: dict[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """The folders that one search path element stands for, remembered as written and by the folder they are."""
    written = entry if owner is None or "$" not in entry else f"{owner.path.rpartition('/')[0]}\0{entry}"
    places = known.get(written)
    if places is None:
        folder = _absolute(machine, expand(entry, owner, setup=setup))
        places = known.get(folder)
        if places is None:
            places = known[folder] = _with_hwcaps(machine, setup, folder=folder)
        known[written] = places
    return places


def expand(text: str, owner: ElfFile | None, *, setup: LoaderSetup) -> str:
    """$ORIGIN, $LIB and $PLATFORM replaced, e.g. '$ORIGIN/../lib' of /opt/x/lib/liba.so is '/opt/x/lib/../lib'.

    $ORIGIN is the folder of the path the object was opened by; symbolic links are not resolved.
    """
    if "$" not in text:
        return text
    origin = "" if owner is None else owner.path.rpartition("/")[0] or "/"
    values = {"LIB": setup.lib, "PLATFORM": setup.arch, "ORIGIN": origin}
    return re.sub(_VARIABLES, lambda match: values[match[1] or match[2]], text)


def _entries(setup: LoaderSetup, chain: tuple[ElfFile, ...]) -> Iterator[tuple[FoundBy, str, ElfFile | None]]:
    """The places of the search in order; an object with DT_RUNPATH contributes no DT_RPATH."""
    requester = chain[0] if chain else None
    program = chain[-1] if chain else None
    if requester is None or not requester.runpath:
        for holder in chain:
            for entry in () if holder.runpath else holder.rpath:
                yield FoundBy.RPATH, entry, holder
    for entry in setup.library_path:
        yield FoundBy.LIBRARY_PATH, entry, program
    if requester is not None:
        for entry in requester.runpath:
            yield FoundBy.RUNPATH, entry, requester
    yield FoundBy.CACHE, LD_CACHE, None
    for entry in setup.default_folders:
        yield FoundBy.DEFAULT, entry, None
    yield FoundBy.LATER_CACHE_ENTRY, LD_CACHE, None


def _with_hwcaps(machine: Machine, setup: LoaderSetup, *, folder: str) -> tuple[str, ...]:
    """The folder behind its glibc-hwcaps folders; () when it does not exist, so that no file is tried in it."""
    if machine.stat(folder) is None:
        return ()
    folder = folder.rstrip("/")
    special = f"{folder}/glibc-hwcaps"
    better = () if not setup.hwcaps or machine.stat(special) is None else setup.hwcaps
    return (*(f"{special}/{level}" for level in better), *_in_older_folders(machine, setup, folder=folder), folder)


def _in_older_folders(machine: Machine, setup: LoaderSetup, *, folder: str) -> tuple[str, ...]:
    """What an older glibc tries inside a folder: every subset of tls, platform and capability, the longest first."""
    names = setup.older_folders
    if all(machine.stat(f"{folder}/{name}") is None for name in dict.fromkeys(names)):
        return ()
    tried = [""]
    for name in reversed(names):
        tried = [f"/{name}{place}" for place in tried] + tried
    return tuple(
        f"{folder}{place}" for place in dict.fromkeys(tried) if place and machine.stat(f"{folder}{place}") is not None
    )


def _older_folders(machine: Machine, cache: LdCache, *, arch: str) -> tuple[str, ...]:
    """() for a C library of 2.37 or newer, and where it cannot be read; e.g. ('tls', 'x86_64', 'x86_64') before."""
    known = cache.lookup("libc.so.6", arch=arch, hwcaps=())
    offered = defined_versions(machine, known[0].path) if known else ()
    if not offered or any(re.fullmatch(r"GLIBC_2\.(3[7-9]|[4-9]\d|\d{3})", name) for name in offered):
        return ()
    return ("tls", *_x86_names(machine)) if arch == "x86_64" else ("tls", arch)


def _x86_names(machine: Machine) -> tuple[str, ...]:
    """Platform and capabilities as glibc before 2.37 names them, e.g. ('haswell', 'avx512_1', 'x86_64') for a Xeon.

    Where it has no name for the processor, the platform and the one capability share theirs.
    """
    flags = _cpu_flags(machine)
    if "GenuineIntel" not in flags:
        return ("x86_64", "x86_64")
    phi = {"avx512cd", "avx512er", "avx512pf"} <= flags
    platform = "xeon_phi" if phi else "haswell" if flags >= _HASWELL else "x86_64"
    wide = flags >= _WIDE and "avx512er" not in flags
    return (platform, "avx512_1", "x86_64") if wide else (platform, "x86_64")


def _candidate(path: str, rule: FoundBy, met: Met, *, entry: str, owner: str = "") -> Candidate:
    return Candidate(path, rule, entry, owner, met.arch, met.fault, met.meeting is Meeting.FATAL)


def _absolute(machine: Machine, path: str) -> str:
    """An empty or relative element means the working folder, as for the loader."""
    if path.startswith("/"):
        return path
    return f"{machine.host.cwd.rstrip('/')}/{path}" if path else machine.host.cwd


def _usable_hwcaps(machine: Machine) -> tuple[str, ...]:
    """glibc-hwcaps folders for this CPU, best first, e.g. ('x86-64-v3', 'x86-64-v2')."""
    flags = _cpu_flags(machine)
    usable: list[str] = []
    for level, wanted in _X86_LEVELS:
        if not wanted <= flags:
            break
        usable.insert(0, level)
    return tuple(usable)


def _cpu_flags(machine: Machine) -> set[str]:
    """What the processor has, by the kernel's names, and its maker: {'avx2', ..., 'GenuineIntel'}."""
    text = machine.read("/proc/cpuinfo", limit=8192, until="\n\n") or ""
    found: set[str] = set()
    for line in text.splitlines():
        if line.startswith(("flags", "vendor_id")):
            found.update(line.partition(":")[2].split())
    return found
