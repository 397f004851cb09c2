"""Rules about the torch that Python finds: none, another one, its Triton, and the NVIDIA wheels below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import has_nvidia_gpu, is_wanted, shown
from firstlight.diagnosis.torch_build_rules import BUILD_OF_TORCH_RULES
from firstlight.diagnosis.torch_shadow_rules import TORCH_SHADOW_RULES
from firstlight.diagnosis.wheel_answers import TORCH_OR_ELSE_WAYS, TORCH_WAYS, torch_answers, torch_or_else, within
from firstlight.diagnosis.wheel_choice import SeenGpu, Wheel, gpus_of
from firstlight.facts.collect import Facts
from firstlight.facts.distributions import Requirement
from firstlight.facts.known import Known, Unknown
from firstlight.facts.toolkits import Part
from firstlight.facts.torch_install import TorchBuild
from firstlight.specifiers import satisfies
from firstlight.ways.kinds import InstallWheels, SetVariables, Variable
from firstlight.ways.way import Chain, chain

_TRITON = ("triton", "pytorch-triton")


def torch_not_installed(question: Question) -> Iterator[Seen]:
    """A machine with a GPU and no torch in the environment that was judged."""
    facts = question.facts
    if isinstance(facts.torch, Known) or not has_nvidia_gpu(facts):
        return
    yield Seen(saw=facts.torch.reason, answers=torch_or_else(question))


def torch_not_as_wanted(question: Question) -> Iterator[Seen]:
    """The torch that was judged is the installed one, and --want asks for others: torch<2.6 where 2.11.0 is."""
    facts = question.facts
    if isinstance(facts.torch, Unknown) or is_wanted(facts) or isinstance(facts.torch.value.version, Unknown):
        return
    version = facts.torch.value.version
    for want in question.wants:
        match = re.fullmatch(r"\s*torch\s*([<>=!~].*)", want, re.IGNORECASE)
        if match is not None and satisfies(str(version.value), match[1]) is False:
            yield Seen(
                saw=f"judged: the installed torch {shown(version)}, which does not satisfy {want.strip()}",
                answers=torch_answers(question),
            )


def triton_too_old_for_gpu(question: Question) -> Iterator[Seen]:
    """torch.compile hands its code to the ptxas inside Triton, which must know the GPU."""
    facts = question.facts
    own = next((each for each in facts.build_variables if each.name == "TRITON_PTXAS_PATH"), None)
    triton = next((each for each in facts.companions if each.name in _TRITON), None)
    if own is not None or triton is None or not _is_for_cuda(facts) or is_wanted(facts):
        return
    programs = question.tables.triton_programs(triton.version)
    newest = max((row.ptxas for row in programs), default=None)
    for gpu in {each.capability: each for each in gpus_of(question)}.values():
        if newest is not None and question.tables.triton_knows(triton.version, gpu.capability) is False:
            yield Seen(
                saw=f"{triton.name} {triton.version} ({triton.folder}) has ptxas {newest}, which does not know "
                f"{gpu.capability.sm}; {gpu.name} has compute capability {gpu.capability} ({gpu.seen_in})",
                answers=tuple(_newer_ptxas(question, gpu)),
            )


def nvidia_wheel_off_pin(question: Question) -> Iterator[Seen]:
    """torch pins the NVIDIA wheels it was tested with; another installation moved one."""
    facts = question.facts
    if isinstance(facts.torch, Unknown) or isinstance(facts.torch.value.requires, Unknown) or is_wanted(facts):
        return  # installing a torch installs what it pins
    installed = {each.name: each for each in reversed(facts.nvidia_wheels)}
    for pin in facts.torch.value.requires.value:
        wheel = installed.get(pin.name)
        if wheel is None or pin.open_marker or satisfies(wheel.version, pin.specifier) is not False:
            continue
        version = facts.torch.value.version
        asking = f"torch {version.value.public}" if isinstance(version, Known) else "torch"
        through = "" if pin.asked_by == "torch" else f" by way of {pin.asked_by}"
        yield Seen(
            saw=f"{asking} requires {pin.name}{pin.specifier}{through} ({facts.torch.value.requires.seen_in}); "
            f"installed is {wheel.version} ({wheel.folder})",
            answers=(chain(InstallWheels((within(pin.name, pin.specifier),))),),
            means=_means_of_older_cudnn(pin, wheel.version),
        )


def _means_of_older_cudnn(pin: Requirement, installed: str) -> str:
    """What torch's own check makes of a cuDNN of an earlier minor than it was built with; "": it admits this one."""
    minor = ".".join(pin.specifier.removeprefix("==").split(".")[:2])
    if not pin.name.startswith("nvidia-cudnn-") or satisfies(installed, f">={minor}") is not False:
        return ""
    return (
        f"torch refuses a cuDNN that is older than {minor}: torch.backends.cudnn.version(), and whatever else makes it "
        "look, ends with the error below. A program that never makes it look runs on the older one."
    )


