"""Every option that could satisfy a request on one machine: chains of ways, each tried on paper, in one order. Pure."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Diagnosis, Finding, Question, Severity
from firstlight.diagnosis.observed import NO_ROOT, cuda_works, has_nvidia_gpu, may_become_root
from firstlight.errors import BadVersion
from firstlight.facts.known import Known, value_or
from firstlight.frozen import dataclass
from firstlight.plan.costs import cost_of
from firstlight.plan.naming import kind_of, name_of, title_in_words, titles_told_apart
from firstlight.plan.option import Keeps, Kind, Option
from firstlight.plan.paper import ELSEWHERE, Paper
from firstlight.plan.ranking import RULE, by_kind, order
from firstlight.plan.request import Ranked, Request
from firstlight.plan.room import with_room
from firstlight.plan.search import Found, Order, search, working
from firstlight.plan.wants import LeftOut, Solved, answers_to_wants, are_installed, left_out, solved, what_cannot_be_had
from firstlight.versions import TorchVersion
from firstlight.ways import kinds, traits
from firstlight.ways.platform import Platform, platform_of
from firstlight.ways.way import Chain, Proof, Reversible, Risk, Way
from firstlight.ways.way_back import comes_back, replaced_of_condas

__all__ = ["Ranked", "Request", "rank_options"]

MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Frame:
    """What every option of one request is made in."""

    question: Question
    diagnosis: Diagnosis
    request: Request
    platform: Platform


def rank_options(question: Question, diagnosis: Diagnosis, request: Request) -> Ranked:
    """The ranked options of one machine; without a finding and without a want there is nothing to do.

    `question` and `diagnosis` are those of doctor: with a wanted torch in the place of the installed one.
    """
    frame = Frame(question, diagnosis, request, platform_of(question.facts))
    paper = Paper(question, diagnosis)
    wanted = solved(question, request) if request.wants else None
    if wanted is None and not diagnosis.primary:
        return Ranked((_nothing(frame),), (), RULE, ())
    if wanted is not None and not diagnosis.blocked and are_installed(question, request.wants):
        return Ranked((_nothing(frame),), (), RULE, (), what_cannot_be_had(wanted))
    code = diagnosis.primary
    roots = tuple(one for each in _roots(frame, wanted) for one in with_room(question, request, each))
    found = search(paper, roots, code=code, order=_order_in(frame), asked_for=1 if wanted is not None else 0)
    options = tuple(_option(each, frame) for each in found)
    shown, refused = _sorted_out(frame, options)
    refused = (*refused, *_rejected(frame, wanted))
    return Ranked(
        _told_apart(_once(shown)[:MOST_SHOWN], frame.platform),
        tuple(sorted(_once(refused), key=by_kind)),
        RULE,
        wanted.refused if wanted is not None else (),
        what_cannot_be_had(wanted) if wanted is not None else "",
        paper.untried,
    )


def _roots(frame: Frame, wanted: Solved | None) -> tuple[Chain, ...]:
    """The first answers: what is wanted by name, else what answers the primary finding."""
    answers = working(frame.diagnosis.of(frame.diagnosis.primary))
    if wanted is None:
        return answers
    # A board that takes its own torch alone gets that one, whatever was asked for by name.
    own = tuple(each for each in answers if any(_is_own(way) for way in each.ways)) if not wanted.here.sets else ()
    return (*own, *answers_to_wants(wanted))


def _is_own(way: Way) -> bool:
    """Whether a way installs a torch of which no table knows the number."""
    torch = way.package("torch") if isinstance(way, kinds.InstallWheels) else None
    return torch is not None and not torch.version


def _order_in(frame: Frame) -> Order:
    return lambda found: order(_option(found, frame))


def _option(found: Found, frame: Frame) -> Option:
    """A chain that was tried as an option: it claims only what vanished."""
    trial, ways = found.trial, found.trial.ways
    kind = kind_of(ways)
    torch = _torch_of(ways)
    weakest = max(found.parts, key=lambda part: tuple(Proof).index(part.proof or Proof.GUESSED), default=None)
    left = _left(frame, found)
    stays = _stays(found, frame)
    return Option(
        id=f"{kind.value}:{name_of(kind, ways)}",
        kind=kind,
        title=title_in_words(ways, frame.platform, found.parts),
        ways=ways,
        because=_vanished(found, frame),
        stays=stays,
        after=tuple(each.code for each in trial.diagnosis.findings),
        brings=tuple(each.code for each in trial.brought(frame.diagnosis)),
        unsure=trial.unsure,
        proof=found.proof,
        proof_by="" if weakest is None else weakest.proof_by,
        keeps=_keeps(frame, ways),
        satisfies=tuple(each for each in _asked(frame, stays) if each not in {out.asked for out in left}),
        leaves_out=tuple(out.sentence for out in left),
        cost=cost_of(ways, frame.question.facts, frame.question.tables, frame.request),
        needs_root=any(traits.needs_root(way, frame.platform) for way in ways),
        reversible=_way_back(frame, ways),
        risk=max((_risk(way, frame) for way in ways), key=tuple(Risk).index, default=Risk.NONE),
        by_hand=_is_by_hand(ways, frame.platform),
        wanted=bool(frame.request.wants),
        only_for=_only_for(ways, frame),
        newest=() if torch is None else _release(torch),
        reasons=tuple(map(found.reason, ways)),
    )


def _risk(way: Way, frame: Frame) -> Risk:
    """What it may break; pip in the place of conda changes what another tool keeps records of."""
    return Risk.MEDIUM if replaced_of_condas(frame.question.facts, way) else traits.risk(way)


def _only_for(ways: tuple[Way, ...], frame: Frame) -> str:
    """Whom a chain reaches that sets variables in start-up files; "" where it reaches every program."""
    if any(traits.started_with(way, frame.question.facts) for way in ways):
        return "login shells alone: every other program has it from how this container is started"
    if not any(isinstance(way, kinds.SetVariables) and way.scope is kinds.Scope.LOGIN for way in ways):
        return ""
    gone = ", and it goes with this container" if frame.platform.in_container else ""
    return f"login shells alone: a service, a job or a notebook needs it where that is started{gone}"


def _is_by_hand(ways: tuple[Way, ...], platform: Platform) -> bool:
    """Whether no program here can do it: nothing of it, or the part that a person is asked to do."""
    asked = any(isinstance(way, kinds.AskPerson) and way.cures for way in ways)
    if any(isinstance(way, ELSEWHERE) for way in ways):
        return True
    return asked or (bool(ways) and all(traits.by_person(way, platform) for way in ways))


def _way_back(frame: Frame, ways: tuple[Way, ...]) -> Reversible:
    """As far back as the part that comes back least."""
    facts, tables = frame.question.facts, frame.question.tables
    return max((comes_back(way, facts, tables) for way in ways), key=tuple(Reversible).index, default=Reversible.YES)


def _vanished(found: Found, frame: Frame) -> tuple[str, ...]:
    """The codes that were found before and are not after, the primary one first; notes are not claimed."""
    gone = [
        each.code
        for each in frame.diagnosis.findings
        if each.severity is not Severity.NOTE and not found.trial.has(each.code)
    ]
    return tuple(sorted(gone, key=lambda code: code != frame.diagnosis.primary))


def _stays(found: Found, frame: Frame) -> tuple[str, ...]:
    """What blocks afterwards; where nothing blocked before, the primary finding if it is still there."""
    blocking = found.trial.blocking
    primary = frame.diagnosis.primary
    if not frame.diagnosis.blocked and primary and not frame.request.wants and found.trial.has(primary):
        return (*blocking, primary)
    return blocking


def _asked(frame: Frame, stays: tuple[str, ...]) -> tuple[str, ...]:
    """What should hold afterwards: the wants, the torch release that is installed, the goal."""
    wants = tuple(want.text for want in frame.request.wants)
    installed = _installed(frame)
    kept = (f"torch {installed.public}",) if not wants and installed is not None else ()
    goal = () if stays else (f"the goal {frame.request.goal.value}",)
    return (*wants, *kept, *goal)


def _left(frame: Frame, found: Found) -> tuple[LeftOut, ...]:
    """The wants that do not hold afterwards; without wants the torch release that another one takes the place of."""
    ways = found.trial.ways
    if frame.request.wants:
        return tuple(left_out(frame.request.wants, found.trial.question, ways))
    torch, installed = _torch_of(ways), _installed(frame)
    if torch is None or installed is None or not torch.version or _public(torch) == installed.public:
        return ()
    return (
        LeftOut(f"torch {installed.public}", f"it becomes {_public(torch)}, and packages built for it must follow"),
    )


def _keeps(frame: Frame, ways: tuple[Way, ...]) -> Keeps:
    """How much of what the user has stays; what was asked for by name is no loss."""
    if any(isinstance(way, kinds.OtherMachine | kinds.UseImage) for way in ways):
        return Keeps.NOTHING
    if _gives_up(frame, ways):
        return Keeps.FEWER
    driver = Keeps.DRIVER if _has_driver(frame) and any(_changes_driver(way) for way in ways) else Keeps.ALL
    return max(driver, _torch_kept(frame, ways), key=tuple(Keeps).index)


def _gives_up(frame: Frame, ways: tuple[Way, ...]) -> bool:
    """Whether a package is taken out that the user installed, and nothing comes in its place."""
    facts = frame.question.facts
    names = {each.name for each in facts.companions}
    records = [each.name for each in (() if facts.environment is None else facts.environment.distributions)]
    gone = {
        project
        for way in ways
        if isinstance(way, kinds.RemoveDistributions)
        for project in way.projects
        if project in names and way.copies >= records.count(project)
    }
    return bool(gone) and not any(isinstance(way, kinds.InstallWheels) for way in ways)


def _torch_kept(frame: Frame, ways: tuple[Way, ...]) -> Keeps:
    torch, installed = _torch_of(ways), _installed(frame)
    if torch is None or installed is None or frame.request.wants:
        return Keeps.RELEASE if any(isinstance(way, kinds.BuildFromSource) for way in ways) else Keeps.ALL
    release = _release(torch)
    if release == installed.release:
        return Keeps.RELEASE
    if release[:2] == installed.release[:2]:
        return Keeps.MINOR
    return Keeps.NEWER if not release or release > installed.release else Keeps.OLDER


def _has_driver(frame: Frame) -> bool:
    """Whether a driver is installed, loaded or not."""
    driver = frame.question.facts.driver
    return (
        isinstance(driver.kernel_version, Known)
        or isinstance(driver.module_file, Known)
        or bool(value_or(driver.packages, ()))
    )


def _changes_driver(way: Way) -> bool:
    return isinstance(way, kinds.InstallDriver) or (
        isinstance(way, kinds.AskPerson) and way.why in (kinds.Why.BOARD, kinds.Why.WINDOWS)
    )


def _torch_of(ways: tuple[Way, ...]) -> kinds.Package | None:
    installs = (way.package("torch") for way in ways if isinstance(way, kinds.InstallWheels))
    return next((each for each in installs if each is not None), None)


def _public(torch: kinds.Package) -> str:
    return torch.version.partition("+")[0]


def _release(torch: kinds.Package) -> tuple[int, ...]:
    try:
        return TorchVersion.parse(torch.version).release
    except BadVersion:
        return ()


def _installed(frame: Frame) -> TorchVersion | None:
    """The torch that the judged environment holds."""
    environment = frame.question.facts.environment
    found = [
        each.version for each in (() if environment is None else environment.distributions) if each.name == "torch"
    ]
    try:
        return TorchVersion.parse(found[0]) if found else None
    except BadVersion:
        return None


def _sorted_out(frame: Frame, options: tuple[Option, ...]) -> tuple[tuple[Option, ...], tuple[Option, ...]]:
    """The options that help, best first, and those that do not, with the reason."""
    helping = [each for each in options if (each.because or not each.stays) and not _outdone(each, options)]
    useless = [each for each in options if each.stays and not each.because]
    # Where nothing helps, what finds out more is all there is.
    looking = [] if helping else [each for each in useless if each.by_hand]
    helping += looking
    refused = [
        replace(each, why_not=f"tried on paper, it leaves {', '.join(each.stays)}")
        for each in useless
        if each not in looking
    ]
    # Where nothing else helps here, somebody with root has to do it.
    others = any(
        not (each.needs_root or each.stays or each.by_hand) and each.keeps is not Keeps.NOTHING for each in helping
    )
    if others and not may_become_root(frame.question.facts):
        refused += [replace(each, why_not=NO_ROOT) for each in helping if _takes_root_here(each, frame.platform)]
        helping = [each for each in helping if not _takes_root_here(each, frame.platform)]
    return tuple(sorted(helping, key=order)), tuple(refused)


def _takes_root_here(option: Option, platform: Platform) -> bool:
    """Whether root of this system is needed; whoever runs the host has the root of the host."""
    host = [way for way in option.ways if isinstance(way, kinds.AskPerson) and way.why is kinds.Why.HOST]
    return any(traits.needs_root(way, platform) for way in option.ways if way not in host)


def _outdone(option: Option, others: tuple[Option, ...]) -> bool:
    """Whether another option does less and leaves no more: a package is removed besides, for good measure."""
    return any(
        set(other.ways) < set(option.ways) and set(option.because) <= set(other.because) and other.stays == option.stays
        for other in others
        if other.ways
    )


def _rejected(frame: Frame, wanted: Solved | None) -> tuple[Option, ...]:
    """What somebody may think of and cannot work here, each with the reason."""
    answered = [each for each in frame.diagnosis.findings if each.code == frame.diagnosis.primary or _blocks(each)]
    chains = dict.fromkeys(chain for each in answered for chain in each.answers if chain.why_not)
    found = [_refused(frame, each) for each in chains]
    if wanted is not None and not wanted.here.sets:
        title = " with ".join(want.text for want in frame.request.wants)
        why = wanted.here.impossible or wanted.anywhere.impossible
        if why:
            found.append(_refused(frame, Chain((), title=title, why_not=why)))
    return tuple(found)


def _blocks(finding: Finding) -> bool:
    return finding.severity is Severity.BLOCKS and not finding.caused_by


def _refused(frame: Frame, chain: Chain) -> Option:
    kind = kind_of(chain.ways)
    name = chain.title.replace(">= ", "").replace(" ", "-")[:40] if not chain.ways else name_of(kind, chain.ways)
    blank = _nothing(frame)
    return replace(
        blank,
        id=f"not:{name}" if not chain.ways else f"{kind.value}:{name}",
        kind=Kind.REPAIR if not chain.ways else kind,
        title=chain.title or title_in_words(chain.ways, frame.platform),
        proof=Proof.DOCUMENTED,
        proof_by=chain.proof_by,
        because=(),
        stays=(),
        why_not=chain.why_not,
    )


def _nothing(frame: Frame) -> Option:
    """The one option of a machine where nothing blocks and nothing is wanted."""
    facts = frame.question.facts
    if not has_nvidia_gpu(facts):
        proof, proof_by = Proof.PROVED_HERE, "no NVIDIA GPU was found, and none was asked for"
    elif cuda_works(facts):
        proof, proof_by = Proof.PROVED_HERE, "cuInit returned 0 and listed the GPUs; no kernel was run"
    else:
        proof, proof_by = Proof.GUESSED, "nothing wrong was found; cuInit was not called"
    return Option(
        id=f"{Kind.NOTHING.value}:as-it-is",
        kind=Kind.NOTHING,
        title="leave it as it is",
        ways=(),
        because=(),
        stays=(),
        after=tuple(each.code for each in frame.diagnosis.findings),
        unsure=(),
        proof=proof,
        proof_by=proof_by,
        keeps=Keeps.ALL,
        satisfies=_asked(frame, ()),
        leaves_out=(),
        cost=cost_of((), facts, frame.question.tables, frame.request),
        needs_root=False,
        reversible=Reversible.YES,
        risk=Risk.NONE,
    )


def _once(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """Each id once; a second option of the same name is told from the first by a number."""
    seen: dict[str, int] = {}
    found = []
    for option in options:
        seen[option.id] = seen.get(option.id, 0) + 1
        number = seen[option.id]
        found.append(option if number == 1 else replace(option, id=f"{option.id}-{number}"))
    return tuple(found)


def _told_apart(options: tuple[Option, ...], platform: Platform) -> tuple[Option, ...]:
    titles = titles_told_apart(options, platform)
    return tuple(replace(option, title=title) for option, title in zip(options, titles, strict=True))
