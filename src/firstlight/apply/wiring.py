"""Which libcuda a command gets: decided when it starts, by what cuInit says here and now, never baked in."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

from firstlight.diagnosis.compat_choice import (
    all_eligible,
    compat_in_use,
    cuda_of,
    ineligible_gpus,
    init_code,
    takes_branch,
    wheel_needs_compat,
    wired_by,
)
from firstlight.diagnosis.finding import Question
from firstlight.elf.loader import FoundBy
from firstlight.errors import BadInput
from firstlight.facts.children import child_script
from firstlight.facts.compat import HUNG_AFTER_S, LIBCUDA_CHILD, CompatLibrary, is_compat_path
from firstlight.facts.known import Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine

VARIABLE = "FIRSTLIGHT_COMPAT"


class Mode(enum.Enum):
    """What FIRSTLIGHT_COMPAT asks for."""

    AUTO = "auto"  # where torch needs it and it works
    ON = "on"  # it must be used; where it cannot work, nothing is started
    OFF = "off"


class Action(enum.Enum):
    """What is done to the environment of the command."""

    NOTHING = "nothing is changed"
    TAKE_OUT = "take out"  # a compat folder that breaks this driver leaves LD_LIBRARY_PATH
    USE = "use"  # a compat folder goes first in LD_LIBRARY_PATH
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class CompatWiring:
    """What a command is started with, and why, e.g. take out: compat 580.95.05 under driver 580.159.04 gives 803."""

    action: Action
    library_path: tuple[str, ...]  # of the command; equal to the present one where nothing is done
    folder: str  # the compat folder used or taken out; "" for none
    why: str


# What cuInit says with an LD_LIBRARY_PATH; a text where it gave no number: it hung, crashed, was not found.
Probe = Callable[[tuple[str, ...]], int | str]


def mode_of(text: str | None) -> Mode:
    """FIRSTLIGHT_COMPAT as a mode; unset is auto."""
    accepted = {mode.value: mode for mode in Mode}
    if text in (None, ""):
        return Mode.AUTO
    if text not in accepted:
        raise BadInput(f"{VARIABLE}={text!a}: accepted are {', '.join(accepted)}. Unset it for auto.")
    return accepted[str(text)]


def decide(question: Question, *, mode: Mode, probe: Probe) -> CompatWiring:
    """What a command started now gets."""
    present = question.facts.libcuda.ld_library_path
    if mode is Mode.OFF:
        return CompatWiring(Action.NOTHING, present, "", f"{VARIABLE}=off")
    in_use = compat_in_use(question.facts)
    code = init_code(question.facts)
    if in_use is not None and code == 0:
        who = "the container runtime" if in_use.copied else wired_by(in_use.library)
        return CompatWiring(
            Action.NOTHING, present, "", f"compat {in_use.version} is in use already ({who}) and cuInit works"
        )
    if in_use is not None and in_use.library.found_by is FoundBy.LIBRARY_PATH:
        return _without_the_stale_one(question, mode=mode, probe=probe)
    if in_use is not None:
        why = f"compat {in_use.version} breaks driver {in_use.kernel}, and {in_use.place} is not LD_LIBRARY_PATH"
        return CompatWiring(Action.REFUSE, present, "", f"{why}: firstlight plan says how to take it out")
    return _with_compat(question, present, mode=mode, probe=probe)


def _without_the_stale_one(question: Question, *, mode: Mode, probe: Probe) -> CompatWiring:
    present = question.facts.libcuda.ld_library_path
    kept = tuple(each for each in present if not is_compat_path(each))
    gone = ", ".join(each for each in present if is_compat_path(each))
    in_use = compat_in_use(question.facts)
    assert in_use is not None, present
    said = probe(kept)
    if said == 0:
        now = init_code(question.facts)
        seen = "does not start" if now is None else f"gives {now}"
        why = f"compat {in_use.version} under driver {in_use.kernel} {seen}; without it cuInit works"
        return CompatWiring(Action.TAKE_OUT, kept, gone, why)
    other = _with_compat(question, kept, mode=mode, probe=probe)
    if other.action is Action.USE:
        return other
    return CompatWiring(Action.REFUSE, present, gone, f"cuInit fails with {gone} and without it ({_words(said)})")


def _with_compat(question: Question, kept: tuple[str, ...], *, mode: Mode, probe: Probe) -> CompatWiring:
    needed = wheel_needs_compat(question)
    if needed is None and mode is Mode.AUTO:
        return CompatWiring(
            Action.NOTHING, kept, "", "the driver's own libcuda is what torch here needs, or no torch was found"
        )
    refused: list[str] = []
    for library in _newest_first(question):
        reason = _cannot_work(question, library)
        if not reason and needed is not None and (cuda := cuda_of(question, library)) is not None:
            reason = "" if cuda.major == needed.major else f"it is CUDA {cuda}, torch needs {needed.major}"
        if not reason:
            said = probe((library.folder, *kept))
            if said == 0:
                return CompatWiring(
                    Action.USE, (library.folder, *kept), library.folder, f"cuInit works with {library.folder}"
                )
            reason = _words(said)
        refused.append(f"{library.folder}: {reason}")
    why = "; ".join(refused) or "no compat library is on this machine"
    action = Action.REFUSE if mode is Mode.ON else Action.NOTHING
    return CompatWiring(action, kept, "", f"compat is needed and cannot be used: {why}")


def _newest_first(question: Question) -> Iterator[CompatLibrary]:
    known = [(each.version.value, each) for each in question.facts.compat if isinstance(each.version, Known)]
    for _, library in sorted(known, key=lambda pair: pair[0], reverse=True):
        yield library


def _cannot_work(question: Question, library: CompatLibrary) -> str:
    """Why a library is not even tried: it would give 803 or 804; "" where it may work."""
    kernel = question.facts.driver.kernel_version
    if isinstance(kernel, Unknown):
        return f"the kernel driver's version is not known: {kernel.reason}"
    if isinstance(library.version, Known) and library.version.value <= kernel.value:
        return f"{library.version.value} is not newer than driver {kernel.value}: cuInit would give 803"
    if takes_branch(question, library, branch=kernel.value.branch) is False:
        return f"it does not take driver branch {kernel.value.branch}: cuInit would give 803"
    listed = library.note.value.device_brands if isinstance(library.note, Known) else ()
    unfit = tuple(ineligible_gpus(question, listed))
    if unfit and not all_eligible(question, library):
        return f"{', '.join(unfit)} may not use compat: cuInit would give 804"
    return ""


def _words(said: int | str) -> str:
    return f"cuInit gives {said}" if isinstance(said, int) else said


def cuinit_probe(machine: Machine) -> Probe:
    """Asks cuInit in a child process with an LD_LIBRARY_PATH of its own."""

    def probe(library_path: tuple[str, ...]) -> int | str:
        environment = {"LD_LIBRARY_PATH": ":".join(library_path)}
        said = machine.child(child_script(LIBCUDA_CHILD), str(HUNG_AFTER_S), env=environment)
        if not said.ok:
            return f"libcuda did not survive: {said.complaint}"
        code = said.answer.get("init_code")
        if isinstance(code, int):
            return code
        hung = said.answer.get("hung")
        return f"{hung} hangs" if hung else f"libcuda does not load: {said.answer.get('load_error', 'no reason given')}"

    return probe
