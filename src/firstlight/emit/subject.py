"""What is shipped: the packages of a plan by where they come from, its compat library, for whom, and the gates."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wanted import with_wanted
from firstlight.emit.gates import CompatPart, Gates, gates_of
from firstlight.emit.packages import Packages, Part, cuda_of, packages_of, torch_of
from firstlight.errors import BadInput
from firstlight.facts.codec import to_json
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.plan.building import installed_versions
from firstlight.plan.compat_steps import expanded, wiring_of
from firstlight.plan.extras import Extras
from firstlight.plan.option import Kind, Option
from firstlight.plan.options import rank_options
from firstlight.plan.plan import Plan, choose, plan_for
from firstlight.plan.request import Ranked, Request
from firstlight.plan.want import PYTHON as PYTHON_WANT
from firstlight.plan.want import Want, parse_want
from firstlight.plan.wheel_target import Target, target_of
from firstlight.tables import Tables
from firstlight.versions import CudaVersion, TorchVersion

__all__ = ["Asked", "Choices", "CompatPart", "Part", "Subject", "subject_of"]

PYTHON, GLIBC = "3.12", "2.28"  # torch's wheels on PyPI are manylinux_2_28 since 2.7, as the tables have it
# What a file can bring to another machine; of repairs and removals a new machine has no need.
_CARRIED = (Kind.NOTHING, Kind.REMOVE, Kind.REPAIR, Kind.WHEEL, Kind.COMPAT, Kind.TOOLKIT)
_OTHER_MACHINES = (Kind.DRIVER, Kind.MACHINE)  # there the gates say which machines are meant


@dataclass(frozen=True, slots=True)
class Choices:
    """What the command line says about the files themselves; "" leaves it to the kind."""

    volume: str = "/workspace"  # the folder that outlives a restart
    base: str = ""  # --base: an image, best with @sha256:...
    image: str = ""  # --image: the image that a RunPod template names
    user: str = ""  # --user: who runs in the image
    name: str = ""  # --name: of a template, a job, a container


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

    @property
    def requirements(self) -> tuple[str, ...]:
        """Exact pins, torch first: torch==2.9.0+cu130."""
        return tuple(each for part in self.parts for each in part.requirements)

    @property
    def what(self) -> str:
        """What is shipped, in words: the option where it brings something, else that it is as installed there."""
        if self.plan.option.kind in (Kind.WHEEL, Kind.COMPAT, *_OTHER_MACHINES):
            return self.plan.option.title
        return "the packages that are installed there"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: the plan's request, an option of the ranking ("" = the best that files can carry)."""

    request: Request
    option: str = ""
    python: str = ""  # X.Y; "" = of a want or the facts, else 3.12


def subject_of(facts: Facts, asked: Asked, *, made_for: str, tables: Tables, choices: Choices) -> Subject:
    """The subject of a machine and a request; what cannot be shipped raises BadInput with what can."""
    request = asked.request
    if not request.wants and "torch" not in installed_versions(facts.environment):
        request = replace(request, wants=(parse_want("torch"),))
    exact = tuple(_exactly(want) for want in request.wants if want.project == "torch" and want.exact)
    wants = tuple(want.text for want in request.wants)
    question = Question(with_wanted(facts, tables, exact), tables, request.goal, wants)
    option = _carried(rank_options(question, judge(question, RULES), request), asked, wants)
    extras = Extras(home="/root", state="/root/.local/state/firstlight")  # of no machine in particular
    packages = packages_of(replace(question, facts=facts), option, request.wants)
    target = target_of(facts.place.arch, asked.python or _python(facts, request.wants) or PYTHON, _glibc(facts))
    compat = _compat(question, option, extras)
    torch = torch_of(packages, question)
    plan = _shipped(plan_for(question, option, extras=extras), packages, compat=compat, target=target)
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
    )


def _exactly(want: Want) -> str:
    return f"{want.project}=={want.exact}" + (f"+{want.local}" if want.local else "")


