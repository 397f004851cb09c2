"""Steps without a network: what is listed of a folder of wheels is installed, by its digest, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.errors import BadInput
from firstlight.ways.back import Argv, shown
from firstlight.ways.building import split_requirement
from firstlight.ways.step import FileChange, Step, StepKind

if TYPE_CHECKING:
    from firstlight.ways.shelf import Shelf  # packaging is slow to import, and most plans have no shelf

_INSTALLS = (StepKind.PIP, StepKind.UV)
_FETCHES = (StepKind.APT, StepKind.ARCHIVE, StepKind.GIT, StepKind.PROJECT, StepKind.BUILD)
_WITH_VALUE = (
    "--index-url", "--extra-index-url", "--find-links", "--python", "--prerelease", "--index-strategy", "--no-binary",
)  # fmt: skip
_KEPT = ("--force-reinstall", "--reinstall")
# What lies beside the list is not looked at: no other folder, no setting of a user or a machine, no source to build.
PIP_FLAGS = ("--isolated", "--no-deps", "--no-index", "--only-binary", ":all:", "--require-hashes", "--find-links")
UV_FLAGS = ("--no-config", "--offline", "--no-deps", "--no-index", "--no-build", "--require-hashes", "--find-links")


def offline(step: Step, shelf: Shelf | None) -> Step:
    """The step with its packages taken from the shelf; one that has to fetch something else is refused."""
    if shelf is None:
        return step
    if step.kind in _FETCHES and not step.optional:
        raise BadInput(
            f"--offline {shelf.folder}: the step {step.title!r} fetches from the network, and a bundle holds wheels "
            "alone. Choose another option (--option; `firstlight plan --options` lists them), or run it with a network."
        )
    return from_shelf(step, shelf) if step.kind in _INSTALLS else step


def from_shelf(step: Step, shelf: Shelf) -> Step:
    """The installs of a step as one, from a file that names each wheel with its digest; the way back likewise."""
    installs = tuple(argv for argv in step.commands if "install" in argv)
    if not installs:
        return step
    wanted = tuple(dict.fromkeys(word for argv in installs for word in _requirements(argv)))
    alone = all("--no-deps" in argv for argv in installs)
    taken = shelf.taken_alone(wanted) if alone else shelf.taken_for(wanted)
    lines = tuple(shelf.line(wheel.project, wheel.version) for wheel in taken)
    there, text = shelf.file_for(lines)
    files = [FileChange(there, "", text, mode=0o600)]
    kept = tuple(dict.fromkeys(word for argv in installs for word in argv if word in _KEPT))
    commands = (*(argv for argv in step.commands if argv not in installs), _install(installs[0], shelf, there, kept))
    undo = tuple(argv for argv in step.undo if "install" not in argv)
    if back := _back(step, shelf, {wheel.project for wheel in taken}):
        place, before = shelf.file_for(back)
        files.append(FileChange(place, "", before, mode=0o600))
        undo = (*undo, _install(installs[0], shelf, place, ()))
    return replace(step, commands=commands, back=shown(*undo), files=(*step.files, *dict.fromkeys(files)))


def _install(like: Argv, shelf: Shelf, file: str, kept: Argv) -> Argv:
    """pip install torch==2.9.0+cu128 --index-url ... becomes pip install ... --require-hashes -r FILE."""
    tool = like[: like.index("install") + 1]
    if "--python" not in like:
        return (*tool, *kept, *PIP_FLAGS, shelf.folder, "-r", file)
    python = like[like.index("--python") + 1]
    return (*tool, "--python", python, *kept, *UV_FLAGS, shelf.folder, "-r", file)


def _back(step: Step, shelf: Shelf, changed: set[str]) -> tuple[str, ...]:
    """The versions of before, as far as the folder has them: those that are replaced, and those taken out first."""
    named = {split_requirement(word)[0] for argv in step.undo if "install" in argv for word in _requirements(argv)}
    lines = (shelf.line(project, shelf.version_before(project)) for project in sorted(changed | named))
    return tuple(line for line in lines if line)


def _requirements(argv: Argv) -> Argv:
    """The packages that a command names: torch==2.9.0 of pip install torch==2.9.0 --index-url ..."""
    found: list[str] = []
    words = iter(argv[argv.index("install") + 1 :])
    for word in words:
        if word in _WITH_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            found.append(word)
    return tuple(found)
