"""Rules about the packages around torch: made for another torch or CUDA, at odds with each other, installed twice."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.companion_answers import for_this_cuda, for_this_torch, one_torch_for_all, rebuilt
from firstlight.diagnosis.copies import hiding
from firstlight.diagnosis.extension_rules import EXTENSION_RULES, linked_to_cuda
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.framework_rules import FRAMEWORK_RULES
from firstlight.diagnosis.observed import is_wanted
from firstlight.diagnosis.project_rules import PROJECT_RULES
from firstlight.diagnosis.wheel_answers import TORCH_WAYS, Fits, cuda_of_torch, installed_as, torch_answers, within
from firstlight.diagnosis.wheel_choice import wheels_that_run
from firstlight.facts.collect import Facts
from firstlight.facts.companions import Companion
from firstlight.facts.distributions import DuplicateDistribution, Requirement, find_distribution
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.facts.torch_install import TorchChannel, TorchInstall
from firstlight.specifiers import satisfies
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import InstallWheels, Package, RemoveDistributions, SetVariables, Variable
from firstlight.ways.way import Chain, Proof, Way, chain

# Debian's Python has these in /usr/lib and lets pip put newer ones in front: that is how it is meant to be.
_MEANT_TO_BE_SHADOWED = ("numpy", "setuptools")
_BITSANDBYTES = "bitsandbytes-foundation/bitsandbytes#1848"
_SPELLINGS = {"triton": ("triton", "pytorch-triton"), "pytorch-triton": ("pytorch-triton", "triton")}


def companion_wants_other_torch(question: Question) -> Iterator[Seen]:
    """vLLM 0.11.0 beside torch 2.9.0: its compiled code is for torch 2.8.0."""
    facts = question.facts
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    if torch is None or isinstance(torch.version, Unknown):
        return
    clashing = [
        (each, wanted.specifier)
        for each in facts.companions
        for wanted in each.requires
        if wanted.name == "torch" and not wanted.open_marker and not _torch_meets(torch, wanted.specifier)
    ]
    names = [companion.name for companion, _ in clashing]
    around, torch_for_all = tuple(for_this_torch(question, *names)), tuple(one_torch_for_all(question, clashing))
    changed = sum(isinstance(way, InstallWheels) and len(way.packages) for one in around for way in one.ways)
    answers = (*around, *torch_for_all) if changed == len(names) else torch_for_all or around
    for companion, specifier in clashing:
        yield Seen(
            saw=f"{companion.name} {companion.version} requires torch{specifier}; "
            f"{_here(facts)} is {torch.version.value} ({companion.folder})",
            answers=answers,
        )


def companions_disagree(question: Question) -> Iterator[Seen]:
    """One package's requirement on another is not met: torch 2.9.0 asks for Triton 3.5.0 and finds 3.4.0."""
    facts = question.facts
    if facts.environment is None:
        return
    for asking, version, wanted in _requirements(facts):
        names = _SPELLINGS.get(wanted.name, (wanted.name,))
        found = next(
            (each for name in names if (each := find_distribution(facts.environment.distributions, name))), None
        )
        if found is None or wanted.open_marker or satisfies(found.version, wanted.specifier) is not False:
            continue
        tied = wanted.name in ("torchvision", "torchaudio", "xformers")  # they change with torch alone
        yield Seen(
            saw=f"{asking} {version} requires {wanted.name}{wanted.specifier}; installed is {found.version} "
            f"({found.folder})",
            answers=() if tied else (chain(InstallWheels((within(wanted.name, wanted.specifier),))),),
        )


def duplicate_distributions(question: Question) -> Iterator[Seen]:
    """Two records of one package: pip knows one, the files may be of the other."""
    facts = question.facts
    environment = facts.environment
    for twice in environment.duplicates if environment is not None else ():
        if environment is None or min(len(twice.folders), len(twice.versions)) < 2 or _is_harmless(twice, environment):
            continue
        pairs = [f"{version} in {folder}" for version, folder in zip(twice.versions, twice.folders, strict=False)]
        yield Seen(
            saw=f"{twice.name} is installed {len(pairs)} times: {', '.join(pairs)}",
            answers=tuple(_one_is_left(question, twice)),
        )


