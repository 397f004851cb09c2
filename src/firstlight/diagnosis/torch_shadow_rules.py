"""A rule about which torch Python imports: where it is not the installed one, all else that was found is of another."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from firstlight.diagnosis.copies import copies_in, versions_in
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import container, has_nvidia_gpu, is_wanted, listed
from firstlight.facts.collect import Facts
from firstlight.facts.distributions import Distribution, find_distribution
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.facts.torch_install import TorchBuild, TorchInstall
from firstlight.specifiers import satisfies
from firstlight.ways.kinds import AskPerson, RemoveDistributions, SetVariables, UnsetVariables, Variable, Why
from firstlight.ways.way import Chain, chain

_ACTIVATED = ("VIRTUAL_ENV", "CONDA_PREFIX")
_TYPED = ("python on PATH", "python3 on PATH")  # in the order in which people type it
_OF_THEIR_OWN = (EnvironmentKind.CONDA, EnvironmentKind.PIXI, EnvironmentKind.VENV, EnvironmentKind.UV_VENV)
_NO_USER_SITE = SetVariables((Variable("PYTHONNOUSERSITE", "1"),))


def torch_shadowed(question: Question) -> Iterator[Seen]:
    """Another torch is imported than the installed one: by folder, PYTHONPATH, the user's own, or another Python."""
    facts = question.facts
    if isinstance(facts.torch, Unknown):
        return
    torch = facts.torch.value
    for path in torch.shadowed_by:
        yield Seen(
            saw=f"{path} is in the current folder; `python -c` and `python -m` import it before {torch.folder}",
            answers=tuple(_out_of_the_way(facts, path)),
            severity=Severity.BLOCKS,  # it is no torch, or one without its compiled parts
        )
    installed = find_distribution(facts.environment.distributions, "torch") if facts.environment else None
    if torch.found_via == "PYTHONPATH" and installed is not None:
        yield Seen(
            saw=f"PYTHONPATH ({':'.join(facts.python.python_path)}) makes Python import {_own(facts)}from "
            f"{torch.folder} before the installed torch {installed.version} ({installed.record_path})",
            answers=_of_two(facts, torch, installed),
            means=(
                "pip shows and changes the installed one, and Python imports the other; other findings about torch "
                "are about the one that is imported."
            ),
        )
    elif not is_wanted(facts):
        yield from _by_user_site(facts)
        yield from _by_another_python(facts)


def _of_two(facts: Facts, imported: TorchInstall, installed: Distribution) -> tuple[Chain, ...]:
    """PYTHONPATH goes; where it brings the one that has CUDA, the other is what is too much.

    pip would find the one of PYTHONPATH first, and take that out.
    """
    unset = chain(UnsetVariables(("PYTHONPATH",)))
    has_cuda = isinstance(imported.build, Known) and imported.build.value is TorchBuild.CUDA
    python = None if facts.environment is None else value_or(facts.environment.interpreter, "")
    if not python or not has_cuda or not installed.version.endswith("+cpu") or not has_nvidia_gpu(facts):
        return (unset,)
    without_it = ("env", "-u", "PYTHONPATH", python, "-m", "pip", "uninstall", "torch")
    return (chain(AskPerson("take-torch-without-cuda-out", Why.DECISION, (without_it,))), unset)


def _own(facts: Facts) -> str:
    version = facts.torch.value.version if isinstance(facts.torch, Known) else Unknown("no torch")
    return f"torch {version.value} " if isinstance(version, Known) else "torch "


def _by_user_site(facts: Facts) -> Iterator[Seen]:
    """The folder of the user's own packages comes before that of an environment of conda's or of the system."""
    environment = facts.environment
    twice = next((each for each in environment.duplicates if each.name == "torch"), None) if environment else None
    if environment is None or twice is None or min(len(twice.folders), len(twice.versions)) < 2:
        return
    first, other = twice.folders[0], next((each for each in twice.folders if each != twice.folders[0]), "")
    if not other or first.startswith((f"{environment.prefix}/", "/usr/")):
        return
    theirs, behind = (versions_in(twice, folder) for folder in (first, other))
    if theirs == behind:
        return
    yield Seen(
        saw=f"torch {listed(theirs)} in {first}, this user's own packages, is imported before torch "
        f"{listed(behind)} in {other}",
        answers=_without_user_site(facts, copies_in("torch", twice, first)),
    )


def _without_user_site(facts: Facts, theirs: RemoveDistributions) -> tuple[Chain, ...]:
    """The home folder in a container is often that of the host: what others use there is left."""
    left_out = chain(_NO_USER_SITE)
    if container(facts) is not None:
        return (left_out,)
    return (chain(theirs), left_out)


