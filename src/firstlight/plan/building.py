"""What every maker of steps uses: a blank step, conditions, the environment to install into, root."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.facts.ability import Sudo
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.plan.back import Back, BackKind, shown, through
from firstlight.plan.option import Option
from firstlight.plan.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.plan.want import PROJECTS

Argv = tuple[str, ...]
NOT_MEASURED = Unknown("not measured")
NETWORK = Unknown("depends on the network")
_WRITING: Fact[float] = Known(1.0, "a bound: files are written, nothing is fetched")
_NONE: Fact[int] = Known(0, "nothing is fetched")


def blank(option: Option) -> Step:
    """A step with everything still to be said but why it is done."""
    because = option.because or option.satisfies
    return Step(
        id="",
        kind=StepKind.MANUAL,
        title="",
        because=because[0] if because else option.kind.value,
        commands=(),
        files=(),
        needs_root=False,
        done_when=(),
        back=(),
        seconds=_WRITING,
        bytes=_NONE,
    )


def slug(text: str) -> str:
    """Words for an id: 'install cuda-compat-13-0' is install-cuda-compat-13-0."""
    return re.sub(r"[^a-z0-9.+]+", "-", text.lower()).strip("-")[:60].rstrip("-")


def written(change: FileChange) -> Condition:
    """A file's text is exactly what the step writes, or the file is gone, or it is the link that was made."""
    if change.links_to:
        return Condition(CheckKind.LINK, change.path, change.links_to)
    if change.removes:
        return Condition(CheckKind.FILE_ABSENT, change.path)
    return Condition(CheckKind.FILE_HOLDS, change.path, change.after)


def exists(path: str) -> Condition:
    return Condition(CheckKind.FILE_EXISTS, path)


def succeeds(*argv: str) -> Condition:
    return Condition(CheckKind.COMMAND, argv[0], argv=argv)


def a_person(says: str) -> Condition:
    """Only a person can tell, e.g. that a new machine runs."""
    return Condition(CheckKind.PERSON, says)


def holds(interpreter: str, requirements: tuple[str, ...]) -> Condition:
    """The environment of an interpreter holds these: torch==2.9.0, torch==*.dev*+cu132, or any torch."""
    return Condition(CheckKind.DISTRIBUTIONS, interpreter, "\n".join(requirements))


def as_root(facts: Facts, *argv: str) -> Argv:
    """The command as this user has to run it: through sudo unless root."""
    return argv if facts.ability.is_root or facts.ability.sudo is Sudo.ABSENT else ("sudo", *argv)


def packages_back(removal: Argv) -> tuple[Back, ...]:
    """dnf's removal is run; apt's is for a reader, because undo knows package by package what to bring back."""
    at = removal.index("remove")
    if removal[at - 1] != "dnf":
        return shown(removal)
    return (through(removal, Back(BackKind.REMOVE_RPM, removal[at + 2 :])),)


def conda_step(option: Option, *, match: re.Match[str], prefix: str, brings: str) -> Step:
    """A conda package in a prefix of its own, so that no environment changes; `brings` is a file it is known by."""
    package = f"{match['package']}={match['cuda']}"
    return replace(
        blank(option),
        id=slug(f"install {package}"),
        kind=StepKind.ARCHIVE,
        title=f"install {package} from {match['channel']} into {prefix}",
        commands=(("conda", "create", "--yes", "--prefix", prefix, "--channel", match["channel"], package),),
        done_when=(exists(brings),),
        back=(Back(BackKind.REMOVE_CONDA, (prefix,)),),
        seconds=NETWORK,
        bytes=option.cost.download_bytes,
    )


def minutes_as_seconds(option: Option) -> Fact[float]:
    """What the option's minutes are as seconds, for its heaviest step."""
    minutes = option.cost.minutes
    return minutes if isinstance(minutes, Unknown) else Known(minutes.value * 60, minutes.seen_in)


def interpreter_of(environment: PythonEnvironment) -> str:
    found = environment.interpreter
    return found.value if isinstance(found, Known) else f"{environment.prefix}/bin/python3"


def environment_to_change(question: Question) -> PythonEnvironment | None:
    """The judged environment where packages may be installed into it; None: a new one is made.

    Not into a tool's own environment, not into one that its distribution manages (PEP 668) or that is not writable.
    """
    environment = question.facts.environment
    if environment is None or environment.kind in (EnvironmentKind.MISSING, EnvironmentKind.TOOL):
        return None
    if environment.externally_managed or (isinstance(environment.writable, Known) and not environment.writable.value):
        return None
    return environment


def installed_versions(environment: PythonEnvironment | None) -> dict[str, str]:
    """Project -> version of what an environment holds; names normalised."""
    if environment is None:
        return {}
    found: dict[str, str] = {}
    for each in environment.distributions:
        found.setdefault(normal(each.name), each.version)
    return found


def normal(name: str) -> str:
    """A project's name as PEP 503 compares it: flash-attn for flash_attn."""
    return re.sub(r"[-_.]+", "-", name).lower()


def split_requirement(text: str) -> tuple[str, str]:
    """('torch', '2.9.0+cu128') of torch==2.9.0+cu128; no version where it is no exact pin."""
    match = re.fullmatch(r"([A-Za-z0-9][\w.-]*?)(?:\[[\w,.-]+\])?==([^\s,*;]+)", text.strip())
    return (normal(match[1]), match[2]) if match else (normal(re.split(r"[\s\[<>=!~;]", text.strip())[0]), "")


def is_requirement(text: str) -> bool:
    """Whether a piece that an option brings is a Python package: torch==2.9.0+cu128 is, cuda-compat-13-0 is none."""
    if text in PROJECTS:
        return True
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?(?:[<>=!~]=?=?[^\s/]+)", text) is not None