def extension_for_other_cuda(question: Question) -> Iterator[Seen]:
    """Compiled code of one CUDA major does not load beside a torch of another."""
    facts = question.facts
    wheel_cuda = facts.torch.value.wheel_cuda if isinstance(facts.torch, Known) else Unknown("no torch")
    if isinstance(wheel_cuda, Unknown):
        return
    for each in facts.companions:
        if each.cuda_choices:
            yield from _library_for(each, wheel_cuda)
            continue
        major = each.cuda_major if isinstance(each.cuda_major, Known) else linked_to_cuda(facts, each.name)
        if isinstance(major, Unknown) or major.value == wheel_cuda.value.major:
            continue
        if _is_torch_extension(each):
            torch = torch_answers(question, _of_major(major.value))
            yield Seen(
                saw=f"{each.name} {each.version} was built for CUDA {_cuda_of(each) or major.value} "
                f"({major.seen_in}); torch was built with {wheel_cuda.value} ({wheel_cuda.seen_in})",
                answers=(*(tuple(for_this_cuda(question, each.name)) or _rebuilt_unless_tied(each, torch)), *torch),
            )


def _library_for(each: Companion, torch: Known[CudaVersion]) -> Iterator[Seen]:
    """bitsandbytes opens the library of torch's very CUDA, 13.1 for 13.1, whatever else it brings."""
    wanted = torch.value.release
    if any(choice.release == wanted for choice in each.cuda_choices):
        return
    has = ", ".join(str(choice) for choice in each.cuda_choices)
    near = [choice for choice in each.cuda_choices if choice.major == wanted.major and choice.minor < wanted.minor]
    other = tuple(Variable("BNB_CUDA_VERSION", choice.release.tag.removeprefix("cu")) for choice in near[-1:])
    yield Seen(
        saw=f"{each.name} {each.version} has libraries for CUDA {has} ({each.folder}); torch was built with "
        f"{torch.value} ({torch.seen_in})",
        answers=(
            chain(InstallWheels((Package(each.name, bounds=f">{each.version.partition('+')[0]}"),))),
            *((chain(SetVariables(other), proof=Proof.REPORTED, by=_BITSANDBYTES),) if other else ()),
        ),
        means="torch itself works; what the package does on the GPU fails, unless BNB_CUDA_VERSION names another.",
        error=f"Configured CUDA binary not found at .../libbitsandbytes_cuda{wanted.tag.removeprefix('cu')}.so",
    )


def extension_for_other_torch(question: Question) -> Iterator[Seen]:
    """A package that says which torch it was compiled against, and it is not this one."""
    facts = question.facts
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    if torch is None or isinstance(torch.version, Unknown):
        return
    minor = torch.version.value.release[:2]
    for each in facts.companions:
        if isinstance(each.built_for_torch, Unknown) or _is_told_by_pin_alone(each):
            continue
        parts = each.built_for_torch.value.partition("+")[0].split(".")[:2]
        if len(parts) < 2 or not all(part.isdecimal() for part in parts) or tuple(map(int, parts)) == minor:
            continue
        asked = each.torch_required.value if isinstance(each.torch_required, Known) else ""
        if asked and _torch_meets(torch, asked):
            continue  # its maker says that it takes this torch too: from 2.10 on there is a stable ABI
        yield Seen(
            saw=f"{each.name} {each.version} was built for torch {each.built_for_torch.value} "
            f"({each.built_for_torch.seen_in}); {_here(facts)} is {torch.version.value}",
            answers=tuple(for_this_torch(question, each.name)) or (rebuilt(each),),
            error="" if each.name == "xformers" else f"ImportError: {each.name}...so: undefined symbol: _ZN3c10...",
        )


