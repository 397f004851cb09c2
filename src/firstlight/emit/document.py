"""What an emitter returns: files, the gates that are written into them, and what a reader must know."""

from __future__ import annotations

from firstlight import __version__
from firstlight.emit.gates import CompatPart, Gates
from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class EmittedFile:
    """One file, e.g. pod_setup.sh, mode 0o755; the name may have folders: .devcontainer/devcontainer.json."""

    name: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class EmittedWheel:
    """firstlight's own wheel, e.g. wheels/firstlight-0.1.0-py3-none-any.whl, and the digest that the files ask for."""

    name: str
    data: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class ToRun:
    """A command for whoever has the files, and when: 'Prove it', 'docker compose run --rm gpu'."""

    says: str
    line: str


@dataclass(frozen=True, slots=True)
class Emitted:
    """Everything that one kind writes; the first file is the one that is printed where no folder is given."""

    kind: str  # bash
    files: tuple[EmittedFile, ...]
    gates: Gates
    digest: str  # of the plan, 64 hexadecimal digits
    notes: tuple[str, ...]  # sentences: what has to be done or known before the files are used
    what: str = ""  # what is shipped, in words, where it is not what the plan brings
    compat: tuple[CompatPart, ...] | None = None  # the compat library, where it is not the plan's
    sources: tuple[EmittedFile, ...] = ()  # of this package, written as they are: nothing in them is a secret
    to_run: tuple[ToRun, ...] = ()
    wheel: EmittedWheel | None = None  # None: nothing here installs firstlight, or an index is to have it


def made_by() -> str:
    """The tool and its version, e.g. firstlight 0.1.0: the same tool, plan and choices write the same bytes."""
    return f"firstlight {__version__}"
