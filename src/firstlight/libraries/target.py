"""What is looked at: the installed torch, a file, a folder, an installed distribution, or a wheel not yet installed."""

from __future__ import annotations

import enum
import posixpath
import re

from firstlight.elf.reader import ElfFile, is_python_module, read_elf, why_not_elf
from firstlight.errors import BadInput, CouldNotLook
from firstlight.facts.distributions import Requirement, requirements
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.python_environments import PythonEnvironment, probe_environments
from firstlight.facts.torch_install import TorchInstall, probe_torch
from firstlight.frozen import dataclass
from firstlight.libraries.wheel_machine import SHARED, Wheel, WheelMachine, wheel_name
from firstlight.machine.interface import Machine
from firstlight.versions import canonical

PRELOAD_FILE = "firstlight-preload.pth"
ARCHES = ("x86_64", "aarch64")
_ACCEPTED = "accepted: torch, a shared library, a .whl file, a folder, or the name of an installed distribution"
FIRST_OF_TORCH = "libtorch_global_deps.so"  # what torch/__init__.py opens before torch._C
_OF_TORCH = ("libtorch", "libc10")
_SHARED_FOLDERS = {"nvidia", "nvpl", "cuda"}  # namespace folders that many wheels put their files into
_MOST_FILES = 20_000
_DEEPEST = 12


