"""The CUDA driver library: which libcuda.so.1 would load, which did, why, and what it says when it is called."""

from __future__ import annotations

from collections.abc import Mapping

from firstlight.elf.ld_conf import configured
from firstlight.elf.loader import Candidate, FoundBy, LoaderSetup, loader_setup, search
from firstlight.elf.reader import read_elf
from firstlight.errors import BadVersion
from firstlight.facts.children import child_script
from firstlight.facts.compat import HUNG_AFTER_S, LIBCUDA_CHILD, driver_version_of, is_compat_path
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion

LIBCUDA = "libcuda.so.1"
NOT_FOUND = "no libcuda.so.1 in LD_LIBRARY_PATH, ld.so.cache or the default folders"

_CONF_FOLDER = "/etc/ld.so.conf.d"
# Where drivers, container toolkits and distributions put it; one that is there but in none of the loader's places
# is a machine where only the search path is wrong.
_DRIVER_FOLDERS = (
    "/usr/lib/wsl/lib",
    "/usr/lib/{arch}-linux-gnu",
    "/usr/lib/{arch}-linux-gnu/nvidia",
    "/usr/lib/{arch}-linux-gnu/nvidia/current",
    "/usr/lib/{arch}-linux-gnu/tegra",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
    "/.singularity.d/libs",  # where Apptainer puts the host's libraries under --nv
)


@dataclass(frozen=True, slots=True)
class LibcudaCandidate:
    """A libcuda.so.1 the loader meets, e.g. /usr/local/cuda/compat/libcuda.so.1 by LD_LIBRARY_PATH."""

    path: str  # as the loader opens it
    real_path: str
    version: Fact[DriverVersion]
    found_by: FoundBy
    entry: str  # the LD_LIBRARY_PATH element, ld.so.conf.d file, default folder or LD_PRELOAD name responsible
    is_stub: bool
    is_compat: bool
    is_damaged: bool  # not an ELF file, e.g. empty: the loader stops there with an error


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A device as the driver library lists it, e.g. NVIDIA H200, 9.0, 150754820096 bytes."""

    name: str
    capability: ComputeCapability
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class LibcudaFacts:
    """What loads as libcuda.so.1 and what it answers; the child process calls it, firstlight itself never does."""

    would_load: Fact[LibcudaCandidate]
    candidates: tuple[LibcudaCandidate, ...]  # in the loader's order
    out_of_reach: tuple[str, ...]  # in well-known driver folders: not looked into by the loader, or of another name
    loaded_path: Fact[str]
    driver_cuda: Fact[CudaVersion]  # cuDriverGetVersion: of the library, not of the kernel driver
    init_code: Fact[int]
    init_name: Fact[str]
    init_text: Fact[str]
    device_count: Fact[int]
    devices: tuple[CudaDevice, ...]
    ld_library_path: tuple[str, ...]
    ld_preload: tuple[str, ...]
    compat_conf_files: tuple[str, ...]


def probe_libcuda(machine: Machine) -> LibcudaFacts:
    """Which libcuda.so.1 a plain process gets and what it answers; without one, nothing is run."""
    setup = loader_setup(machine)
    folders = _configured_folders(machine)
    candidates = _candidates(machine, setup, folders=folders)
    would_load = loaders_choice(candidates)
    answers = _Answers({}, complaint=would_load.reason) if isinstance(would_load, Unknown) else _ask(machine)
    return LibcudaFacts(
        would_load=would_load,
        candidates=candidates,
        out_of_reach=_out_of_reach(machine, setup, candidates),
        loaded_path=answers.text("path", seen_in="/proc/self/maps of a child process"),
        driver_cuda=answers.driver_cuda(),
        init_code=answers.number("init_code", seen_in="cuInit"),
        init_name=answers.text("init_name", seen_in="cuGetErrorName"),
        init_text=answers.text("init_text", seen_in="cuGetErrorString"),
        device_count=answers.device_count(),
        devices=answers.devices(),
        ld_library_path=setup.library_path,
        ld_preload=setup.preload,
        compat_conf_files=tuple(dict.fromkeys(file for name, file in folders.items() if is_compat_path(name))),
    )


def _candidates(machine: Machine, setup: LoaderSetup, *, folders: Mapping[str, str]) -> tuple[LibcudaCandidate, ...]:
    """What the loader meets, each file once: on a merged-/usr system /lib and /usr/lib are the same folder."""
    by_file: dict[str, LibcudaCandidate] = {}
    for found in _met(machine, setup):
        described = _described(machine, found, folders=folders)
        by_file.setdefault(described.real_path, described)
    return tuple(by_file.values())


def _met(machine: Machine, setup: LoaderSetup) -> list[Candidate]:
    """Files for libcuda.so.1 in the loader's order; a preloaded library of that name is there before any search."""
    found: list[Candidate] = []
    for name in setup.preload:
        preloaded = search(machine, setup, name=name).winner
        file = None if preloaded is None else read_elf(machine, preloaded.path)
        if preloaded is not None and file is not None and LIBCUDA in (name, file.soname):
            found.append(preloaded._replace(rule=FoundBy.PRELOAD, entry=name))
    return [*found, *search(machine, setup, name=LIBCUDA).candidates]


def _described(machine: Machine, found: Candidate, *, folders: Mapping[str, str]) -> LibcudaCandidate:
    real = machine.real_path(found.path)
    cached = found.rule in (FoundBy.CACHE, FoundBy.LATER_CACHE_ENTRY)
    return LibcudaCandidate(
        path=found.path,
        real_path=real,
        version=driver_version_of(real),
        found_by=found.rule,
        entry=folders.get(found.path.rpartition("/")[0], found.entry) if cached else found.entry,
        is_stub="/stubs/" in found.path or "/stubs/" in real,
        is_compat=is_compat_path(found.path) or is_compat_path(real),
        is_damaged=not found.arch,
    )


