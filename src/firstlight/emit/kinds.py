"""Every kind of file that `firstlight emit` writes, by its name on the command line."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from firstlight.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.emit.document import Emitted
    from firstlight.emit.subject import Subject

# module and function; imported when it is asked for
_MODULES: dict[str, tuple[str, str]] = {
    "bash": ("firstlight.emit.bash", "emit_bash"),
    "dockerfile": ("firstlight.emit.dockerfile", "emit_dockerfile"),
    "devcontainer": ("firstlight.emit.devcontainer", "emit_devcontainer"),
    "runpod": ("firstlight.emit.runpod", "emit_runpod"),
    "slurm": ("firstlight.emit.slurm", "emit_slurm"),
    "ansible": ("firstlight.emit.ansible", "emit_ansible"),
    "compose": ("firstlight.emit.compose", "emit_compose"),
    "k8s": ("firstlight.emit.k8s", "emit_k8s"),
    "kit": ("firstlight.emit.kit", "emit_kit"),
}
NAMES = tuple(_MODULES)


def emit(kind: str, subject: Subject) -> Emitted:
    """The files of a kind, e.g. emit("bash", subject)."""
    if kind not in _MODULES:
        raise BadInput(f"emit {kind[:40]!a}: accepted: {', '.join(NAMES)}.")
    module, function = _MODULES[kind]
    emitter: Callable[[Subject], Emitted] = getattr(import_module(module), function)
    from firstlight.emit.not_let_in import not_let_in

    made = emitter(subject)
    return replace(made, notes=(*not_let_in(subject, made.gates), *made.notes))
