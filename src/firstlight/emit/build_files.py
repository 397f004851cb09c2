"""A build from source as files for another machine: firstlight's own wheel, and the command whose stages these are."""

from __future__ import annotations

import hashlib

from firstlight.emit.document import EmittedFile, EmittedWheel, ToRun, made_by
from firstlight.emit.image_reference import image_reference
from firstlight.emit.quoting import Quoted, sh, sh_words
from firstlight.emit.rendering import render
from firstlight.emit.tool import FOLDER
from firstlight.frozen import dataclass
from firstlight.own_wheel import OwnWheel

SCRIPT, IMAGE = "build.sh", "Dockerfile"
KINDS = ("bash", "dockerfile")
BASE = "nvidia/cuda:13.0.2-devel-ubuntu24.04"  # nvcc and the headers; the driver's part comes when it is started


@dataclass(frozen=True, slots=True)
class Carried:
    """An sdist that goes along with the files, e.g. sources/lightgbm-4.7.0.tar.gz."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What is built elsewhere: the target as it is typed there, and the options of `firstlight build` with it."""

    target: str
    options: tuple[str, ...]  # --archs 9.0 --flag USE_CUDA=ON
    sdist: Carried | None
    wheel: OwnWheel
    base: str = ""


@dataclass(frozen=True, slots=True)
class EmittedBuild:
    """The files of one kind, the wheel and the sdist that lie beside them, and what to do with them."""

    kind: str
    files: tuple[EmittedFile, ...]
    wheel: EmittedWheel
    sdist: Carried | None
    notes: tuple[str, ...]
    to_run: tuple[ToRun, ...]


def emit_build(kind: str, order: BuildOrder) -> EmittedBuild:
    """build.sh, or a Dockerfile that runs it."""
    files = [EmittedFile(SCRIPT, _script(order), 0o755)]
    to_run = ToRun("On that machine; PYTHON is that of the environment which gets the wheel", f"sh {SCRIPT} PYTHON")
    notes = [
        f"Bring the folder {FOLDER}{' and the folder sources' if order.sdist else ''} along.",
        "Without PYTHON a new environment is made in ./env; what needs torch needs an environment that has it.",
    ]
    if kind == "dockerfile":
        files.insert(0, EmittedFile(IMAGE, _image(order)))
        to_run = ToRun("In the folder of these files", "docker build --tag built .")
        notes = [
            "The base has to have nvcc where CUDA is compiled; another one: --base IMAGE.",
            "A project that needs torch needs a base with it; --build-arg PYTHON=... names its interpreter.",
        ]
    wheel = EmittedWheel(f"{FOLDER}/{order.wheel.name}", order.wheel.data, order.wheel.sha256)
    return EmittedBuild(kind, tuple(files), wheel, order.sdist, tuple(notes), (to_run,))


def _header(order: BuildOrder) -> tuple[str, ...]:
    words = repr((order.target, order.options, order.sdist.sha256 if order.sdist else ""))
    digest = hashlib.sha256(words.encode()).hexdigest()
    return (
        f"Written by {made_by()} (firstlight emit --build); the same order gives the same file.",
        f"order {digest}",
        f"builds {order.target} {' '.join(order.options)}".rstrip(),
    )


def _script(order: BuildOrder) -> str:
    target = Quoted(f'"$here"/{sh(order.sdist.name)}') if order.sdist else sh(order.target)
    return render(
        "build.sh.j2",
        header=_header(order),
        wheel=order.wheel,
        own_wheel=Quoted(render("own_wheel.sh.j2", name=order.wheel.name, sha256=order.wheel.sha256)),
        sdist=order.sdist,
        target=target,
        options=sh_words(order.options) if order.options else Quoted(""),
    )


def _image(order: BuildOrder) -> str:
    return render(
        "build_dockerfile.j2",
        header=_header(order),
        base=image_reference(order.base or BASE, what="--base"),
        sdist=bool(order.sdist),
    )
