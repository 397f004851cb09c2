"""Rules about what an image or a wheel was made for: another processor, another maker's GPU, a torch of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.lint.host import install_of, is_board, wheel_for
from firstlight.lint.images import Image
from firstlight.lint.installs import AUTO, installs
from firstlight.lint.meant import gpu_is_meant
from firstlight.lint.model import EnvSet, Install, Place, ProjectAsked, Syntax, Target, Where, stages_of
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.torch_answers import beside, pytorch_image, vendors_torch, with_companions
from firstlight.lint.torches import brought_torch, python_of, replaces_vendor_torch, torches
from firstlight.lint.wheels import torch_asked
from firstlight.lint.written import ask, says
from firstlight.versions import TorchVersion
from firstlight.ways.kinds import UseImage, Why
from firstlight.ways.way import Chain, chain

_PROCESSORS = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
_SHOWN = {"x86_64": "amd64", "aarch64": "arm64", "tegra": "Jetson (arm64)"}


def image_other_architecture(target: Target, question: Question) -> Iterator[SeenAt]:
    """pytorch/pytorch is for amd64 alone: there is nothing to pull on a GH200."""
    for stage in stages_of(target):
        arch = question.facts.place.arch
        asked = _PROCESSORS.get(stage.platform.partition("/")[2].partition("/")[0], "")
        if asked and asked != arch:
            saw = f"--platform={stage.platform}: the machine is {_SHOWN.get(arch, arch)}"
            yield SeenAt(stage.place, saw, _other_platform(stage, question), error="exec format error")
        elif _elsewhere(stage.image, question):
            made_for = ", ".join(_SHOWN[each] for each in stage.image.processors)
            if arch == "aarch64" and "tegra" in stage.image.processors:
                yield _jetsons_on_server(stage, question)
                continue
            saw = f"{stage.image.name} is for {made_for} alone; the machine is {_machine(question)}"
            wanted = {"x86_64": "linux/amd64", "aarch64": "linux/arm64/v8"}.get(arch, f"linux/{arch}")
            error = f"no matching manifest for {wanted} in the manifest list entries; or: exec format error"
            yield SeenAt(stage.place, saw, _other_base(stage, question), error=error)


def _other_platform(stage: Target, question: Question) -> tuple[Chain, ...]:
    """No --platform; and where the image is for that processor alone, another image."""
    if not _elsewhere(stage.image, question):
        return (ask("leave --platform out, or name the machine's", Why.PROGRAM),)
    title = f"leave --platform out, and, as {stage.image.name} is for that processor alone, "
    return tuple(
        chain(*each.ways, title=title + says(each, Syntax.DOCKERFILE)) for each in _other_base(stage, question)
    )


def _jetsons_on_server(stage: Target, question: Question) -> SeenAt:
    """l4t on a GH200: the processor is the same, so it is pulled, and it starts."""
    saw = f"{stage.image.name} is for Jetson alone; the machine is a server, though of the same processor (arm64)"
    because = "It is pulled and starts. Its CUDA libraries and its torch are made for Jetson's own GPU and driver."
    error = "torch.cuda.is_available() is False"
    return SeenAt(stage.place, saw, _other_base(stage, question), because, error)


def _elsewhere(image: Image, question: Question) -> bool:
    if not image.processors:
        return False
    own = "tegra" if is_board(question) else question.facts.place.arch
    return own not in image.processors


def _machine(question: Question) -> str:
    arch = question.facts.place.arch
    return _SHOWN["tegra"] if is_board(question) else _SHOWN.get(arch, arch)


def _other_base(stage: Target, question: Question) -> tuple[Chain, ...]:
    """An image for this machine with what the stage's own has; without CUDA any that is published."""
    image = stage.image
    if image.is_rocm:
        return _with_cuda(stage, question)
    if is_board(question) and "pytorch" in image.name:
        return (_TORCH_FOR_JETSON,)
    if is_board(question) and gpu_is_meant(stage):
        return (_FOR_JETSON,)
    wheel = wheel_for(question, image.torch)
    if question.facts.place.arch == "x86_64" and wheel is not None:
        return (chain(UseImage(pytorch_image(wheel.torch, wheel.cuda, "runtime"))),)
    title = "take an image that is published for this processor, for example"
    if not image.is_cuda:
        return (ask("take an image that is published for this processor"),)
    return (chain(UseImage("nvcr.io/nvidia/pytorch:25.04-py3"), title=title),)