class TargetKind(enum.Enum):
    """What kind of thing was named."""

    TORCH = "torch"
    FILE = "file"
    FOLDER = "folder"
    DISTRIBUTION = "distribution"
    WHEEL = "wheel"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine, the Python environment that is meant, and the torch in it."""

    machine: Machine
    environment: tuple[PythonEnvironment, ...]  # one, or none where no Python was found
    torch: Fact[TorchInstall]
    preloads: tuple[str, ...] = ()  # files that firstlight-preload.pth opens when this Python starts

    @property
    def sites(self) -> tuple[str, ...]:
        return self.environment[0].site_packages if self.environment else ()

    @property
    def interpreter(self) -> str:
        return value_or(self.environment[0].interpreter, "") if self.environment else ""

    @property
    def python_version(self) -> str:
        return value_or(self.environment[0].python_version, "") if self.environment else ""


@dataclass(frozen=True, slots=True)
class Target:
    """What was named, as the files that a program opens, e.g. torch: libtorch_global_deps.so, then torch._C."""

    kind: TargetKind
    title: str  # torch 2.13.0+cpu
    place: str  # the folder, file or environment it is in
    arch: str
    openings: tuple[tuple[str, ...], ...]  # each: files opened one after another in one process
    site: str  # the site-packages it belongs to, "" for none
    requires: tuple[Requirement, ...]  # of its own metadata, where it has some
    skipped: tuple[str, ...]  # files that could not be looked at, each with the reason
    project: str = ""  # of a distribution or a wheel, e.g. torch


def surroundings(machine: Machine, *, python: str = "") -> Surroundings:
    """The environment that is meant (of `python`, else as `doctor` chooses it) and its torch."""
    found = probe_environments(machine, python=python)
    if isinstance(found.selected, Unknown):
        return Surroundings(machine, (), Unknown("no Python environment was found"))
    environment = found.environments[found.selected.value]
    preloads = tuple(path for site in environment.site_packages for path in _preloads_in(machine, site))
    return Surroundings(machine, (environment,), probe_torch(machine, environment), preloads)


def _preloads_in(machine: Machine, site: str) -> tuple[str, ...]:
    text = machine.read(f"{site}/{PRELOAD_FILE}") or ""
    return tuple(re.findall(r"ctypes\.CDLL\('([^'\n]+)'", text))


def find_target(around: Surroundings, text: str, *, arch: str = "") -> tuple[Surroundings, Target]:
    """What `text` names; for a wheel the surroundings are as they would be once it is installed."""
    machine = around.machine
    path = text if text.startswith("/") else posixpath.normpath(posixpath.join(machine.host.cwd, text))
    seen = machine.stat(path) if "/" in text or text not in (".", "torch") else None
    if text == "torch":
        return around, _torch(around, arch=arch)
    if text.endswith(".whl") and (seen is None or seen.kind == "file"):
        return _wheel(around, path, given=text, arch=arch)
    is_name = "/" not in text and text not in (".", "..") and (seen is None or seen.kind != "file")
    if is_name and (seen is None or not text or _record_of(around, canonical(text)) is not None):
        return around, _distribution(around, text, arch=arch)
    if seen is None and text not in (".", ".."):
        raise BadInput(f"{text}: {machine.why_not(path)}; {_ACCEPTED}.")
    if seen is None or seen.kind == "folder":
        return around, _folder(around, path, arch=arch)
    return around, _file(around, path, arch=arch)


def _torch(around: Surroundings, *, arch: str) -> Target:
    if isinstance(around.torch, Unknown):
        raise CouldNotLook(
            f"there is no torch to look at: {around.torch.reason}. Give --python PATH of the environment that has it, "
            "or name a file, a wheel, a folder or a distribution."
        )
    torch = around.torch.value
    opening = torch_opening(around.machine, torch.folder)
    files = [file for path in opening if (file := read_elf(around.machine, path)) is not None]
    if not files:
        raise CouldNotLook(f"{torch.folder}/lib holds no readable library of torch; install torch again.")
    version = torch.version.value if isinstance(torch.version, Known) else ""
    return Target(
        kind=TargetKind.TORCH,
        title=f"torch {version}".rstrip(),
        place=torch.folder,
        arch=_checked_arch(files[-1], arch),
        openings=(opening,),
        site=posixpath.dirname(torch.folder),
        requires=value_or(torch.requires, ()),
        skipped=(),
    )


def torch_opening(machine: Machine, folder: str) -> tuple[str, ...]:
    """What `import torch` opens, in order; plug-ins beside them have needs of their own and are left out."""
    extension = machine.list(folder, "_C.*.so")
    last = next(
        (
            path
            for path in (
                *(f"{folder}/{name}" for name in extension),
                *(f"{folder}/lib/{name}" for name in ("libtorch_python.so", "libtorch_cuda.so", "libtorch_cpu.so")),
            )
            if machine.stat(path) is not None
        ),
        "",
    )
    return tuple(path for path in (f"{folder}/lib/{FIRST_OF_TORCH}", last) if path and machine.stat(path) is not None)


def _file(around: Surroundings, path: str, *, arch: str) -> Target:
    file = read_elf(around.machine, path)
    if file is None or (file.arch in ARCHES and why_not_elf(around.machine, path)):
        raise BadInput(f"{path}: {_why_not(around.machine, path)}; {_ACCEPTED}.")
    return Target(
        kind=TargetKind.FILE,
        title=posixpath.basename(path),
        place=path,
        arch=_checked_arch(file, arch),
        openings=(_opening(around, file, {}),),
        site=_site_of(around, path),
        requires=(),
        skipped=(),
    )


def _folder(around: Surroundings, folder: str, *, arch: str) -> Target:
    paths = _libraries_below(around.machine, folder)
    if not paths:
        raise BadInput(f"{folder}: no shared library lies in or below it; {_ACCEPTED}.")
    openings, found, skipped = _openings(around, paths, arch=arch)
    if not openings:
        raise BadInput(f"{folder}: no library in it can be looked at: {'; '.join(skipped[:3])}; {_ACCEPTED}.")
    return Target(
        TargetKind.FOLDER,
        posixpath.basename(folder) or "/",
        folder,
        found,
        openings,
        _site_of(around, folder),
        (),
        skipped,
    )


def _distribution(around: Surroundings, name: str, *, arch: str) -> Target:
    wanted = canonical(name)
    if wanted == "torch":
        return _torch(around, arch=arch)
    recorded = _record_of(around, wanted)
    if recorded is None:
        where = around.environment[0].prefix if around.environment else "any Python environment"
        raise BadInput(f"{name or ascii(name)}: no such file, and no such distribution in {where}; {_ACCEPTED}.")
    site, record = recorded
    version = record.removesuffix(".dist-info").rpartition("-")[2]
    listed = around.machine.search(f"{site}/{record}/RECORD", rb"(?m)^[^\n,]+\.so(?:\.[0-9][^,\n]*)?(?=,)", limit=4096)
    if listed is None:
        why = around.machine.why_not(f"{site}/{record}/RECORD")
        raise CouldNotLook(f"{name} {version}: {site}/{record}/RECORD says which libraries it has, and {why}.")
    paths = tuple(posixpath.normpath(f"{site}/{each.decode('utf-8', 'replace')}") for each in listed)
    if not paths:
        raise BadInput(f"{name} {version}: this distribution has no shared library; {_ACCEPTED}.")
    openings, found, skipped = _openings(around, paths, arch=arch)
    if not openings:
        raise BadInput(f"{name} {version}: none of its libraries can be looked at: {'; '.join(skipped[:3])}.")
    headers = (around.machine.read(f"{site}/{record}/METADATA") or "").splitlines()
    needs = _requirements(tuple(headers), wanted, arch=found, python=around.python_version)
    return Target(TargetKind.DISTRIBUTION, f"{wanted} {version}", site, found, openings, site, needs, skipped, wanted)


def _record_of(around: Surroundings, wanted: str) -> tuple[str, str] | None:
    """The folder of packages and the .dist-info in it of an installed distribution."""
    for site in around.sites:
        for record in around.machine.list(site, "*.dist-info", keep=lambda each: _is_record_of(each, wanted)):
            return site, record
    return None


def _is_record_of(record: str, wanted: str) -> bool:
    return canonical(record.removesuffix(".dist-info").rpartition("-")[0]) == wanted


def _wheel(around: Surroundings, path: str, *, given: str, arch: str) -> tuple[Surroundings, Target]:
    """The wheel laid over the environment's site-packages: what is installed there is found beside it."""
    if around.machine.stat(path) is None:
        raise BadInput(f"{given}: {around.machine.why_not(path)}; {_ACCEPTED}.")
    named, wheel = wheel_name(path), Wheel(path)
    if named is None:
        raise BadInput(
            f"{given}: not named as a wheel; accepted: e.g. torch-2.9.0-cp312-cp312-manylinux_2_28_aarch64.whl."
        )
    site = around.sites[0] if around.sites else "/site-packages"
    machine = WheelMachine(
        around.machine, site, (wheel,), replaced=_replaced(around, wheel, site=site, project=named.project)
    )
    torch = around.torch
    if named.project == "torch" and around.environment:
        torch = probe_torch(machine, around.environment[0])
    over = Surroundings(machine, around.environment, torch, around.preloads)
    libraries = wheel.libraries()
    if not libraries:
        raise BadInput(f"{given}: this wheel has no shared library; {_ACCEPTED}.")
    if named.project == "torch":
        opening = torch_opening(machine, f"{site}/torch")
        openings, found, skipped = _openings(over, opening[-1:], arch=arch)
        openings = (opening,) if openings else ()
    else:
        openings, found, skipped = _openings(over, tuple(f"{site}/{name}" for name in libraries), arch=arch)
    if not openings:
        raise BadInput(f"{given}: none of its libraries can be looked at: {'; '.join(skipped[:3])}.")
    needs = _requirements(tuple(wheel.metadata().splitlines()), named.project, arch=found, python=_tag_python(path))
    return over, Target(
        TargetKind.WHEEL, f"{named.project} {named.version}", path, found, openings, site, needs, skipped, named.project
    )