def _is_for_cuda(facts: Facts) -> bool:
    """Whether torch is of a kind that hands code to Triton for NVIDIA GPUs."""
    build = facts.torch.value.build if isinstance(facts.torch, Known) else Unknown("no torch")
    return isinstance(build, Known) and build.value is TorchBuild.CUDA


def _newer_ptxas(question: Question, gpu: SeenGpu) -> Iterator[Chain]:
    """A ptxas of a toolkit that is here and knows the GPU; a torch whose Triton does."""
    facts, tables = question.facts, question.tables
    for toolkit in facts.toolkits.toolkits:
        row = tables.targets(toolkit.version.value) if isinstance(toolkit.version, Known) else None
        if row is not None and gpu.capability.sm in row.targets and Part.PTXAS in toolkit.has:
            yield chain(SetVariables((Variable("TRITON_PTXAS_PATH", f"{toolkit.path}/bin/ptxas"),)))
            break

    def knows_it(wheel: Wheel) -> bool:
        release = tables.torch_release(wheel.torch, facts.place.arch)
        pin = None if release is None else release.pin("triton")
        version = "" if pin is None else pin.version or pin.spec.removeprefix("~=")
        return bool(version) and tables.triton_knows(version, gpu.capability) is True

    yield from torch_answers(question, knows_it)


TORCH_RULES = (
    Rule(
        check=torch_not_installed,
        severity=Severity.BLOCKS,
        depth=40,
        title="torch is not installed in this Python environment.",
        fires_when="There is an NVIDIA GPU, and the environment that was judged holds no torch that can be imported.",
        looks_at=("torch", "python.selected", "gpus.devices"),
        means="There is nothing to judge above the driver yet.",
        error="ModuleNotFoundError: No module named 'torch'",
        source="pytorch.org/get-started/locally",
        ways=TORCH_OR_ELSE_WAYS,
    ),
    Rule(
        check=torch_not_as_wanted,
        severity=Severity.DEGRADES,
        depth=40,
        title="The installed torch is not one that was asked for.",
        fires_when='A torch is wanted within bounds (--want "torch<2.6"), and the installed one is outside of them.',
        looks_at=("torch.version",),
        means="All findings are about the installed torch; one within those bounds was not judged.",
        source="packaging.python.org/en/latest/specifications/version-specifiers",
        ways=TORCH_WAYS,
    ),
    *BUILD_OF_TORCH_RULES,
    Rule(
        check=triton_too_old_for_gpu,
        severity=Severity.DEGRADES,
        depth=40,
        title="The installed Triton cannot compile for this GPU.",
        fires_when="torch has CUDA, no ptxas in the installed Triton knows the GPU, and TRITON_PTXAS_PATH is not set.",
        looks_at=("companions.version", "gpus.devices.capability", "build_variables", "toolkits.toolkits"),
        means="Plain torch works; torch.compile and every Triton kernel fail.",
        error="ptxas fatal   : Value 'sm_...' is not defined for option 'gpu-name'",
        source="triton-lang/triton#8539",
        ways=(SetVariables, *TORCH_WAYS),
        for_goals=((Goal.KERNELS, Severity.BLOCKS),),
    ),
    *TORCH_SHADOW_RULES,
    Rule(
        check=nvidia_wheel_off_pin,
        severity=Severity.DEGRADES,
        depth=40,
        title="An NVIDIA library wheel does not have the version that torch requires.",
        fires_when="A wheel that torch's metadata pins is installed in a version outside the pin.",
        looks_at=("torch.requires", "nvidia_wheels"),
        needs=("torch",),
        means="It often goes well; where it does not, cuDNN, NCCL or cuBLAS fail at the first call that meets the "
        "difference.",
        error="RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (...) but found runtime "
        "version (...).",
        source="pytorch/pytorch#169092",
        ways=(InstallWheels,),
    ),
)
