"""Rules about what happens during `docker build`: compilers, targets, pip, and a GPU that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.wheel_choice import SeenGpu, gpus_of
from firstlight.lint.arch_list import Asked, named_targets
from firstlight.lint.host import driver_cuda, install_of, lets_in, runs_major, wheel_for
from firstlight.lint.images import Flavour, Image
from firstlight.lint.installs import CPU, CUDA_EXTENSIONS, CUDA_SOURCES, apt_packages, installs, nvcc_of_apt
from firstlight.lint.library_path_rules import toolkit_packages
from firstlight.lint.model import EnvSet, Install, Place, ProjectAsked, Ran, Target, Where, stages_of
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.torches import InImage, torches
from firstlight.lint.written import ask
from firstlight.tables.gpu_rows import Runs
from firstlight.versions import ComputeCapability, CudaVersion
from firstlight.ways.kinds import AskPerson, Scope, SetVariables, UseImage, Variable, Why
from firstlight.ways.way import Chain, chain

_ARCH_LISTS = ("TORCH_CUDA_ARCH_LIST",)
_SETUP = ("install", "develop", "build_ext", "bdist_wheel")

_NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system"


def toolkit_of(target: Target) -> CudaVersion | None:
    """The CUDA whose nvcc the image has: 12.4 of a devel image or of cuda-toolkit-12-4; None: none is seen."""
    from_apt = nvcc_of_apt(target)
    if from_apt:
        return CudaVersion.parse(from_apt)
    image = target.image
    return image.cuda if image.flavour is Flavour.DEVEL else None


def cuda_builds(target: Target) -> Iterator[tuple[Ran, str]]:
    """The commands that compile CUDA code, with what: ('flash-attn')."""
    for install in installs(target):
        if (name := _extension(install)) and not any("cp3" in word for word in install.ran.words):
            yield install.ran, name
    for ran in target.ran:
        words = ran.words
        if ran.command.program.startswith("python") and words[1:2] == ("setup.py",) and set(words[2:]) & set(_SETUP):
            yield ran, "setup.py"


def _extension(install: Install) -> str:
    return next((each.project for each in install.requirements if _compiles(each)), "")


def _compiles(asked: ProjectAsked) -> bool:
    if asked.project in CUDA_EXTENSIONS:
        return not asked.address.endswith(".whl")
    source = re.search(r"/([\w.-]+?)(?:\.git)?(?:@|#|$)", asked.address) if asked.address.startswith("git+") else None
    return source is not None and source.group(1).lower() in CUDA_SOURCES


def toolkit_differs_from_torch(target: Target, question: Question) -> Iterator[SeenAt]:
    """nvcc 12.4 of the base image and a torch for CUDA 13: extensions do not compile."""
    for stage in stages_of(target):
        toolkit, found = toolkit_of(stage), torches(stage, question)
        if toolkit is None:
            continue
        for ran, _ in cuda_builds(stage):
            torch = found.when(ran, stage)
            if _differs(toolkit, torch) and torch is not None:
                saw = f"{ran.shown} compiles with the wrong nvcc: {_both(stage, toolkit, torch)}"
                yield SeenAt(ran.place, saw, _same_major(toolkit, torch, question))
        if found.last is not None and _differs(toolkit, found.last) and not any(cuda_builds(stage)):
            saw = _both(stage, toolkit, found.last)
            answers = _same_major(toolkit, found.last, question)
            yield SeenAt(found.last.place, saw, answers, severity=Severity.NOTE)


def _differs(toolkit: CudaVersion, torch: InImage | None) -> bool:
    return torch is not None and torch.cuda is not None and torch.cuda.major != toolkit.major


def _both(stage: Target, toolkit: CudaVersion, torch: InImage) -> str:
    return f"nvcc is of CUDA {toolkit} ({stage.image.name}); {torch.how} (line {torch.place.line}) is {torch.shown}"


def _same_major(toolkit: CudaVersion, torch: InImage, question: Question) -> tuple[Chain, ...]:
    """A devel image of torch's major, or a torch of nvcc's: the wheel that runs there, where one is known."""
    assert torch.cuda is not None
    wheel = wheel_for(question, torch.version, torch.python, cuda_major=toolkit.major)
    other = ask(f"use a torch for CUDA {toolkit.major}") if wheel is None else chain(install_of(wheel))
    if runs_major(question, torch.cuda.major) is False:
        return (other,)  # torch-needs-newer-driver says so of this torch
    return ask(f"use a devel image of CUDA {torch.cuda.major}"), other


def extension_without_nvcc(target: Target, question: Question) -> Iterator[SeenAt]:
    """pip install flash-attn on a runtime image: there is no nvcc."""
    bare = (Flavour.NONE, Flavour.BASE, Flavour.RUNTIME)
    for stage in stages_of(target):
        if stage.image.flavour not in bare or toolkit_of(stage) is not None or _brings_nvcc(stage):
            continue
        found = torches(stage, question)
        for ran, what in cuda_builds(stage):
            if what == "setup.py":
                continue  # of what kind it is cannot be seen
            met = found.when(ran, stage)
            if met is not None and met.variant == CPU and what not in CUDA_EXTENSIONS:
                continue  # beside a torch without CUDA they compile for the processor
            yield SeenAt(
                ran.place,
                f"{ran.shown}: {stage.image.name} has no nvcc",
                _where_nvcc_is(stage.image),
            )


def _where_nvcc_is(image: Image) -> tuple[Chain, ...]:
    """The devel image of the same name; and a wheel, or the build in another stage."""
    devel = re.sub(r"-(?:runtime|base)\b", "-devel", image.name)
    same = [chain(UseImage(devel))] if devel != image.name else []
    if image.cuda is not None and image.requires_cuda:  # NVIDIA's own, where apt knows its repository
        same.append(chain(toolkit_packages(image.cuda)))
    wheel = ask("install a wheel of its release page that is built for this torch", Why.PROGRAM)
    return *same, ask("build it in a devel image and COPY --from it", Why.PROGRAM), wheel


def _brings_nvcc(target: Target) -> bool:
    names = ("nvidia-cuda-toolkit", "cuda-nvcc", "cuda-toolkit", "nvidia-cuda-nvcc", "cuda-compiler")
    apt = any(package.startswith(names) for package, _ in apt_packages(target))
    return apt or any(each.project.startswith(names) for install in installs(target) for each in install.requirements)


def arch_list_without_gpu(target: Target, question: Question) -> Iterator[SeenAt]:
    """ENV TORCH_CUDA_ARCH_LIST="8.0;8.6": what is built with it has no code for an H100."""
    for stage in stages_of(target):
        known = toolkit_of(stage)
        toolkit = known or CudaVersion(12, 0)
        for place, value in arch_lists(stage):
            targets = named_targets(value)
            codes = tuple(each.code for each in targets)
            for gpu in _unserved(question, codes, toolkit):
                through_ptx = any(each.with_ptx and each.code <= gpu.capability for each in targets)
                yield SeenAt(
                    place,
                    f"TORCH_CUDA_ARCH_LIST={value} has no {gpu.capability} for {gpu.name}"
                    + ("; its PTX is compiled at the first start instead" if through_ptx else ""),
                    (_naming(gpu, value, known, question),),
                    severity=Severity.NOTE if through_ptx else None,
                )


def _naming(gpu: SeenGpu, value: str, toolkit: CudaVersion | None, question: Question) -> Chain:
    """The GPU named too; where the image's nvcc does not know it, first another toolkit."""
    row = None if toolkit is None else question.tables.targets(toolkit)
    if row is not None and gpu.capability.sm not in row.targets:
        knowing = question.tables.toolkits_for(gpu.capability)
        span = f"CUDA {knowing[0]} to {knowing[-1]}" if knowing else "a newer CUDA"
        return ask(f"use {span}, and name {gpu.capability} too")
    return chain(_arch_list(f"{value.strip()};{gpu.capability}"), title=f"name {gpu.capability} too")