def _rebuilt_unless_tied(each: Companion, torch: tuple[Chain, ...]) -> tuple[Chain, ...]:
    """A build here; not of a package that names one torch, whose maker built it with that torch: that one is taken."""
    tied = isinstance(each.torch_required, Known) and each.torch_required.value.startswith("==")
    return () if tied and any(not one.why_not for one in torch) else (rebuilt(each),)


def _of_major(major: int) -> Fits:
    return lambda wheel: wheel.cuda.major == major


def _here(facts: Facts) -> str:
    return "wanted" if is_wanted(facts) else "installed"


def _torch_meets(torch: TorchInstall, specifier: str) -> bool:
    """Whether the installed torch meets a requirement; True where that cannot be known.

    A build from a checkout or of NVIDIA's is 2.9.0a0 and stands for 2.9.0.
    """
    if isinstance(torch.version, Unknown):
        return True
    versions = [torch.version.value.text]
    own_builds = (TorchChannel.NVIDIA, TorchChannel.SOURCE)
    if isinstance(torch.channel, Known) and torch.channel.value in own_builds:
        versions.append(".".join(str(part) for part in torch.version.value.release))
    return any(satisfies(version, specifier) is not False for version in versions)


def _requirements(facts: Facts) -> Iterator[tuple[str, str, Requirement]]:
    """Who asks, of which version, and for what: torch for Triton, companions for each other."""
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    if (
        torch is not None
        and isinstance(torch.requires, Known)
        and isinstance(torch.version, Known)
        and not is_wanted(facts)  # installing a torch installs the Triton it pins
    ):
        for wanted in torch.requires.value:
            if wanted.name in _SPELLINGS:
                yield "torch", torch.version.value.public, wanted
    for companion in facts.companions:
        for wanted in companion.requires:
            if wanted.name != "torch":
                yield companion.name, companion.version, wanted


def _is_harmless(twice: DuplicateDistribution, environment: PythonEnvironment) -> bool:
    """Whether one hides the other as meant: a venv that sees the system's packages, Debian's numpy under pip's."""
    if len(set(twice.folders)) < len(twice.folders):
        return False  # two records in one folder: their files are mixed
    if twice.name in _MEANT_TO_BE_SHADOWED or len(set(twice.versions)) == 1:
        return True
    own = environment.kind in (EnvironmentKind.VENV, EnvironmentKind.UV_VENV)
    return own and twice.folders[0].startswith(environment.prefix)


def _one_is_left(question: Question, twice: DuplicateDistribution) -> Iterator[Chain]:
    """Of copies in several folders the one that hides the others goes; of one folder all go, and one comes back."""
    if len(set(twice.folders)) == len(twice.folders):
        yield chain(*hiding(twice.name, twice, twice.folders[-1]))
        return
    yield chain(RemoveDistributions((twice.name,), copies=len(twice.folders)), *_one_again(question, twice))


def _one_again(question: Question, twice: DuplicateDistribution) -> tuple[Way, ...]:
    """What brings one back: of torch the version whose files are there, else what fits torch."""
    torch = question.facts.torch
    if twice.name == "torch" and isinstance(torch, Known) and isinstance(torch.value.version, Known):
        same = torch.value.version.value.release, cuda_of_torch(question)
        wheels = [wheel for wheel in wheels_that_run(question) if wheel.torch.release == same[0]]
        wheels.sort(key=lambda wheel: wheel.cuda != same[1])
        for wheel in wheels[:1]:
            return tuple(way for way in installed_as(question, wheel) if isinstance(way, InstallWheels))
    fitting = next(for_this_torch(question, twice.name), None)
    first = Package(twice.name, twice.versions[0].partition("+")[0])
    return (InstallWheels((first,)),) if fitting is None else fitting.ways


