"""One build as it is carried out, written into its folder: every stage reads it, and its digest is in the journal."""

from __future__ import annotations

import enum
import hashlib
import json
import os
from dataclasses import replace

from firstlight.build.backend import Backend
from firstlight.errors import BadFactsFile, BadInput, CouldNotAct
from firstlight.frozen import dataclass
from firstlight.opening import open_regular
from firstlight.owned import our_folder, read_ours
from firstlight.records import decode, encode
from firstlight.tables.build_rows import UnitKind

SCHEMA = "firstlight.build/1"
NAME = "build.json"
_MOST = 4 << 20


class Stage(enum.Enum):
    """The stages in order; each is one step of the journal. What the wheel requires comes before hours of compiling."""

    FETCH = "fetch"
    SUBMODULES = "submodules"
    PATCH = "patch"
    REQUIREMENTS = "requirements"
    CONFIGURE = "configure"
    COMPILE = "compile"
    WHEEL = "wheel"
    INSTALL = "install"
    PROVE = "prove"


@dataclass(frozen=True, slots=True)
class Setting:
    """NAME=VALUE for the environment or for CMake."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class KindJobs:
    """How many units of a kind compile side by side."""

    kind: UnitKind
    jobs: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where the tree comes from; one of folder, archive, release and url is set."""

    target: str  # as given, without a login
    folder: str = ""
    archive: str = ""
    release: str = ""  # name==version
    url: str = ""  # without a login
    ref: str = ""
    patches: tuple[str, ...] = ()  # files
    patch_sums: tuple[str, ...] = ()  # SHA-256 of each: a patch of the same name may say something else


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """Everything that the stages of one build go by."""

    schema: str
    id: str
    folder: str
    tree: str
    source: Source
    commit: str  # of the tree, "" where it is no checkout
    edits: tuple[str, ...]  # files of a checkout that differ from its commit
    tree_digest: str  # of the bytes of the edits; of the list of its files where it is no checkout
    name: str
    version: str
    backend: Backend
    python: str
    settings: tuple[Setting, ...]
    defines: tuple[Setting, ...]
    removed: tuple[str, ...]  # variables that are not handed on
    archs: tuple[str, ...]  # 9.0a
    sms: tuple[str, ...]  # sm_90a
    toolkit: str
    toolkit_version: str
    compiler: str
    kinds: tuple[KindJobs, ...]
    jobs: int
    targets: tuple[str, ...]  # of the project itself
    only: str  # --target
    links: tuple[Setting, ...]  # libnccl.so -> the wheel's file
    prefix: str
    wheel_only: bool
    max_minutes: int
    local: str  # fl.cu130.sm90
    requires: tuple[str, ...] = ()  # when it runs; brought into the environment, () = nothing is
    no_deps: bool = False

    @property
    def build_dir(self) -> str:
        """Where CMake works: PyTorch's setup.py knows no other than build/ of its tree."""
        return f"{self.tree}/build" if self.backend is Backend.PYTORCH else f"{self.folder}/build"

    @property
    def raw(self) -> str:
        return f"{self.folder}/raw"

    @property
    def wheels(self) -> str:
        return f"{self.folder}/wheel"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """The part that is known before there is a tree: what to fetch and where to."""

    schema: str
    id: str
    folder: str
    tree: str
    source: Source


def digest_of(spec: BuildSpec | SourceSpec) -> str:
    """What was agreed to, as a digest; jobs and time limits do not count: they follow the memory of the moment."""
    agreed = replace(spec, kinds=(), jobs=0, max_minutes=0) if isinstance(spec, BuildSpec) else spec
    text = json.dumps(encode(agreed), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write_document(folder: str, name: str, document: object) -> None:
    """Write JSON beside its place and move it there, so that nobody reads half of it."""
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def read_document(path: str) -> object:
    """JSON of a file of ours; {} where it is not there or not whole."""
    try:
        with open_regular(path) as file:
            return json.loads(file.read(_MOST * 4))
    except (OSError, ValueError):
        return {}


def write_spec(spec: BuildSpec | SourceSpec) -> None:
    with our_folder(spec.folder, make=0o700):
        pass
    write_document(spec.folder, NAME if isinstance(spec, BuildSpec) else "source.json", encode(spec))


def read_spec(folder: str) -> BuildSpec | None:
    """The build that a folder holds; None where there is none yet; BadInput where it is nobody's we know."""
    text = _read(folder, NAME)
    try:
        return None if text is None else decode(BuildSpec, _json(text, folder), "build")
    except BadFactsFile:
        return None  # of another release of firstlight, which wrote down more or less than this one


def read_source_spec(folder: str) -> SourceSpec | None:
    text = _read(folder, "source.json")
    return None if text is None else decode(SourceSpec, _json(text, folder), "source")


def _read(folder: str, name: str) -> bytes | None:
    if not os.path.lexists(os.path.join(folder, name)):
        return None
    with our_folder(folder) as held:
        return read_ours(held, name)


def _json(text: bytes, folder: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(
            f"{folder}: its build.json cannot be read ({error}). `firstlight build --clean` removes it."
        ) from error


def require_same(folder: str, digest: str) -> BuildSpec:
    """The spec of a folder; CouldNotAct where it is not the one that the journal knows."""
    spec = read_spec(folder)
    if spec is None or digest_of(spec) != digest:
        raise CouldNotAct(f"{folder}: its build.json is not the one that was agreed to. Run `firstlight build` again.")
    return spec