def _unserved(question: Question, codes: tuple[ComputeCapability, ...], toolkit: CudaVersion) -> Iterator[SeenGpu]:
    seen: set[ComputeCapability] = set()
    for gpu in gpus_of(question):
        if gpu.capability in seen or not codes:
            continue
        seen.add(gpu.capability)
        if question.tables.any_runs_on(codes, gpu.capability, torch_cuda=toolkit) is Runs.NO:
            yield gpu


def arch_list_beyond_toolkit(target: Target, question: Question) -> Iterator[SeenAt]:
    """TORCH_CUDA_ARCH_LIST names 12.0 and nvcc is of CUDA 12.4, which does not know it."""
    for stage in stages_of(target):
        toolkit = toolkit_of(stage)
        row = None if toolkit is None else question.tables.targets(toolkit)
        if toolkit is None or row is None:
            continue
        for place, value in arch_lists(stage):
            unknown = [each for each in named_targets(value) if each.sm not in row.targets]
            if unknown:
                names = ", ".join(each.text for each in unknown)
                saw = f"TORCH_CUDA_ARCH_LIST={value}: nvcc of CUDA {toolkit} does not know {names}"
                yield SeenAt(place, saw, tuple(_known_targets(value, unknown, toolkit, question=question)))


def _known_targets(value: str, unknown: list[Asked], toolkit: CudaVersion, *, question: Question) -> Iterator[Chain]:
    """A toolkit that knows them and whose images start there, then the list without them, the GPU's own named."""
    first = tuple(
        each
        for each in question.tables.toolkits_for(unknown[0].code)
        if lets_in(question, each) or driver_cuda(question) is None
    )
    if first:
        yield ask(f"use CUDA {first[0]} to {first[-1]}" if len(first) > 1 else f"use CUDA {first[0]}")
    out = dict.fromkeys(each.text for each in unknown)
    left = dict.fromkeys(each.text for each in named_targets(value) if each.text not in out)
    codes = tuple(each.code for each in named_targets(value) if each.text in left)
    own = [gpu.capability for gpu in gpus_of(question) if not codes] or [
        gpu.capability for gpu in _unserved(question, codes, toolkit)
    ]
    row = question.tables.targets(toolkit)
    if row is None or any(each.sm not in row.targets for each in own):
        if not first:
            yield ask("name targets that it knows", title="name targets that it knows")
        return
    whole = (*left, *dict.fromkeys(str(each) for each in own))
    named = f", and name {', '.join(map(str, dict.fromkeys(own)))}" if own else ""
    if whole:
        yield chain(_arch_list(";".join(whole)), title=f"take {', '.join(out)} out{named}")