def loaders_choice(candidates: tuple[LibcudaCandidate, ...]) -> Fact[LibcudaCandidate]:
    """The file that the loader takes of those it meets, or why it takes none."""
    first = candidates[0] if candidates else None
    if first is None:
        return Unknown(NOT_FOUND)
    if first.found_by is FoundBy.LATER_CACHE_ENTRY:
        return Unknown(
            "the first libcuda.so.1 of ld.so.cache is gone and the loader tries no other entry; run ldconfig"
        )
    if first.is_damaged:
        return Unknown(f"the loader stops at {first.path}, which is not an ELF file")
    return Known(first, seen_in=f"{first.found_by.value}: {first.entry}")


def _configured_folders(machine: Machine) -> dict[str, str]:
    """Folder -> the ldconfig file that names it first, e.g. /usr/local/cuda/compat -> .../00-compat-1234.conf."""
    folders: dict[str, str] = {}
    for each in configured(machine):
        folders.setdefault(each.folder, each.file)
    for name in machine.list(_CONF_FOLDER, "*.conf"):  # also where no include leads there: somebody put it there
        for each in configured(machine, f"{_CONF_FOLDER}/{name}"):
            folders.setdefault(each.folder, each.file)
    return folders


def _out_of_reach(machine: Machine, setup: LoaderSetup, candidates: tuple[LibcudaCandidate, ...]) -> tuple[str, ...]:
    reached = {item.real_path for item in candidates}
    paths = (f"{folder.format(arch=setup.arch)}/{LIBCUDA}" for folder in _DRIVER_FOLDERS)
    named = tuple(path for path in paths if machine.stat(path) is not None and machine.real_path(path) not in reached)
    return named if named or candidates else _without_the_name(machine, setup)


def _without_the_name(machine: Machine, setup: LoaderSetup) -> tuple[str, ...]:
    """Drivers' files that lack the name libcuda.so.1 beside them, which ldconfig makes, e.g. .../libcuda.so.1.1."""
    folders = [folder.format(arch=setup.arch) for folder in _DRIVER_FOLDERS]
    found = (f"{folder}/{name}" for folder in folders for name in machine.list(folder, f"{LIBCUDA[:-1]}[0-9]*"))
    return tuple(dict.fromkeys(path for path in found if (file := machine.stat(path)) and file.kind == "file"))


def _ask(machine: Machine) -> _Answers:
    said = machine.child(child_script(LIBCUDA_CHILD), str(HUNG_AFTER_S))
    return _Answers(said.answer, complaint=said.complaint)


class _Answers:
    """The child's answer; every field that is not there is Unknown with the best reason the answer holds."""

    def __init__(self, answer: Mapping[str, object], *, complaint: str) -> None:
        self._answer = answer
        self._reason = complaint
        if not complaint:
            for key, sentence in (
                ("load_error", "libcuda.so.1 did not load: {}"),
                ("missing_symbol", "libcuda.so.1 lacks a symbol: {}"),
                ("hung", f"{{}} gave no answer within {HUNG_AFTER_S} s"),
            ):
                if isinstance(found := answer.get(key), str):
                    self._reason = sentence.format(found)
                    break

    def text(self, key: str, *, seen_in: str) -> Fact[str]:
        found = self._answer.get(key)
        if isinstance(found, str) and found:
            return Known(found, seen_in=seen_in)
        return Unknown(self._reason or f"the libcuda child gave no {key}")

    def number(self, key: str, *, seen_in: str) -> Fact[int]:
        found = self._answer.get(key)
        if isinstance(found, int) and not isinstance(found, bool):
            return Known(found, seen_in=seen_in)
        return Unknown(self._reason or f"the libcuda child gave no {key}")

    def driver_cuda(self) -> Fact[CudaVersion]:
        code = self.number("version_code", seen_in="cuDriverGetVersion")
        number = self.number("version", seen_in="cuDriverGetVersion")
        if isinstance(code, Known) and code.value != 0:
            return Unknown(f"cuDriverGetVersion returned error {code.value}")
        if isinstance(number, Unknown):
            return number
        try:
            return Known(CudaVersion.from_driver_number(number.value), seen_in="cuDriverGetVersion")
        except BadVersion as error:
            return Unknown(str(error))

    def device_count(self) -> Fact[int]:
        init = self.number("init_code", seen_in="cuInit")
        if isinstance(init, Known) and init.value != 0:
            return Unknown(f"cuInit returned error {init.value}")
        code = self.number("count_code", seen_in="cuDeviceGetCount")
        if isinstance(code, Known) and code.value != 0:
            return Unknown(f"cuDeviceGetCount returned error {code.value}")
        return self.number("count", seen_in="cuDeviceGetCount")

    def devices(self) -> tuple[CudaDevice, ...]:
        listed = self._answer.get("devices")
        found = (_device(item) for item in listed) if isinstance(listed, list) else ()
        return tuple(item for item in found if item is not None)


def _device(item: object) -> CudaDevice | None:
    """One device of the child's list; None where a call for it failed (the count tells that one is missing)."""
    if not isinstance(item, dict) or item.get("code") != 0:
        return None
    name, major, minor, memory = (item.get(key) for key in ("name", "major", "minor", "memory_bytes"))
    if not (isinstance(name, str) and isinstance(major, int) and isinstance(minor, int) and isinstance(memory, int)):
        return None
    return CudaDevice(name, ComputeCapability(major, minor), memory)
