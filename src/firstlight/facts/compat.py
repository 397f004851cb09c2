"""Forward-compatibility libraries (cuda-compat-X-Y) that lie on the machine, and what each says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.ahead import CUINIT_LIMIT_S
from firstlight.elf.reader import read_note
from firstlight.errors import BadVersion
from firstlight.facts.children import child_script
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine.interface import ChildScript, Machine
from firstlight.versions import CudaVersion, DriverVersion

NOTE_SECTION = ".note.cuda.fwd_compatibility"
LIBCUDA_CHILD = "libcuda"
HUNG_AFTER_S = CUINIT_LIMIT_S

# NGC images keep the files in compat/lib.real and link compat/lib to it at start.
_SUBFOLDERS = ("", "/lib", "/lib.real")


@dataclass(frozen=True, slots=True)
class CompatNote:
    """The library's own note, e.g. CUDA 13.0 for kernel driver branches 535, 550, ... and NVML brands 1, 2, 7, ...

    The lists are empty in the Orin form of the note, which has none. An ordinary driver's libcuda carries it too.
    """

    cuda: CudaVersion
    driver_branches: tuple[int, ...]
    device_brands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CompatLibrary:
    """One compat libcuda, e.g. /usr/local/cuda-13.0/compat/libcuda.so.580.95.05, alias /usr/local/cuda/compat."""

    folder: str  # links resolved
    aliases: tuple[str, ...]  # other names of the folder
    library: str
    version: Fact[DriverVersion]
    note: Fact[CompatNote]
    package: Fact[str]
    init_code: Fact[int]  # what cuInit says with its folder first in LD_LIBRARY_PATH


def probe_compat(machine: Machine, *, env_prefixes: tuple[str, ...] = ()) -> tuple[CompatLibrary, ...]:
    """Every compat library in the folders where packages, images and conda put them; env_prefixes adds environments."""
    conda = _unique((machine.env("CONDA_PREFIX") or "", *env_prefixes))
    names: dict[str, list[str]] = {}
    for folder in _unique((*_folders(machine), *(f"{prefix}/cuda-compat" for prefix in conda))):
        for subfolder in _SUBFOLDERS:
            for name in machine.list(folder + subfolder, "libcuda.so.*"):
                library = machine.real_path(f"{folder}{subfolder}/{name}")
                if machine.stat(library) is None:  # a link left behind
                    continue
                spellings = names.setdefault(library, [])
                if folder + subfolder not in spellings:
                    spellings.append(folder + subfolder)
    return tuple(_library(machine, library, seen_as=seen_as, conda=conda) for library, seen_as in names.items())


def driver_version_of(library: str) -> Fact[DriverVersion]:
    """The driver version in a library's real file name, e.g. 580.95.05 of libcuda.so.580.95.05."""
    name = library.rpartition("/")[2]
    version = name.removeprefix("libcuda.so.")
    if version == name or len(version.partition(".")[0]) < 3:  # libcuda.so.1 (WSL), libcuda.so.1.1 (Tegra)
        return Unknown(f"the file name {name} carries no driver version")
    try:
        return Known(DriverVersion.parse(version), seen_in=library)
    except BadVersion as error:
        return Unknown(str(error))