def _arch_list(value: str) -> SetVariables:
    return SetVariables((Variable("TORCH_CUDA_ARCH_LIST", value),), Scope.BUILD)


def arch_lists(target: Target) -> Iterator[tuple[Place, str]]:
    """Where TORCH_CUDA_ARCH_LIST is set, and to what."""
    for event in target.events:
        if isinstance(event, EnvSet) and event.name in _ARCH_LISTS:
            yield event.place, event.value
        elif isinstance(event, Ran):
            exported = event.words[1:] if event.command.program == "export" else ()
            given = dict(event.command.assigned) | {word.partition("=")[0]: word.partition("=")[2] for word in exported}
            yield from ((event.place, value) for name, value in given.items() if name in _ARCH_LISTS)


_GPU_USE = re.compile(
    r"assert torch\.cuda\.is_available\(\)|torch\.cuda\.(?:get_device|current_device|synchronize|mem_get)|\.cuda\(\)"
    r"|cuda:0|(?:device\s*=\s*|\.to\(\s*|torch\.device\(\s*)['\"]cuda['\"]|jax\.devices\(['\"](?:gpu|cuda)"
)


def gpu_during_build(target: Target, question: Question) -> Iterator[SeenAt]:
    """RUN nvidia-smi, or RUN python -c "... assert torch.cuda.is_available()": a build has no GPU."""
    for stage in stages_of(target):
        for ran in stage.ran:
            if target.where is not Where.BUILD or ran.command.ends == "||":
                continue
            inside = _GPU_USE.search(ran.command.stdin)
            asserts = _GPU_USE.search(" ".join(ran.words)) or inside
            if ran.command.program == "nvidia-smi" or (ran.command.program.startswith("python") and asserts):
                ends = "AssertionError" if asserts and asserts[0].startswith("assert") else _NO_DRIVER
                error = "" if ran.command.program == "nvidia-smi" else ends
                prove = AskPerson("prove-when-it-runs", Why.PROGRAM, (("firstlight", "verify"),))
                read = "" if inside is None else f", which reads `{_line_of(inside)}`"
                yield SeenAt(ran.place, f"RUN {ran.shown}{read}", (chain(prove),), error=error)


def _line_of(match: re.Match[str]) -> str:
    """The whole line of a heredoc that something was found in."""
    start, end = match.string.rfind("\n", 0, match.start()) + 1, match.string.find("\n", match.end())
    return match.string[start : end if end >= 0 else None].strip()[:90]


BUILD_LINT_RULES = (
    LintRule(
        "toolkit-differs-from-torch",
        toolkit_differs_from_torch,
        Severity.BLOCKS,
        "nvcc of the image has another CUDA major than torch",
        "torch refuses to compile extensions with an nvcc of another major.",
        "RuntimeError: The detected CUDA version (...) mismatches the version that was used to compile PyTorch (...)",
        "github.com/pytorch/pytorch, torch/utils/cpp_extension.py",
    ),
    LintRule(
        "extension-without-nvcc",
        extension_without_nvcc,
        Severity.DEGRADES,
        "a CUDA extension is installed where no compiler is",
        "Where no wheel fits this torch exactly, it is compiled, and that needs nvcc.",
        "OSError: CUDA_HOME environment variable is not set",
        "github.com/Dao-AILab/flash-attention#installation-and-features",
    ),
    LintRule(
        "arch-list-without-gpu",
        arch_list_without_gpu,
        Severity.BLOCKS,
        "TORCH_CUDA_ARCH_LIST leaves out the GPU",
        "What is compiled with it has no code for this GPU.",
        "CUDA error: no kernel image is available for execution on the device",
        "docs.pytorch.org/docs/stable/cpp_extension.html",
    ),
    LintRule(
        "arch-list-beyond-toolkit",
        arch_list_beyond_toolkit,
        Severity.BLOCKS,
        "TORCH_CUDA_ARCH_LIST names a GPU that nvcc does not know",
        "Every file stops at the first target that this nvcc cannot compile for.",
        "nvcc fatal : Unsupported gpu architecture 'compute_...'",
        "docs.nvidia.com/cuda/cuda-compiler-driver-nvcc",
    ),
    LintRule(
        "gpu-during-build",
        gpu_during_build,
        Severity.BLOCKS,
        "the build asks for a GPU, and a build has none",
        "`docker build` gives no devices to RUN, and the driver's libraries and nvidia-smi are not mounted.",
        "nvidia-smi: not found",
        "github.com/moby/buildkit/issues/1436",
    ),
)
