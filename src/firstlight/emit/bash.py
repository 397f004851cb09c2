"""One shell script that brings up a pod: gates, Python, packages, compat where the driver needs it, shells, proof."""

from __future__ import annotations

import hashlib

from firstlight.emit.document import Emitted, EmittedFile, ToRun, made_by
from firstlight.emit.header import header_lines
from firstlight.emit.preflight import preflight_functions
from firstlight.emit.python_choice import best_first
from firstlight.emit.quoting import Quoted, absolute_path
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject
from firstlight.emit.tool import REQUIREMENT, emitted_wheel, tool_key, wheel_functions, where_from
from firstlight.frozen import dataclass
from firstlight.ways.nvidia_repository import REPOSITORIES
from firstlight.ways.start_file import LINE_FILE, MODULE, START_LINE, start_module
from firstlight.ways.start_script import Wiring, run_script, wire_script

NAME = "pod_setup.sh"
_EVERY_PYTHON = ("3.12", "3.11", "3.10", "3.13")  # tried where the tables do not know what torch has wheels for


@dataclass(frozen=True, slots=True)
class _Compat:
    """What the template writes about compat; texts of files are whole, with the quoting of their own language."""

    package: Quoted
    folder_name: Quoted  # cuda-13.0
    wire: Quoted
    run: Quoted
    module: Quoted
    start: Quoted
    line_file: Quoted
    start_line: Quoted


def emit_bash(subject: Subject) -> Emitted:
    """pod_setup.sh: run at every start of a pod, it changes what is missing and proves the rest."""
    state = state_folder(subject)
    text = render(
        "bash.sh.j2",
        header=header_lines(subject, "bash"),
        name=NAME,
        state=state,
        tool=tool_key(subject),
        requirement=REQUIREMENT,
        own_wheel=wheel_functions(subject),
        pythons=" ".join(pythons_of(subject)),
        gates=preflight_functions(subject.gates, subject.target.machine),
        parts=subject.parts,
        requirements=subject.requirements,
        numpy=subject.numpy,
        finish_packages=Quoted(render("finish_packages.sh.j2")),
        compat=_compat(subject, state),
        repositories=Quoted(REPOSITORIES),
        shell=Quoted(shell_text(subject, state)),
        key=environment_key(subject),
    )
    to_run = (ToRun("Run it at every start of the pod, as root", f"sh {NAME}"),)
    notes = (
        f"{state} is taken as the folder that survives a restart; another: --volume FOLDER.",
        where_from(subject),
    )
    files = (EmittedFile(NAME, text, 0o755),)
    return Emitted(
        "bash", files, subject.gates, subject.plan.digest, notes, to_run=to_run, wheel=emitted_wheel(subject)
    )


def state_folder(subject: Subject) -> str:
    """Where everything that takes time is kept, e.g. /workspace/firstlight."""
    return f"{absolute_path(subject.choices.volume, what='--volume')}/firstlight"


def pythons_of(subject: Subject) -> tuple[str, ...]:
    """Every Python that torch has wheels for, the wanted one first."""
    return best_first(subject.pythons or _EVERY_PYTHON, subject.target.python)


def environment_key(subject: Subject) -> str:
    """What names an environment, e.g. 5f0c1a2b3c4d: two plans with the same packages share it."""
    words = [f"{part.index} {' '.join(part.requirements)}" for part in subject.parts]
    return hashlib.sha256("\n".join((*words, subject.target.machine)).encode()).hexdigest()[:12]


def shell_text(subject: Subject, state: str) -> str:
    """What shells read: the environment first in PATH, and the decision about compat."""
    return render(
        "shell.sh.j2",
        made_by=made_by(),
        bin=f"{state}/env/bin",
        wire=f"{state}/compat/wire.sh",
        wires=bool(subject.compat),
    )


def wiring_in(subject: Subject, state: str, *, folder: str = "", python: str = "") -> Wiring:
    """The wiring of the subject's compat part, with the library on the volume unless another folder is given."""
    part = subject.compat[0]
    return Wiring(
        folder=folder or f"{state}/compat/cuda-{part.cuda.release}",
        cuda=str(part.cuda.release),
        branches=part.branches,
        python=python or f"{state}/env/bin/python",
        here=f"{state}/compat",
    )


def _compat(subject: Subject, state: str) -> _Compat | None:
    if not subject.compat:
        return None
    wiring = wiring_in(subject, state)
    return _Compat(
        package=Quoted(subject.compat[0].package),
        folder_name=Quoted(f"cuda-{wiring.cuda}"),
        wire=Quoted(wire_script(wiring)),
        run=Quoted(run_script(wiring)),
        module=Quoted(MODULE),
        start=Quoted(start_module(wiring)),
        line_file=Quoted(LINE_FILE),
        start_line=Quoted(START_LINE),
    )