_FOR_JETSON = ask("take an image made for Jetson, e.g. nvcr.io/nvidia/l4t-jetpack", Why.PROGRAM)
_TORCH_FOR_JETSON = ask(
    "take an image made for Jetson that has torch",
    Why.PROGRAM,
    title="take an image made for Jetson that has torch: nvcr.io/nvidia/pytorch by an -igpu tag",
)


def rocm_image(target: Target, question: Question) -> Iterator[SeenAt]:
    """rocm/pytorch, or a torch of .../whl/rocm6.2: for AMD's GPUs."""
    if not gpus_of(question):
        return
    for stage in stages_of(target):
        if stage.image.is_rocm:
            yield SeenAt(stage.place, f"{stage.image.name} is for AMD's GPUs", _with_cuda(stage, question))
        torch = torches(stage, question).last
        if torch is not None and torch.variant.startswith("rocm"):
            wheel = wheel_for(question, torch.version, torch.python)
            answers = (
                (ask("take a torch of a CUDA index"),)
                if wheel is None
                else (chain(with_companions(wheel, torch, question)),)
            )
            yield SeenAt(torch.place, f"{torch.how}: torch {torch.version.public} is built for AMD's GPUs", answers)


# What else of a service, a pod or a job is AMD's, where its image is.
_ALSO_AMDS = {
    Syntax.COMPOSE: "`gpus: all` in place of /dev/kfd and /dev/dri",
    Syntax.KUBERNETES: "nvidia.com/gpu in place of amd.com/gpu",
    Syntax.SHELL: "--nv in place of --rocm",
}


def _with_cuda(stage: Target, question: Question) -> tuple[Chain, ...]:
    """The same torch, or doctor's, with CUDA; another program's own image with CUDA, which the tables do not know."""
    also = _ALSO_AMDS.get(stage.place.syntax, "")
    if is_board(question):
        title = f"{_TORCH_FOR_JETSON.title}{f', with {also}' if also else ''}"
        return (chain(*_TORCH_FOR_JETSON.ways, title=title),)
    wheel = wheel_for(question, stage.image.torch) or wheel_for(question, None)
    if "pytorch" in stage.image.name and wheel is not None and question.facts.place.arch == "x86_64":
        image = pytorch_image(wheel.torch, wheel.cuda, "runtime")
        return (chain(UseImage(image), title=f"run it in {image}, with {also}" if also else ""),)
    title = f"take the image with CUDA of the same program{f', and {also}' if also else ''}"
    return (ask("take the image with CUDA of the same program", Why.PROGRAM, title=title),)


def vendor_torch_replaced(target: Target, question: Question) -> Iterator[SeenAt]:
    """pip install -U torch on nvcr.io/nvidia/pytorch: NVIDIA's own build is gone."""
    if not target.image.vendor_torch:
        return
    for install in installs(target):
        asked = torch_asked(install)
        if asked is not None and replaces_vendor_torch(install, asked):
            by = f"it asks for torch{asked.spec}" if asked.spec or asked.address else "it upgrades torch"
            answer = vendors_torch(target.image, question, install)
        elif (brought := brought_torch(install, question)) is not None:
            by, answer = brought[2], _without_vendors(brought[0].project, question)
        else:
            continue
        yield SeenAt(
            install.ran.place,
            f"{install.ran.shown} replaces the torch of {target.image.name}: {by}",
            (answer,),
            severity=Severity.BLOCKS if _imports_vendors(target) else None,
        )


_BESIDE_TORCH = re.compile(r"\b(?:import|from)\b.*\b(?:transformer_engine|apex|torch_tensorrt)\b")


