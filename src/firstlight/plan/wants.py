"""What was asked for by name: the sets that hold all of it as first answers, what comes nearest, or why not."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_answers import proof_of_wheel
from firstlight.diagnosis.wheel_choice import Wheel
from firstlight.errors import BadVersion
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.plan.pins import admits
from firstlight.plan.request import Request
from firstlight.plan.sets import PackageSet
from firstlight.plan.solve import WIDEST, Clash, Solution, solve
from firstlight.plan.want import PYTHON, Want
from firstlight.versions import TorchVersion
from firstlight.ways.kinds import InstallWheels, MakeEnvironment, Manner, Package
from firstlight.ways.way import Chain, Proof, Way

_USUAL_PYTHON = "3.12"
_MOST = 3  # of the sets that hold all wants, and of those that come near


@dataclass(frozen=True, slots=True)
class Solved:
    """What could be solved with this driver and with any; `question` is of the machine as it is."""

    question: Question
    wants: tuple[Want, ...]
    here: Solution
    anywhere: Solution
    python: str = ""  # where only another Python has wheels of it: 3.12, and `here` is solved for that

    @property
    def is_impossible(self) -> bool:
        """Whether no driver would help: the wants themselves cannot be had together."""
        return not self.anywhere.sets

    @property
    def refused(self) -> tuple[Clash, ...]:
        """Wants that cannot be had together, whatever the driver."""
        return self.anywhere.clashes if self.is_impossible else ()

    @property
    def sets(self) -> tuple[PackageSet, ...]:
        """The sets to install: all wants held, with this driver; else with another one, and what comes nearest here."""
        return self.here.sets[:_MOST] or (*self.anywhere.sets[:_MOST], *self.here.nearest[:_MOST])


def solved(question: Question, request: Request) -> Solved:
    """Solve the wants: with the driver as it is, and, where that gives nothing, with any driver."""
    here = solve(question, request.wants, channel=request.channel)
    anywhere = here if here.sets else solve(question, request.wants, channel=request.channel, driver_cuda=WIDEST)
    if not anywhere.sets and not any(want.project == PYTHON for want in request.wants):
        for python in _other_pythons(question):
            there = solve(question, (*request.wants, Want(PYTHON, f"=={python}", "", "")), channel=request.channel)
            if there.sets:
                return Solved(question, request.wants, there, there, python)
    return Solved(question, request.wants, here, anywhere)


def _other_pythons(question: Question) -> tuple[str, ...]:
    """Pythons that torch has wheels for here, 3.12 first, as most packages have it; not the one of the environment."""
    rows = (row for row in question.tables.torch_releases if row.machine == question.facts.place.arch)
    known = {each for row in rows for each in row.cpython if not each.endswith("t")}
    here = {version.rpartition(".")[0] for version in _python_here(question)}
    newest_first = sorted(known - here, key=lambda each: tuple(map(int, each.split("."))), reverse=True)
    return tuple(sorted(newest_first, key=lambda each: each != _USUAL_PYTHON)) if here else ()


def answers_to_wants(answer: Solved) -> tuple[Chain, ...]:
    """The sets as first answers; of what is there already nothing is installed again."""
    found = []
    for packages in answer.sets:
        missing = tuple(pick for pick in packages.picks if not _is_here(answer.question, pick.requirement))
        early = any(not pick.version for pick in missing)
        way = InstallWheels(
            tuple(Package(pick.project, pick.requirement.partition("==")[2]) for pick in missing),
            packages.torch.index,
            Manner.EARLY if early else Manner.PLAIN,
        )
        proof = _proof(answer.question, packages)
        first = (MakeEnvironment(f"~/venv-{answer.python}", answer.python),) if answer.python else ()
        found.append(Chain((*first, way) if missing else (), proof, packages.proof_by))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was asked for, or is here, and does not hold afterwards."""

    asked: str  # torch==2.9.0
    instead: str  # it becomes 2.14.1+cu126

    @property
    def sentence(self) -> str:
        return f"{self.asked}: {self.instead}"


def left_out(wants: tuple[Want, ...], then: Question, ways: tuple[Way, ...]) -> Iterator[LeftOut]:
    """The wants that do not hold on paper afterwards, each with what is there instead."""
    open_ended = {
        each.project for way in ways if isinstance(way, InstallWheels) for each in way.packages if not each.version
    }
    early = any(isinstance(way, InstallWheels) and way.manner is Manner.EARLY for way in ways)
    for want in wants:
        if want.project == PYTHON or (want.project in open_ended and (early or not (want.specifier or want.local))):
            continue
        if want.project in open_ended:
            yield LeftOut(want.text, f"the version of the {want.project} made for this machine is not on record")
            continue
        found = installed_builds(then, want.project)
        if not found:
            yield LeftOut(want.text, "which release of it goes with the rest is not on record")
        for version, local in found:
            if not (admits(want.specifier, version) and want.local in ("", local)):
                yield LeftOut(want.text, f"it becomes {version}{f'+{local}' if local else ''}")