def _is_torch_extension(each: Companion) -> bool:
    """Whether it runs inside torch: CuPy, JAX and TensorRT bring their own CUDA and stand beside it."""
    return isinstance(each.torch_required, Known) or isinstance(each.built_for_torch, Known)


def _is_told_by_pin_alone(each: Companion) -> bool:
    """Whether only its requirement names its torch: companion-wants-other-torch speaks for that."""
    told, required = each.built_for_torch, each.torch_required
    return isinstance(told, Known) and isinstance(required, Known) and told.seen_in == required.seen_in


def _cuda_of(each: Companion) -> str:
    if isinstance(each.built_for_cuda, Known):
        return str(each.built_for_cuda.value)
    return str(each.cuda_major.value) if isinstance(each.cuda_major, Known) else ""


COMPANION_RULES = (
    Rule(
        check=duplicate_distributions,
        severity=Severity.DEGRADES,
        depth=45,
        title="A package is installed twice in one environment.",
        fires_when="Two records of one package lie in one folder, or a torch in one folder hides that of another.",
        looks_at=("python.environments.duplicates",),
        means="What pip shows and what Python imports may be two versions; an upgrade removes only one of them.",
        error="RuntimeError: operator ...::... does not exist",
        source="pytorch/vision#9174",
        ways=(RemoveDistributions, InstallWheels),
    ),
    Rule(
        check=companion_wants_other_torch,
        severity=Severity.DEGRADES,
        depth=45,
        title="A package here was made for another torch version.",
        fires_when="An installed package requires a torch version that the installed one does not meet.",
        looks_at=("companions.requires", "torch.version"),
        means="torch itself works; importing or using that package crashes, because its compiled code does not fit.",
        error="ImportError: .../_C.abi3.so: undefined symbol: _ZN3c10...",
        source="vllm-project/vllm#27228",
        ways=TORCH_WAYS,
        explains=(
            "companions-disagree",
            "extension-for-other-torch",
            "extension-for-other-cuda",
            "extension-lacks-symbols",
        ),
    ),
    Rule(
        check=companions_disagree,
        severity=Severity.DEGRADES,
        depth=45,
        title="Installed packages require versions of each other that are not there.",
        fires_when="torch requires another Triton than the installed one, or a package another version of a package.",
        looks_at=("torch.requires", "companions.requires", "python.environments.distributions"),
        means="The set was never tested together; torch.compile or that package may fail in ways that name neither.",
        error="ERROR: pip's dependency resolver does not currently take into account all the packages that are "
        "installed. This behaviour is the source of the following dependency conflicts.",
        source="METADATA of the installed wheels",
        ways=(InstallWheels,),
    ),
    Rule(
        check=extension_for_other_cuda,
        severity=Severity.DEGRADES,
        depth=45,
        title="A compiled package was built for another CUDA major than torch.",
        fires_when="A package that runs inside torch names or is linked to another CUDA major than torch's.",
        looks_at=(
            "companions.cuda_major",
            "companions.built_for_cuda",
            "companions.cuda_choices",
            "extensions.files",
            "torch.wheel_cuda",
        ),
        means="torch itself works; the package does not import.",
        error="ImportError: libcudart.so...: cannot open shared object file: No such file or directory",
        source=f"Dao-AILab/flash-attention#2118, {_BITSANDBYTES}",
        ways=(*TORCH_WAYS, SetVariables),
    ),
    Rule(
        check=extension_for_other_torch,
        severity=Severity.DEGRADES,
        depth=45,
        title="A compiled package was built against another torch.",
        fires_when="A package's build note or file name names another torch minor than the installed one.",
        looks_at=("companions.built_for_torch", "companions.torch_required", "torch.version"),
        means="torch itself works; the package does not import, or leaves its fast code out.",
        error="WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:",
        source="facebookresearch/xformers#982",
        ways=(InstallWheels,),
    ),
    *EXTENSION_RULES,
    *FRAMEWORK_RULES,
    *PROJECT_RULES,
)
