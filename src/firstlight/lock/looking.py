"""A machine as a lock tells it: every fact of the stack, read through facts and, where there is one, the Machine."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator

from firstlight.facts.collect import Facts
from firstlight.facts.cutlass import commit_of
from firstlight.facts.known import Fact, Known, value_or
from firstlight.facts.toolkits import Toolkit
from firstlight.frozen import dataclass
from firstlight.lock.ahead import NOTHING_TAKEN, Taken, file_digest
from firstlight.lock.packages import held_packages
from firstlight.lock.places import Places
from firstlight.lock.settings import Variable, held_settings
from firstlight.lock.stack import NO_GPU, Held, MachineKind, Part, Stack
from firstlight.machine.interface import Machine

_PROJECT_LOCKS = ("uv.lock", "pylock.toml", "pixi.lock")
_MANIFEST = re.compile(r"(?ms)^\[manifest\]\n.*?(?=^\[)")  # of uv.lock: constraints, which a hold adds, and no package
_LARGEST_TEXT = 64 << 20
_COMPILERS = ("gcc", "g++")


@dataclass(frozen=True, slots=True)
class Looked:
    """What was looked at: facts, the machine they are of (None: a document alone), its variables, and checkouts."""

    facts: Facts
    machine: Machine | None
    places: Places
    variables: tuple[Variable, ...] = ()
    checkouts: tuple[str, ...] = ()  # folders that somebody named
    taken: Taken = NOTHING_TAKEN  # digests that were taken ahead


def stack_of(looked: Looked) -> Stack:
    """The whole stack, sorted by part and name."""
    found = {(each.part, each.name): each for each in _everything(looked)}
    order = {part: place for place, part in enumerate(Part)}
    held = sorted(found.values(), key=lambda each: (order[each.part], each.name))
    return Stack(kind_of(looked.facts), tuple(held), tuple(_out_of_reach(looked)))


def kind_of(facts: Facts) -> MachineKind:
    """Capability of the GPUs, processor and driver branch."""
    seen = [gpu.capability for gpu in facts.gpus.devices] or [
        Known(device.capability, "libcuda") for device in facts.libcuda.devices
    ]
    capabilities = sorted({str(each.value) for each in seen if isinstance(each, Known)})
    driver = facts.driver.kernel_version
    return MachineKind(
        " ".join(capabilities) or NO_GPU,
        facts.place.arch,
        driver.value.branch if isinstance(driver, Known) else 0,
    )


def _everything(looked: Looked) -> Iterator[Held]:
    facts, places = looked.facts, looked.places
    yield from _gpus(facts)
    if isinstance(facts.driver.kernel_version, Known):
        driver = facts.driver.kernel_version
        yield Held(Part.DRIVER, "version", str(driver.value), seen_in=driver.seen_in)
    yield from _compat(looked)
    yield from _toolkits(facts, places)
    yield from _compilers(facts)
    environment = facts.environment
    if environment is not None and isinstance(environment.python_version, Known):
        version = environment.python_version
        yield Held(Part.PYTHON, "version", version.value, seen_in=version.seen_in)
    yield from held_packages(facts, looked.machine, places, taken=looked.taken.records)
    yield from _imports(facts, places)
    yield from _libraries(facts, places)
    yield from held_settings(facts, looked.variables, places)
    yield from _checkouts(looked)
    yield from _project_locks(looked)


def _gpus(facts: Facts) -> Iterator[Held]:
    names = [gpu.name for gpu in facts.gpus.devices if isinstance(gpu.name, Known)]
    if names:
        kinds = " + ".join(sorted({each.value for each in names}))
        yield Held(Part.GPU, "name", kinds, seen_in=names[0].seen_in)
        yield Held(Part.GPU, "count", str(len(facts.gpus.devices)), seen_in=names[0].seen_in)


def _compat(looked: Looked) -> Iterator[Held]:
    for each in looked.facts.compat:
        taken = looked.taken.libraries
        digest = "" if looked.machine is None else taken.get(each.library) or file_digest(looked.machine, each.library)
        version = str(each.version.value) if isinstance(each.version, Known) else "of unknown version"
        yield Held(Part.COMPAT, looked.places.shown(each.folder), version, digest, seen_in=each.library)


def _toolkits(facts: Facts, places: Places) -> Iterator[Held]:
    """The toolkit whose nvcc is first on PATH, and the one that torch's extension builder takes."""
    nvcc = facts.toolkits.nvcc_on_path
    if isinstance(nvcc, Known):
        folder = value_or(nvcc.value.toolkit, posixpath.dirname(posixpath.dirname(nvcc.value.real)))
        yield _toolkit("nvcc", folder, facts, places, seen_in=f"{nvcc.value.path} ({nvcc.seen_in})")
    home = facts.toolkits.cpp_extension_home
    if isinstance(home, Known):
        found = _toolkit_at(home.value, facts)
        folder = home.value if found is None else found.path
        yield _toolkit("extensions", folder, facts, places, seen_in=home.seen_in)