def _replaced(around: Surroundings, wheel: Wheel, *, site: str, project: str) -> tuple[str, ...]:
    """The folders of an older release of the same project: pip takes it away first; shared ones (nvidia) stay."""
    installed = any(_is_record_of(each, project) for each in around.machine.list(site, "*.dist-info"))
    own = {name.partition("/")[0] for name in wheel.members if "/" in name and ".dist-info" not in name}
    return tuple(sorted(f"{site}/{name}" for name in own - _SHARED_FOLDERS)) if installed else ()


def _tag_python(path: str) -> str:
    """3.12 of a wheel tagged cp312; "" where its tag names no minor version."""
    match = re.search(r"-cp3(\d+)-", posixpath.basename(path))
    return f"3.{match[1]}" if match else ""


def _requirements(headers: tuple[str, ...], project: str, *, arch: str, python: str) -> tuple[Requirement, ...]:
    """What the metadata asks for on this arch; old METADATA of torch has CRLF line ends."""
    lines = tuple(line.strip() for line in headers)
    end = lines.index("") if "" in lines else len(lines)
    return tuple(requirements(lines[:end], asked_by=project, arch=arch, python=python))


def _openings(
    around: Surroundings, paths: tuple[str, ...], *, arch: str
) -> tuple[tuple[tuple[str, ...], ...], str, tuple[str, ...]]:
    """Each file in a process of its own, the arch they are for, and what was left out with the reason."""
    files: list[ElfFile] = []
    skipped: list[str] = []
    for path in paths:
        file = read_elf(around.machine, path)
        if file is None or (file.arch in ARCHES and why_not_elf(around.machine, path)):
            skipped.append(f"{posixpath.basename(path)}: {_why_not(around.machine, path)}")
        else:
            files.append(file)
    arches = [file.arch for file in files if file.arch in ARCHES]
    wanted = arch or (around.machine.host.arch if around.machine.host.arch in arches else next(iter(arches), ""))
    for file in files:
        if file.arch != wanted:
            skipped.append(f"{posixpath.basename(file.path)}: for {file.arch}, not {wanted or ' or '.join(ARCHES)}")
    fitting = [file for file in files if file.arch == wanted]
    modules = _modules_asked_for(around.machine, fitting)
    return tuple(_opening(around, file, modules) for file in fitting), wanted, tuple(skipped)