def _by_another_python(facts: Facts) -> Iterator[Seen]:
    """An environment is active, and `python` on PATH is that of another one: conda's lines ran after the venv's."""
    active, started = facts.environment, _started(facts)
    if active is None or started is None or started is active:
        return
    means = next((why for why in active.found_by if why in _ACTIVATED), "")
    other = find_distribution(started.distributions, "torch")
    if not means or means != active.found_by[0] or (other is None and started.kind not in _OF_THEIR_OWN):
        return
    has = "no torch" if other is None else f"torch {other.version}"
    interpreter = value_or(started.interpreter, started.prefix)
    judged = f"{_own(facts)}of {active.prefix}"
    yield Seen(
        saw=f"{means} is {active.prefix}, but `python` is {interpreter} ({started.kind.value}), which has {has}; "
        f"judged here: {judged}",
        answers=(_its_own_python(active, started),),
        means="`python` is not the Python of the active environment: a program that it starts gets the other torch, or "
        "none.",
        error=_met_there(None if other is None else other.version),
        severity=Severity.BLOCKS if other is None or other.version.endswith("+cpu") else None,
    )


def _met_there(version: str | None) -> str:
    """What a program meets with the torch of the other Python; '' where that depends."""
    if version is None:
        return "ModuleNotFoundError: No module named 'torch'"
    return "AssertionError: Torch not compiled with CUDA enabled" if version.endswith("+cpu") else ""


def _started(facts: Facts) -> PythonEnvironment | None:
    """The environment whose Python starts when somebody types python."""
    for why in _TYPED:
        found = next((each for each in facts.python.environments if why in each.found_by), None)
        if found is not None:
            return found
    return None


def _its_own_python(active: PythonEnvironment, started: PythonEnvironment) -> Chain:
    of_conda = started.kind in (EnvironmentKind.CONDA, EnvironmentKind.PIXI)
    leave = (("conda", "deactivate"),) if of_conda else ()
    by_path = (value_or(active.interpreter, f"{active.prefix}/bin/python"), "-c", "import torch")
    return chain(AskPerson("start-meant-python", Why.PROGRAM, (*leave, by_path)))


def _out_of_the_way(facts: Facts, path: str) -> Iterator[Chain]:
    """A file torch.py is renamed; a folder is left: programs started elsewhere do not see it."""
    if path.endswith("/torch.py"):
        other = f"{path.removesuffix('torch.py')}my_torch.py"
        yield chain(AskPerson("rename-torch-file", Why.PROGRAM, (("mv", path, other),)))
        return
    above = posixpath.dirname(path.removesuffix("/torch/__init__.py"))
    yield chain(AskPerson("start-elsewhere", Why.PROGRAM, (("cd", above),)))
    version = facts.environment.python_version if facts.environment is not None else Unknown("no environment")
    if isinstance(version, Known) and satisfies(version.value, ">=3.11"):
        yield chain(AskPerson("start-with-P", Why.PROGRAM))


# What is found of a torch that is not the one meant, or not the one imported, is found of the wrong one.
_ABOUT_A_TORCH = (
    "driver-too-old-for-wheel",
    "minor-version-limits",
    "compat-unused",
    "torch-not-as-wanted",
    "no-wheel-for-python",
    "jetson-needs-own-wheel",
    "torch-cpu-only",
    "aarch64-wheel-without-cuda",
    "torch-for-other-vendor",
    "arch-not-in-wheel",
    "triton-too-old-for-gpu",
    "nvidia-wheel-off-pin",
    "duplicate-distributions",
    "companion-wants-other-torch",
    "companions-disagree",
    "extension-for-other-cuda",
    "extension-for-other-torch",
    "glibc-too-old",
    "libstdcxx-too-old",
    "missing-library",
    "two-cuda-majors",
    "cudnn-mix",
    "nvcc-major-differs",
    "nvcc-minor-differs",
)

TORCH_SHADOW_RULES: tuple[Rule, ...] = (
    Rule(
        check=torch_shadowed,
        severity=Severity.DEGRADES,
        depth=40,
        title="Python imports another torch than the installed one.",
        fires_when="The current folder, PYTHONPATH or this user's own packages hold a torch that comes before the "
        "installed one; or `python` on PATH belongs to another environment than the active one.",
        looks_at=(
            "torch.shadowed_by",
            "torch.found_via",
            "python.python_path",
            "python.environments.duplicates",
            "python.environments.found_by",
        ),
        means=(
            "From here `import torch` fails or gives another version than pip shows; other findings about torch are "
            "about the wrong one."
        ),
        error="ModuleNotFoundError: No module named 'torch._C'",
        source="pytorch/pytorch#574, cloveranon/Clover-Edition#128, pyenv/pyenv#1452; "
        "docs.python.org/3/library/sys_path_init.html",
        ways=(AskPerson, UnsetVariables, SetVariables, RemoveDistributions),
        explains=_ABOUT_A_TORCH,
    ),
)