def _toolkit_at(folder: str, facts: Facts) -> Toolkit | None:
    return next((each for each in facts.toolkits.toolkits if folder in (each.path, *each.found_by)), None)


def _toolkit(name: str, folder: str, facts: Facts, places: Places, *, seen_in: str) -> Held:
    found = _toolkit_at(folder, facts)
    version: Fact[object] | None = None if found is None else found.nvcc_version
    if found is not None and not isinstance(version, Known):
        version = found.version
    words = str(version.value) if isinstance(version, Known) else "of unknown version"
    return Held(Part.TOOLKIT, name, f"{words} at {places.shown(folder)}", seen_in=seen_in)


def _compilers(facts: Facts) -> Iterator[Held]:
    """gcc and g++ on PATH, and those that CC, CXX and others name."""
    for tool in facts.compilers.compilers:
        if tool.name in _COMPILERS and isinstance(tool.version, Known):
            yield Held(Part.COMPILER, tool.name, tool.version.value, seen_in=tool.path)
    for each in facts.compilers.chosen:
        if isinstance(each.version, Known):
            yield Held(Part.COMPILER, each.variable, each.version.value, seen_in=f"{each.variable}={each.command}")


def _imports(facts: Facts, places: Places) -> Iterator[Held]:
    """Where `import torch` finds it, and what stands in front of it."""
    if not isinstance(facts.torch, Known):
        return
    torch = facts.torch.value
    yield Held(Part.IMPORTS, "torch", places.shown(torch.folder), seen_in=torch.found_via)
    for path in torch.shadowed_by:
        yield Held(Part.IMPORTS, places.shown(path), "hides torch from Python started there", seen_in=path)


def _libraries(facts: Facts, places: Places) -> Iterator[Held]:
    """The file that each soname of torch resolves to, and the libcuda that programs load."""
    libcuda = facts.libcuda.would_load
    if isinstance(libcuda, Known):
        yield Held(Part.LIBRARIES, "libcuda.so.1", places.shown(libcuda.value.path), seen_in=libcuda.seen_in)
    if isinstance(facts.torch_libraries, Known):
        for each in facts.torch_libraries.value.loaded:
            seen = f"{each.found_by.value} {each.entry}".strip()
            yield Held(Part.LIBRARIES, each.name, places.shown(each.path), seen_in=seen)


def _checkouts(looked: Looked) -> Iterator[Held]:
    found: dict[str, Fact[str]] = {}
    if looked.machine is not None:
        found |= {folder: commit_of(looked.machine, folder) for folder in looked.checkouts}
    found |= {tree.path: tree.commit for tree in looked.facts.cutlass.trees}
    for folder, commit in found.items():
        if isinstance(commit, Known):
            yield Held(Part.CHECKOUTS, looked.places.shown(folder), commit.value, seen_in=commit.seen_in)


def _project_locks(looked: Looked) -> Iterator[Held]:
    """The lock file of the project that fills the environment, by its digest; none where it cannot be read."""
    for file in looked.facts.python.project_files:
        name = posixpath.basename(file.path)
        text = looked.machine.read(file.path, limit=_LARGEST_TEXT) if looked.machine is not None else None
        if name in _PROJECT_LOCKS and text is not None:
            digest = hashlib.sha256(_MANIFEST.sub("", text).encode("utf-8", "surrogateescape")).hexdigest()
            yield Held(Part.FILES, name, f"sha256:{digest}", seen_in=file.path)


def _out_of_reach(looked: Looked) -> Iterator[str]:
    if looked.machine is None:
        yield "files of the machine: these are facts alone, so no digest was taken"
    facts = looked.facts
    if facts.environment is None:
        yield "Python packages: no Python environment was found"
    if not isinstance(facts.torch_libraries, Known) and isinstance(facts.torch, Known):
        yield f"the libraries of torch: {facts.torch_libraries.reason}"
