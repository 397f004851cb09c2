"""What every maker of steps uses: a blank step, conditions, the environment to install into, root."""

from __future__ import annotations

import re
from itertools import count

from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.ways.at import At
from firstlight.ways.back import Argv
from firstlight.ways.names import normal
from firstlight.ways.platform import Platform
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind

NOT_MEASURED = Unknown("not measured")
NETWORK = Unknown("depends on the network")
_SAVED = ".before-firstlight"
# An older file under the name of a copy is kept under another (NAME.~1~): what comes back is what this step copied.
COPY: Argv = ("cp", "--backup=numbered")
MOVE: Argv = ("mv", "--backup=numbered")
_WRITING: Fact[float] = Known(1.0, "a bound: files are written, nothing is fetched")
_NONE: Fact[int] = Known(0, "nothing is fetched")
_OF_THE_SYSTEM = ("/usr/", "/etc/", "/lib/", "/lib64/", "/var/", "/boot/", "/sys/")


def blank(at: At) -> Step:
    """A step with everything still to be said but why it is done."""
    return Step(
        id="",
        kind=StepKind.MANUAL,
        title="",
        because=at.because,
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
    kept = "".join(each if each.isascii() and (each.isalnum() or each in ".+") else " " for each in text.lower())
    return "-".join(kept.split())[:60].rstrip("-")


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


def prints(text: str, *argv: str) -> Condition:
    """A command prints a line that is exactly this, e.g. Default of nvidia-smi."""
    return succeeds("sh", "-c", 'line="$1"; shift; "$@" | grep -Fxq -- "$line"', "sh", text, *argv)


def once(what: str) -> Condition:
    """Nothing shows beforehand whether it has to be done: it is done, and the other conditions are looked at after."""
    return Condition(CheckKind.ONCE, what)


def a_person(says: str) -> Condition:
    """Only a person can tell, e.g. that a new machine runs."""
    return Condition(CheckKind.PERSON, says)


def holds(interpreter: str, requirements: tuple[str, ...]) -> Condition:
    """The environment of an interpreter holds these: torch==2.9.0, torch==*.dev*+cu132, or any torch."""
    return Condition(CheckKind.DISTRIBUTIONS, interpreter, "\n".join(requirements))


def copy_beside(path: str, at: At) -> str:
    """A name for the copy of a file, e.g. uv.lock.before-firstlight, or uv.lock.before-firstlight-2 where that is."""
    names = (f"{path}{_SAVED}{f'-{number}' if number > 1 else ''}" for number in count(1))
    return next(name for name in names if name not in at.extras.taken)


def as_root(platform: Platform, *argv: str) -> Argv:
    """The command as this user has to run it: through sudo unless root."""
    return argv if platform.is_root or not platform.has_sudo else ("sudo", *argv)


def started_with(at: At, *more: str, compiler: str = "") -> Argv:
    """`env` with what the chain has set for builds, CUDA_HOME and the like; () where there is nothing to set.

    compiler: a variable that names nvcc itself; CMake looks at CUDACXX and at PATH, not at CUDA_HOME.
    """
    found = {each.name: each.value for each in at.for_builds}
    if compiler and "CUDA_HOME" in found:
        found.setdefault(compiler, f"{found['CUDA_HOME']}/bin/nvcc")
    words = (*(f"{name}={value}" for name, value in found.items()), *more)
    return ("env", *words) if words else ()


def is_of_the_system(path: str) -> bool:
    """Whether only root writes there, e.g. /usr/lib; not ~ and not /opt, which may be the user's."""
    return path.startswith(_OF_THE_SYSTEM)


def home_of(at: At) -> str:
    return at.extras.home_for(at.facts)


def state_of(at: At) -> str:
    return at.extras.state_for(at.facts)


def expanded(folder: str, at: At) -> str:
    """A folder as programs take it: ~ is the home folder."""
    return f"{home_of(at)}/{folder[2:]}" if folder.startswith("~/") else folder


def new_environment_of(at: At) -> str:
    """Where an environment of our own is made, e.g. /root/firstlight-venv."""
    return f"{home_of(at)}/firstlight-venv"


def interpreter_of(environment: PythonEnvironment) -> str:
    found = environment.interpreter
    return found.value if isinstance(found, Known) else f"{environment.prefix}/bin/python3"


def python_of(at: At) -> str:
    """The Python that packages are installed for: of the environment to change, else of the new one."""
    environment = environment_to_change(at.facts)
    return f"{new_environment_of(at)}/bin/python" if environment is None else expanded(interpreter_of(environment), at)


def environment_to_change(facts: Facts) -> PythonEnvironment | None:
    """The judged environment where packages may be installed into it; None: a new one is made.

    Not into a tool's own environment, not into one that its distribution manages (PEP 668) or that is not writable.
    """
    environment = facts.environment
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


def split_requirement(text: str) -> tuple[str, str]:
    """('torch', '2.9.0+cu128') of torch==2.9.0+cu128, as a project file writes it; no version where it is no pin."""
    match = re.fullmatch(r"([A-Za-z0-9][\w.-]*?)(?:\[[\w,.-]+\])?==([^\s,*;]+)", text.strip())
    return (normal(match[1]), match[2]) if match else (normal(re.split(r"[\s\[<>=!~;]", text.strip())[0]), "")
