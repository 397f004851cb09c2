"""Steps without a network: wheels come from a folder that `firstlight bundle` filled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.plan.back import shown
from firstlight.plan.building import Argv
from firstlight.plan.step import Step, StepKind

_INSTALLS = (StepKind.PIP, StepKind.UV)
_FETCHES = (StepKind.APT, StepKind.ARCHIVE, StepKind.GIT, StepKind.PROJECT)


def offline(step: Step, folder: str) -> Step:
    """The step with every index replaced by the folder; one that has to fetch something else is refused."""
    if not folder:
        return step
    if step.kind in _FETCHES and not step.optional:
        raise BadInput(
            f"--offline {folder}: the step {step.title!r} fetches from the network, and a bundle holds wheels alone. "
            "Choose another option (--option; `firstlight plan --options` lists them), or run it with a network."
        )
    if step.kind not in _INSTALLS:
        return step
    return replace(
        step,
        commands=tuple(_from_folder(argv, folder) for argv in step.commands),
        back=shown(*(_from_folder(argv, folder) for argv in step.undo)),
    )


def _from_folder(argv: Argv, folder: str) -> Argv:
    """pip install torch==2.9.0+cu128 --index-url ... becomes pip install torch==2.9.0+cu128 --no-index --find-links."""
    if "install" not in argv:
        return argv
    return (*_without_indexes(argv), "--no-index", "--find-links", folder)


def _without_indexes(argv: Argv) -> Iterator[str]:
    words = iter(argv)
    for word in words:
        if word in ("--index-url", "--extra-index-url"):
            next(words, "")
        else:
            yield word