def what_cannot_be_had(answer: Solved) -> str:
    """Which part of the wants no driver and no library brings, in sentences; "" where all can be had."""
    if answer.is_impossible:
        clashes = " ".join(each.sentence for each in answer.refused)
        # With any driver: the driver that is here is not what keeps them apart.
        return " ".join(filter(None, (answer.anywhere.impossible, clashes, _none_near_here(answer))))
    here = tuple(_python_here(answer.question))
    for want in answer.wants:
        if want.project == PYTHON and here and not admits(_of_minor(want.specifier), here[0]):
            python = want.exact or "3.12"
            return (
                f"{want.text}: the environment has Python {here[0]}, and packages are installed into the environment "
                f"that is there. Make another (uv venv --python {python} FOLDER) and give it with --python FOLDER."
            )
    return ""


def are_installed(question: Question, wants: tuple[Want, ...]) -> bool:
    """Whether the environment that was judged holds every want, and no other copy of it."""
    for want in wants:
        if want.project == PYTHON:
            fits = [admits(_of_minor(want.specifier), version) for version in _python_here(question)]
        else:
            found = installed_builds(question, want.project)
            fits = [admits(want.specifier, version) and want.local in ("", local) for version, local in found]
        if not (fits and all(fits)):
            return False
    # The build that was judged is the wanted one; another build of the same release may be what keeps it from working.
    torch = question.facts.torch
    judged = torch.value.wheel_cuda if isinstance(torch, Known) else torch
    builds = {local for _, local in installed_builds(question, "torch")}
    return not isinstance(judged, Known) or builds <= {"", judged.value.release.tag}


def installed_builds(question: Question, project: str) -> set[tuple[str, str]]:
    """Version and build of what is installed, e.g. ('2.11.0', 'cu130'); PyPI's torch is recorded without its build."""
    environment = question.facts.environment
    found = set()
    for each in () if environment is None else environment.distributions:
        if each.name != project:
            continue
        version, _, local = each.version.partition("+")
        if project == "torch" and not local:
            row = question.tables.torch_release(version, question.facts.place.arch)
            local = row.wheel_cuda.tag if row is not None and row.wheel_cuda is not None else ""
        found.add((version, local))
    return found


def _is_here(question: Question, requirement: str) -> bool:
    """Whether a requirement is installed to the letter: in that version and that build, and once."""
    environment = question.facts.environment
    have = [] if environment is None else [f"{each.name}=={each.version}" for each in environment.distributions]
    return (
        have.count(requirement) == 1
        and sum(each.partition("==")[0] == requirement.partition("==")[0] for each in have) == 1
    )


def _none_near_here(answer: Solved) -> str:
    """That nothing near the wants runs on this machine, and what would with another driver; '' where something does."""
    if answer.here.nearest or not answer.anywhere.nearest:
        return ""
    packages = answer.anywhere.nearest[0]
    names = ", ".join(pick.requirement for pick in packages.picks)
    return (
        f"Nothing close to it is known to run on this machine; the nearest elsewhere is {names}: "
        f"{_driver_for(answer.question, packages)}."
    )


def _driver_for(question: Question, packages: PackageSet) -> str:
    """'it takes driver 580.65.06 or newer (here 540.4.0)'."""
    cuda, kernel = packages.torch.cuda, question.facts.driver.kernel_version
    floor = question.tables.oldest_driver(cuda.value) if isinstance(cuda, Known) else None
    here = f" (here {kernel.value})" if isinstance(kernel, Known) else ""
    if floor is None or (isinstance(kernel, Known) and kernel.value >= floor):
        return f"it takes another driver{here}"
    return f"it takes driver {floor} or newer{here}"


def _of_minor(specifier: str) -> str:
    """Python 3.12 is any 3.12.x: '==3.12' becomes '==3.12.*'."""
    exact = specifier.removeprefix("==")
    return f"=={exact}.*" if specifier.startswith("==") and exact.count(".") == 1 else specifier


def _python_here(question: Question) -> Iterator[str]:
    environment = question.facts.environment
    if environment is not None and isinstance(environment.python_version, Known):
        yield environment.python_version.value


def _proof(question: Question, packages: PackageSet) -> Proof:
    """As well as torch's own build is known; a package that is compiled here is a guess."""
    torch = packages.torch
    if any(pick.from_source for pick in packages.picks) or not torch.version:
        return Proof.GUESSED
    if not isinstance(torch.cuda, Known):
        return Proof.DOCUMENTED
    try:
        wheel = Wheel(TorchVersion.parse(torch.version), torch.cuda.value, torch.index)
    except BadVersion:
        return Proof.GUESSED
    return proof_of_wheel(question, wheel)