def _carried(ranked: Ranked, asked: Asked, wants: tuple[str, ...]) -> Option:
    """The option that is asked for, else the best that files can carry and that holds every want."""
    if asked.option or ranked.impossible:
        option = choose(ranked, asked.option)
        if option.kind not in (*_CARRIED, *_OTHER_MACHINES):
            raise BadInput(f"--option {option.id}: {option.title}. No file can carry that; leave --option out.")
        return option
    carried = [option for option in ranked.options if option.kind in _CARRIED]
    holding = [option for option in carried if set(wants) <= set(option.satisfies)]
    if not holding:
        kinds = {*_CARRIED, *_OTHER_MACHINES} - {Kind.REPAIR}  # one that leaves a want out brings a torch of no index
        others = [option for option in ranked.options if option.kind in kinds]
        why = " ".join(f"{option.title}: {option.why_not.rstrip('.')}." for option in ranked.rejected[:2])
        near = "".join(f"--option {option.id} ({option.title}), or " for option in others[:3])
        raise BadInput(
            f"{', '.join(wants) or 'torch'}: no way to it that a file can carry. {why} Accepted: {near}the machine "
            'that is meant: --for "H100, driver >= 550".'
        )
    # NVIDIA's package takes more driver branches than the archives on record, and is had where root is.
    packaged = (each for each in holding if any(piece.startswith("cuda-compat-") for piece in each.brings))
    return holding[0] if holding[0].kind is not Kind.COMPAT or not holding[0].brings else next(packaged, holding[0])


def _compat(question: Question, option: Option, extras: Extras) -> tuple[CompatPart, ...]:
    """The compat library of the plan by its package; a folder of one machine is of no use to another."""
    if option.kind is not Kind.COMPAT:
        return ()
    wiring = wiring_of(question, option, folder=expanded(question, option.folder, extras), extras=extras)
    cuda = CudaVersion.parse(wiring.cuda)
    package = question.tables.compat_package(cuda)
    if package is None:
        raise BadInput(f"no package of the compat library of CUDA {cuda} is known; give another --option.")
    return (CompatPart(package.package, cuda, wiring.branches),)


def _shipped(plan: Plan, packages: Packages, *, compat: tuple[CompatPart, ...], target: Target) -> Plan:
    """The plan with a digest over its steps and over what is shipped: a machine where nothing is to do ships too."""
    import hashlib
    import json

    shipped = {"steps": plan.digest, "parts": [to_json(each) for each in packages.parts],
               "compat": [to_json(each) for each in compat], "target": to_json(target)}  # fmt: skip
    text = json.dumps(shipped, sort_keys=True, separators=(",", ":"))
    return replace(plan, digest=hashlib.sha256(text.encode()).hexdigest())


def _python(facts: Facts, wants: tuple[Want, ...]) -> str:
    wanted = next((want.exact for want in wants if want.project == PYTHON_WANT), "")
    environment = facts.environment
    if not wanted and environment is not None and isinstance(environment.python_version, Known):
        wanted = environment.python_version.value
    return ".".join(wanted.split(".")[:2])


def _glibc(facts: Facts) -> str:
    """2.28, or the machine's own where that is older, as on CentOS 7."""
    own = facts.runtime.glibc
    if not isinstance(own, Known):
        return GLIBC
    return min(".".join(own.value.split(".")[:2]), GLIBC, key=lambda each: [int(part) for part in each.split(".")])


def _pythons(torch: TorchVersion, target: Target, tables: Tables) -> tuple[str, ...]:
    release = tables.torch_release(torch.public, target.machine)
    known = () if release is None else release.cpython
    if known and target.python not in known:
        plain = ", ".join(each for each in known if each[-1].isdigit())
        raise BadInput(f"torch {torch} has no wheel for Python {target.python}; accepted: --python X.Y of {plain}.")
    return known
