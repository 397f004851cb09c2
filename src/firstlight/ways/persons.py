"""What a person does: a step that says what, why no program here can, and the commands that help."""

from __future__ import annotations

import shlex
from dataclasses import replace

from firstlight.facts.containers import ContainerKind
from firstlight.ways import kinds
from firstlight.ways.argv import commands
from firstlight.ways.at import At
from firstlight.ways.back import Argv
from firstlight.ways.building import NOT_MEASURED, a_person, blank, interpreter_of, slug
from firstlight.ways.kinds import Scope, Why
from firstlight.ways.platform import Platform
from firstlight.ways.step import Step
from firstlight.ways.traits import needs_root
from firstlight.ways.way import Way
from firstlight.ways.words import title_of

_IDS: dict[type[Way], str] = {kinds.SetUpRepository: "set-up-repository", kinds.Restart: "reboot"}
_LOOKS = "it only looks, and what to do then depends on what it shows"
_BUILT_ANEW = "It is a line of the image's Dockerfile: build the image with it, and start the container from that."


def asked(way: Way, at: At, *, why: str, note: str = "") -> Step:
    """The way as a step for a person."""
    title = title_of(way, at.platform)
    return replace(
        blank(at),
        id=_IDS.get(type(way)) or slug(title),
        title=title,
        commands=(*commands(way, at.platform), *_typed(way, at)),
        lines=_written_elsewhere(way, at.platform),
        needs_root=needs_root(way, at.platform),
        done_when=(a_person(f"`firstlight doctor` no longer finds {at.because}"),),
        seconds=NOT_MEASURED,
        bytes=NOT_MEASURED,
        note=" ".join(
            filter(None, (f"By you: {_LOOKS if _only_looks(way) else why}.", note or _note(way, at.platform)))
        ),
        awaited=_is_awaited(way),
    )


def _only_looks(way: Way) -> bool:
    return isinstance(way, kinds.AskPerson) and way.why is Why.DECISION and not way.cures


def _is_awaited(way: Way) -> bool:
    """Whether later steps need it: not where it only looks, nor where it is how a program is started."""
    if isinstance(way, kinds.AskPerson):
        return way.cures and way.why not in (Why.PROGRAM, Why.COOLING)
    return not (isinstance(way, kinds.SetVariables) and way.scope is Scope.PROGRAM)


def _typed(way: Way, at: At) -> tuple[Argv, ...]:
    """How one program is started with variables: an export would hold for the whole shell."""
    if isinstance(way, kinds.SetVariables) and way.scope is Scope.PROGRAM:
        python = "python3" if at.facts.environment is None else interpreter_of(at.facts.environment)
        return (("env", *(_assigned(each, at) for each in way.variables), python, "PROGRAM.py"),)
    return ()


def _assigned(variable: kinds.Variable, at: At) -> str:
    """NAME=value; a search path keeps what it has behind that."""
    before = at.facts.libcuda.ld_library_path if variable.name == "LD_LIBRARY_PATH" else ()
    entries = dict.fromkeys((*variable.value.split(":"), *filter(None, before))) if before else (variable.value,)
    return f"{variable.name}={':'.join(entries)}"


def _written_elsewhere(way: Way, platform: Platform) -> tuple[str, ...]:
    """The line that the image is made with, or what the manifest of the pod says."""
    if isinstance(way, kinds.StartContainer):
        return way.arguments if platform.container is ContainerKind.KUBERNETES else ()
    if isinstance(way, kinds.Unwire):
        return (f"RUN rm -r {shlex.join(way.folders)}",)
    return (way.line,) if isinstance(way, kinds.ChangeImage) else ()


def _note(way: Way, platform: Platform) -> str:
    if isinstance(way, (kinds.Unwire, kinds.ChangeImage)):
        return _BUILT_ANEW
    if isinstance(way, kinds.StartContainer):
        return _of_container(way, platform)
    if isinstance(way, kinds.Restart):
        return "Compat libraries older than the driver must not be wired then: run `firstlight doctor` after it."
    if isinstance(way, (kinds.InstallPackages, kinds.InstallDriver)) and way.packages:
        return f"The packages: {', '.join(way.packages)}."
    return ""


def _of_container(way: kinds.StartContainer, platform: Platform) -> str:
    """What the names in capitals stand for."""
    words = tuple(word for argv in commands(way, platform) for word in argv)
    said = []
    if "IMAGE" in words:
        added = f" Add {' '.join(way.arguments)} to what it was started with." if way.arguments else ""
        said.append(f"IMAGE is the image of this container.{added}")
    if "NAME" in words or any("/NAME/" in word for word in words):
        said.append("NAME is this container's name on the host.")
    if any("PROFILE" in word for word in way.arguments):
        said.append("PROFILE is one that the node offers: kubectl describe node lists them.")
    if "VMID" in words:
        said.append("VMID is this container's number on the Proxmox host.")
    if any("ROOT" in word for word in words):
        said.append("ROOT is this root folder, as the host sees it.")
    return " ".join(said)
