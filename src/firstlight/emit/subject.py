"""What is shipped: the packages of a plan by where they come from, its compat library, for whom, and the gates."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wanted import with_wanted
from firstlight.emit.carried import carried, instead_of
from firstlight.emit.gates import CompatPart, Gates, gates_of
from firstlight.emit.packages import Part, cuda_of, packages_of, torch_of
from firstlight.emit.python_choice import default_python, numpy_beside
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.own_wheel import OwnWheel
from firstlight.plan.option import Kind, Option
from firstlight.plan.options import rank_options
from firstlight.plan.plan import Plan, plan_for
from firstlight.plan.request import Request
from firstlight.plan.want import PYTHON as PYTHON_WANT
from firstlight.plan.want import Want, parse_want
from firstlight.records import encode
from firstlight.tables import Tables
from firstlight.versions import TorchVersion
from firstlight.ways.building import installed_versions
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import WireCompat
from firstlight.ways.wheel_target import Target, target_of

__all__ = ["Asked", "BenchJob", "Choices", "CompatPart", "Part", "Subject", "subject_of"]

GLIBC = "2.28"  # torch's wheels on PyPI are manylinux_2_28 since 2.7, as the tables have it


@dataclass(frozen=True, slots=True)
class Choices:
    """What the command line says about the files themselves; "" leaves it to the kind."""

    volume: str = "/workspace"  # the folder that outlives a restart
    base: str = ""  # --base: an image, best with @sha256:...
    image: str = ""  # --image: the image that was built
    user: str = ""  # --user: who runs in the image
    name: str = ""  # --name: of a template, a job, a container
    runtime_class: str = ""  # --runtime-class: the RuntimeClass of Kubernetes


@dataclass(frozen=True, slots=True)
class BenchJob:
    """A job that measures collectives: on how many nodes, with how many GPUs each."""

    nodes: int = 1
    gpus: int = 1


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything an emitter is given; the same subject gives the same bytes."""

    made_for: str  # H100, driver >= 550; or the machine of h100.json; or this machine
    facts: Facts
    tables: Tables
    wants: tuple[str, ...]
    goal: Goal
    plan: Plan  # its digest, which goes into every header, is over the steps and over what is shipped
    parts: tuple[Part, ...]  # torch's first
    left_out: tuple[str, ...]  # what is installed there and does not come along, each with why
    compat: tuple[CompatPart, ...]  # none or one
    target: Target  # processor, Python and C library that the wheels are for
    pythons: tuple[str, ...]  # every Python that torch has a wheel for, e.g. 3.10, 3.11; () = not known
    gates: Gates
    choices: Choices
    instead_of: str = ""  # what doctor names first there, where files for other machines take another option
    wheel: OwnWheel | None = None  # firstlight's own; None: --firstlight-from-index
    bench: BenchJob | None = None  # --bench; None: a job that proves, or runs a program

    @property
    def requirements(self) -> tuple[str, ...]:
        """Exact pins, torch first: torch==2.9.0+cu130."""
        return tuple(each for part in self.parts for each in part.requirements)

    @property
    def numpy(self) -> str:
        """What pip is asked for beside the pins, e.g. numpy<3."""
        return numpy_beside(self.gates.torch)

    @property
    def what(self) -> str:
        """What is shipped, in words: the option where it brings something, else that it is as installed there."""
        if self.plan.option.kind in (Kind.WHEEL, Kind.COMPAT):
            return self.plan.option.title
        return "the packages that are installed there"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: the plan's request, an option of the ranking ("" = the best that files can carry)."""

    request: Request
    option: str = ""
    python: str = ""  # X.Y; "" = of a want or the facts, else the newest that all has wheels for


def subject_of(facts: Facts, asked: Asked, *, made_for: str, tables: Tables, choices: Choices) -> Subject:
    """The subject of a machine and a request; what cannot be shipped raises BadInput with what can."""
    request = asked.request
    if not request.wants and "torch" not in installed_versions(facts.environment):
        request = replace(request, wants=(parse_want("torch"),))
    exact = tuple(_exactly(want) for want in request.wants if want.project == "torch" and want.exact)
    wants = tuple(want.text for want in request.wants)
    question = Question(with_wanted(facts, tables, exact), tables, request.goal, wants)
    ranked = rank_options(question, judge(question, RULES), request)
    option = carried(ranked, asked.option, wants=wants, question=question)
    extras = Extras(home="/root", state="/root/.local/state/firstlight")  # of no machine in particular
    packages = packages_of(replace(question, facts=facts), option, request.wants)
    compat = _compat(tables, option)
    torch = torch_of(packages, question)
    python = asked.python or _python(facts, request.wants)
    if not python:
        python = default_python(torch, packages.parts, machine=facts.place.arch, tables=tables)
    target = target_of(facts.place.arch, python, _glibc(facts))
    steps = plan_for(question, option, extras=extras)
    plan = replace(steps, digest=shipped_digest(steps.digest, packages.parts, compat=compat, target=target))
    gates = gates_of(
        torch, cuda_of(torch, target.machine, tables), machine=target.machine, compat=compat, tables=tables
    )
    return Subject(
        made_for=made_for,
        facts=facts,
        tables=tables,
        wants=wants,
        goal=request.goal,
        plan=plan,
        parts=packages.parts,
        left_out=packages.left_out,
        compat=compat,
        target=target,
        pythons=_pythons(torch, target, tables),
        gates=gates,
        choices=choices,
        instead_of="" if asked.option else instead_of(ranked, option),
    )


def _exactly(want: Want) -> str:
    return f"{want.project}=={want.exact}" + (f"+{want.local}" if want.local else "")


def _compat(tables: Tables, option: Option) -> tuple[CompatPart, ...]:
    """The compat library of the plan by its package; a folder of one machine is of no use to another."""
    way = next((each for each in option.ways if isinstance(each, WireCompat)), None)
    if way is None:
        return ()
    package = tables.compat_package(way.cuda)
    if package is None:
        raise BadInput(f"no package of the compat library of CUDA {way.cuda} is known; give another --option.")
    return (CompatPart(package.package, way.cuda, way.branches),)


def shipped_digest(steps: str, parts: tuple[Part, ...], *, compat: tuple[CompatPart, ...], target: Target) -> str:
    """A digest over that of the steps and over what is shipped: a machine where nothing is to do ships too."""
    import hashlib
    import json

    shipped = {"steps": steps, "parts": [encode(each) for each in parts],
               "compat": [encode(each) for each in compat], "target": encode(target)}  # fmt: skip
    text = json.dumps(shipped, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _python(facts: Facts, wants: tuple[Want, ...]) -> str:
    wanted = next((want.exact for want in wants if want.project == PYTHON_WANT), "")
    environment = facts.environment
    if not wanted and environment is not None and isinstance(environment.python_version, Known):
        wanted = environment.python_version.value
    return ".".join(wanted.split(".")[:2])


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _glibc(facts: Facts) -> str:
    """2.28, or the machine's own where that is older, as on CentOS 7."""
    own = facts.runtime.glibc
    if not isinstance(own, Known):
        return GLIBC
    return min(".".join(own.value.split(".")[:2]), GLIBC, key=_numbers)


def _pythons(torch: TorchVersion, target: Target, tables: Tables) -> tuple[str, ...]:
    release = tables.torch_release(torch.public, target.machine)
    known = () if release is None else release.cpython
    if known and target.python not in known:
        plain = ", ".join(each for each in known if each[-1].isdigit())
        raise BadInput(f"torch {torch} has no wheel for Python {target.python}; accepted: --python X.Y of {plain}.")
    return known