def is_compat_path(path: str) -> bool:
    """Whether a path lies in a compat folder, e.g. /usr/local/cuda/compat/libcuda.so.1."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if part == "cuda-compat":  # conda's
            return True
        if part == "compat" or part.startswith(("compat-", "compat_")):
            parent = parts[place - 1] if place else ""
            if place > 1 and parent.replace(".", "").isdecimal():  # the HPC SDK's cuda/12.9/compat
                parent = parts[place - 2]
            if parent.startswith("cuda"):
                return True
    return False


def read_compat_note(machine: Machine, library: str) -> Fact[CompatNote]:
    """The forward-compatibility note of a libcuda, e.g. CUDA 13.0 for branches 535 to 580."""
    import json

    descriptor = read_note(machine, library, NOTE_SECTION)
    if descriptor is None:
        return Unknown(f"{library} has no {NOTE_SECTION} note")
    start, end = descriptor.find(b"{"), descriptor.rfind(b"}")
    try:
        content = json.loads(descriptor[start : end + 1])
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return Unknown(f"the {NOTE_SECTION} note of {library} is not a JSON object")
    fields = {str(key).lower(): value for key, value in content.items()}
    try:
        cuda = CudaVersion.parse(str(fields.get("cuda version", "")))
    except BadVersion as error:
        return Unknown(f"the {NOTE_SECTION} note of {library}: {error}")
    return Known(CompatNote(cuda, _numbers(fields.get("driver")), _numbers(fields.get("device"))), seen_in=library)


def _folders(machine: Machine) -> Iterator[str]:
    """Where compat libraries are put, links not resolved, e.g. /usr/local/cuda/compat."""
    toolkits = [f"/usr/local/{name}" for name in machine.list("/usr/local", "cuda*")]
    toolkits += [machine.env(name) or "" for name in ("CUDA_HOME", "CUDA_PATH")]
    hpc_sdk = "/opt/nvidia/hpc_sdk"
    for target in machine.list(hpc_sdk, "Linux_*"):
        for release in machine.list(f"{hpc_sdk}/{target}", "[0-9]*"):
            parent = f"{hpc_sdk}/{target}/{release}/cuda"
            toolkits += [f"{parent}/{cuda}" for cuda in machine.list(parent, "[0-9]*")]
    for toolkit in _unique(toolkits):
        for name in machine.list(toolkit, "compat*"):
            yield f"{toolkit}/{name}"


def _library(machine: Machine, library: str, *, seen_as: list[str], conda: tuple[str, ...]) -> CompatLibrary:
    folder = library.rpartition("/")[0]
    return CompatLibrary(
        folder=folder,
        aliases=tuple(name for name in seen_as if name != folder),
        library=library,
        version=driver_version_of(library),
        note=read_compat_note(machine, library),
        package=_package(machine, library, conda=conda),
        init_code=Unknown("cuInit was not asked with it"),
    )


def ask_compat(
    machine: Machine, libraries: tuple[CompatLibrary, ...], *, kernel: Fact[DriverVersion]
) -> tuple[CompatLibrary, ...]:
    """The libraries with what cuInit says of each that is newer than the kernel driver; an older one gives 803 anyway.

    One child process a library, with that folder first in its LD_LIBRARY_PATH: a note is a promise, this is a proof.
    """
    return tuple(
        replace(each, init_code=_asked(machine, each, kernel=kernel, number=number))
        for number, each in enumerate(libraries, 1)
    )


def _asked(machine: Machine, library: CompatLibrary, *, kernel: Fact[DriverVersion], number: int) -> Fact[int]:
    if isinstance(kernel, Unknown):
        return Unknown("no kernel driver was seen: nothing to ask it with")
    if isinstance(library.version, Unknown) or library.version.value <= kernel.value:
        return Unknown(f"not asked: it is not newer than driver {kernel.value}")
    script = child_script(LIBCUDA_CHILD)
    before = machine.env("LD_LIBRARY_PATH")
    path = f"{library.folder}:{before}" if before else library.folder
    named = ChildScript(f"{script.name} with compat {number}", script.source)
    said = machine.child(named, str(HUNG_AFTER_S), env={"LD_LIBRARY_PATH": path})
    code = said.answer.get("init_code")
    if isinstance(code, int) and not isinstance(code, bool):
        return Known(code, seen_in=f"cuInit in a child process with {library.folder} first")
    hung = said.answer.get("hung")
    reason = said.complaint or (f"{hung} gave no answer" if hung else str(said.answer.get("load_error", "no answer")))
    return Unknown(f"cuInit with it: {reason}")


def _package(machine: Machine, library: str, *, conda: tuple[str, ...]) -> Fact[str]:
    """The package that brought the library, e.g. cuda-compat-13-0; only dpkg and conda tell without a query program."""
    for prefix in conda:
        if library.startswith(machine.real_path(prefix) + "/"):
            for name in machine.list(f"{prefix}/conda-meta", "cuda-compat-impl-*.json"):
                return Known(name[: -len(".json")], seen_in=f"{prefix}/conda-meta/{name}")
    info = "/var/lib/dpkg/info"
    for name in machine.list(info, "cuda-compat*.list"):
        if library in (machine.read(f"{info}/{name}") or "").splitlines():
            return Known(name[: -len(".list")].partition(":")[0], seen_in=f"{info}/{name}")
    return Unknown("no dpkg or conda file list names it")


def _unique(paths: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Absolute paths without a trailing slash, each once, in order."""
    return tuple(dict.fromkeys(path.rstrip("/") for path in paths if path.startswith("/") and path.strip("/")))


def _numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(item for item in value[:256] if isinstance(item, int) and not isinstance(item, bool))