def _imports_vendors(target: Target) -> bool:
    """Whether what the image starts imports a part that NVIDIA compiled against its own torch."""
    return any(_BESIDE_TORCH.search(" ".join(ran.words)) for ran in target.starts)


def _without_vendors(project: str, question: Question) -> Chain:
    """Another base, where a project brings a torch with it: there is none to leave out."""
    if is_board(question):
        return ask("take an image for Jetson that has it inside", Why.PROGRAM)
    title = f"take a base without NVIDIA's torch: {project} brings its own"
    return ask("take a base without NVIDIA's torch", Why.PROGRAM, title=title)


def torch_backend_auto_in_build(target: Target, question: Question) -> Iterator[SeenAt]:
    """uv pip install torch --torch-backend=auto in a RUN: no driver is there, so the CPU build comes."""
    if target.where is not Where.BUILD:
        return
    for stage in stages_of(target):
        for install in installs(stage):
            if install.backend == AUTO and _brings_torch(install, question):
                asked = torch_asked(install)
                wheel = wheel_for(question, _pinned(asked), python_of(stage, install))
                brought = None if asked is not None else brought_torch(install, question)
                what = "torch" if brought is None else brought[0].project
                other = ask(f"take an image with {what} for this processor")
                answers = (other if wheel is None else chain(beside(install_of(wheel), install, wheel, question)),)
                saw = f"{install.ran.shown}: uv asks for the driver, and a build has none"
                yield SeenAt(_named_at(stage, install), saw, answers)


def _pinned(asked: ProjectAsked | None) -> TorchVersion | None:
    """The torch that an install names by its number, which is kept."""
    exact = "" if asked is None else asked.exact
    return TorchVersion.parse(exact) if exact and "*" not in exact else None


def _brings_torch(install: Install, question: Question) -> bool:
    around = {row.project for row in question.tables.companions}
    return any(each.project == "torch" or each.project in around for each in install.requirements)


def _named_at(stage: Target, install: Install) -> Place:
    """The command, which says `auto` itself or has it of a variable."""
    said = any(re.match(r"--torch-backend", word) for word in install.ran.words)
    variable = [each for each in stage.events if isinstance(each, EnvSet) and each.name == "UV_TORCH_BACKEND"]
    return install.ran.place if said or not variable else variable[-1].place


IMAGE_LINT_RULES = (
    LintRule(
        "image-other-architecture",
        image_other_architecture,
        Severity.BLOCKS,
        "the image is for another kind of machine",
        "There is nothing to pull for this machine; where another processor is imitated, no GPU is reached from it.",
        "no matching manifest; or: exec format error",
        "docs.docker.com/build/building/multi-platform",
    ),
    LintRule(
        "rocm-image",
        rocm_image,
        Severity.BLOCKS,
        "this is made for AMD's GPUs",
        "Built for ROCm, it has no code for NVIDIA's GPUs and does not ask for their driver.",
        "torch.cuda.is_available() is False; RuntimeError: No HIP GPUs are available",
        "rocm.docs.amd.com/projects/install-on-linux/en/latest/install/3rd-party/pytorch-install.html",
    ),
    LintRule(
        "vendor-torch-replaced",
        vendor_torch_replaced,
        Severity.DEGRADES,
        "NVIDIA's own torch in the image is replaced",
        "What NVIDIA built beside its torch (apex, transformer-engine, torch-tensorrt) fits that one alone.",
        "ImportError: ... undefined symbol: _ZN3c10...",
        "docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes",
    ),
    LintRule(
        "torch-backend-auto-in-build",
        torch_backend_auto_in_build,
        Severity.BLOCKS,
        "uv picks the torch without CUDA: a build has no driver",
        "--torch-backend=auto looks for the driver of the machine that runs it; without one it takes the CPU build.",
        "AssertionError: Torch not compiled with CUDA enabled",
        "docs.astral.sh/uv/guides/integration/pytorch/#automatic-backend-selection",
    ),
)