def _modules_asked_for(machine: Machine, files: list[ElfFile]) -> dict[str, str]:
    """Name -> path of the target's own extension modules that others of it need: Python has imported them before.

    triton's plug-ins need libtriton.so, have no search path to it, and are opened by it.
    """
    asked = {name for file in files for name in file.needed}
    own = {file.soname or posixpath.basename(file.path): file.path for file in reversed(files)}
    return {name: path for name, path in own.items() if name in asked and is_python_module(machine, path)}


def _opening(around: Surroundings, file: ElfFile, modules: dict[str, str]) -> tuple[str, ...]:
    """An extension of torch is imported after torch, a plug-in after its module: what they loaded is there already."""
    before = tuple(modules[name] for name in file.needed if modules.get(name, file.path) != file.path)
    asks = any(name.startswith(_OF_TORCH) for name in file.needed)
    if not asks or isinstance(around.torch, Unknown) or file.path.startswith(f"{around.torch.value.folder}/"):
        return (*before, file.path)
    return (*torch_opening(around.machine, around.torch.value.folder), *before, file.path)


def _checked_arch(file: ElfFile, arch: str) -> str:
    if file.arch not in ARCHES:
        raise BadInput(f"{file.path}: this file is for {file.arch}; accepted: {' and '.join(ARCHES)}, 64 bit.")
    if arch and file.arch != arch:
        raise BadInput(f"{file.path}: this file is for {file.arch}, and --arch says {arch}. Leave --arch out, or name "
                       f"a file for {arch}.")  # fmt: skip
    return file.arch


def _why_not(machine: Machine, path: str) -> str:
    return why_not_elf(machine, path) or "an ELF file without a dynamic section"


def _libraries_below(machine: Machine, folder: str) -> tuple[str, ...]:
    """The shared libraries in and below a folder; a file with several names is listed once, linked folders are not
    entered: they may lead in a circle."""
    found: dict[str, str] = {}
    waiting, met = [(folder, 0)], 0
    while waiting and met < _MOST_FILES:
        here, depth = waiting.pop()
        for name in machine.list(here):
            path, met = f"{here.rstrip('/')}/{name}", met + 1
            seen = machine.stat(path)
            if seen is not None and seen.kind == "folder":
                if depth < _DEEPEST and machine.real_path(path) == f"{machine.real_path(here).rstrip('/')}/{name}":
                    waiting.append((path, depth + 1))
            elif seen is not None and SHARED.search(name):
                found.setdefault(machine.real_path(path), path)
    return tuple(sorted(found.values()))


def _site_of(around: Surroundings, path: str) -> str:
    return next((site for site in around.sites if path.startswith(f"{site}/")), "")
