"""How firstlight itself gets there: as the wheel that runs here, beside the files and named in them by its digest."""

from __future__ import annotations

import shlex

from firstlight import __version__
from firstlight.emit.document import EmittedWheel
from firstlight.emit.imagined import oldest_driver
from firstlight.emit.quoting import Quoted
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject

FOLDER = "wheels"
REQUIREMENT = f"firstlight=={__version__}"


def emitted_wheel(subject: Subject, folder: str = FOLDER) -> EmittedWheel | None:
    """The wheel as a file of the kind; None where firstlight is to come from an index."""
    wheel = subject.wheel
    return None if wheel is None else EmittedWheel(f"{folder}/{wheel.name}", wheel.data, wheel.sha256)


def tool_key(subject: Subject) -> str:
    """What names an environment of firstlight, e.g. 0.1.0-eb9e4cc18a6a: another wheel gets another one."""
    wheel = subject.wheel
    return __version__ if wheel is None else f"{__version__}-{wheel.sha256[:12]}"


def wheel_functions(subject: Subject) -> Quoted:
    """Shell functions that bring the wheel to where it is installed from, and refuse another one."""
    wheel = subject.wheel
    if wheel is None:
        return Quoted("")
    return Quoted(render("own_wheel.sh.j2", name=wheel.name, sha256=wheel.sha256))


def where_from(subject: Subject) -> str:
    """The sentence of the notes: 'firstlight comes from wheels/firstlight-0.1.0-py3-none-any.whl, ...'."""
    wheel = subject.wheel
    if wheel is None:
        return (
            f"{REQUIREMENT} comes from the index that pip is set to there; see that the name is firstlight's own in it."
        )
    return f"firstlight comes from {FOLDER}/{wheel.name}, checked by its SHA-256: bring the folder {FOLDER} along."


def wheels_readme(subject: Subject) -> str:
    """The README of the folder `wheels`, with the command that fills it for this Python."""
    return (
        "Wheels that lie here are taken before an index is asked; firstlight's own is the one it was emitted with.\n"
        "This fills the folder; with its bundle.json here no index is asked for torch:\n\n"
        f"    {_bundle_command(subject)}\n"
    )


def _bundle_command(subject: Subject) -> str:
    """firstlight bundle --for "H100, driver >= 550" --want torch==2.9.0+cu130 --python 3.13 --out wheels."""
    whom = ("--facts", "FACTS.json") if oldest_driver(subject.facts) is None else ("--for", subject.made_for)
    wants = (word for each in subject.requirements for word in ("--want", each))
    platform = ("--platform", subject.target.machine, "--python", subject.target.python)
    return shlex.join(("firstlight", "bundle", *whom, *wants, *platform, "--out", FOLDER))
