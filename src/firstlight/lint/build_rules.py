"""Rules about what happens during `docker build`: compilers, targets, pip, and a GPU that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.wheel_choice import SeenGpu, gpus_of
from firstlight.lint.arch_list import named_targets
from firstlight.lint.images import Flavour
from firstlight.lint.installs import CUDA_EXTENSIONS, Install, apt_packages, installs, nvcc_of_apt
from firstlight.lint.model import EnvSet, Place, Ran, Target
from firstlight.lint.rule import LintRule, Seen
from firstlight.lint.torches import InImage, torches
from firstlight.tables.gpu_rows import Runs
from firstlight.versions import ComputeCapability, CudaVersion

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


def _stages(target: Target) -> tuple[Target, ...]:
    """The image and all that it copies from: a build happens in any of them."""
    return (target, *(each for other in target.copied_from for each in _stages(other)))


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
    return next((each.project for each in install.requirements if each.project in CUDA_EXTENSIONS), "")


def toolkit_differs_from_torch(target: Target, question: Question) -> Iterator[Seen]:
    """nvcc 12.4 of the base image and a torch for CUDA 13: extensions do not compile."""
    for stage in _stages(target):
        toolkit, found = toolkit_of(stage), torches(stage, question)
        if toolkit is None:
            continue
        for ran, _ in cuda_builds(stage):
            torch = found.when(ran, stage)
            if _differs(toolkit, torch) and torch is not None:
                saw = f"{ran.shown} compiles with the wrong nvcc: {_both(stage, toolkit, torch)}"
                yield Seen(ran.place, saw, (_same_major(toolkit, torch),))
        if found.last is not None and _differs(toolkit, found.last) and not any(cuda_builds(stage)):
            saw = _both(stage, toolkit, found.last)
            yield Seen(found.last.place, saw, (_same_major(toolkit, found.last),), severity=Severity.NOTE)


def _differs(toolkit: CudaVersion, torch: InImage | None) -> bool:
    return torch is not None and torch.cuda is not None and torch.cuda.major != toolkit.major


def _both(stage: Target, toolkit: CudaVersion, torch: InImage) -> str:
    return f"nvcc is of CUDA {toolkit} ({stage.image.name}); {torch.how} (line {torch.place.line}) is {torch.shown}"


def _same_major(toolkit: CudaVersion, torch: InImage) -> str:
    assert torch.cuda is not None
    return f"use a devel image of CUDA {torch.cuda.major}, or a torch for CUDA {toolkit.major}"


def extension_without_nvcc(target: Target, question: Question) -> Iterator[Seen]:
    """pip install flash-attn on a runtime image: there is no nvcc."""
    bare = (Flavour.NONE, Flavour.BASE, Flavour.RUNTIME)
    for stage in _stages(target):
        if stage.image.flavour not in bare or toolkit_of(stage) is not None or _brings_nvcc(stage):
            continue
        for ran, what in cuda_builds(stage):
            if what == "setup.py":
                continue  # of what kind it is cannot be seen
            yield Seen(
                ran.place,
                f"{ran.shown}: {stage.image.name} has no nvcc",
                ("build it in a devel image and COPY --from it, or install a wheel built for this torch",),
            )


def _brings_nvcc(target: Target) -> bool:
    names = ("nvidia-cuda-toolkit", "cuda-nvcc", "cuda-toolkit", "nvidia-cuda-nvcc", "cuda-compiler")
    apt = any(package.startswith(names) for package, _ in apt_packages(target))
    return apt or any(each.project.startswith(names) for install in installs(target) for each in install.requirements)


def arch_list_without_gpu(target: Target, question: Question) -> Iterator[Seen]:
    """ENV TORCH_CUDA_ARCH_LIST="8.0;8.6": what is built with it has no code for an H100."""
    for stage in _stages(target):
        toolkit = toolkit_of(stage) or CudaVersion(12, 0)
        for place, value in _arch_lists(stage):
            targets = named_targets(value)
            codes = tuple(each.code for each in targets)
            for gpu in _unserved(question, codes, toolkit):
                through_ptx = any(each.with_ptx and each.code <= gpu.capability for each in targets)
                yield Seen(
                    place,
                    f"TORCH_CUDA_ARCH_LIST={value} has no {gpu.capability} for {gpu.name}"
                    + ("; its PTX is compiled at the first start instead" if through_ptx else ""),
                    (f'TORCH_CUDA_ARCH_LIST="{value.strip()};{gpu.capability}"',),
                    severity=Severity.NOTE if through_ptx else None,
                )


def _unserved(question: Question, codes: tuple[ComputeCapability, ...], toolkit: CudaVersion) -> Iterator[SeenGpu]:
    seen: set[ComputeCapability] = set()
    for gpu in gpus_of(question):
        if gpu.capability in seen or not codes:
            continue
        seen.add(gpu.capability)
        if question.tables.any_runs_on(codes, gpu.capability, torch_cuda=toolkit) is Runs.NO:
            yield gpu


def arch_list_beyond_toolkit(target: Target, question: Question) -> Iterator[Seen]:
    """TORCH_CUDA_ARCH_LIST names 12.0 and nvcc is of CUDA 12.4, which does not know it."""
    for stage in _stages(target):
        toolkit = toolkit_of(stage)
        row = None if toolkit is None else question.tables.targets(toolkit)
        if toolkit is None or row is None:
            continue
        for place, value in _arch_lists(stage):
            unknown = [each for each in named_targets(value) if each.sm not in row.targets]
            if unknown:
                names = ", ".join(each.text for each in unknown)
                first = question.tables.toolkits_for(unknown[0].code)
                way = f"use CUDA {first[0]} to {first[-1]}, or take {names} out" if first else f"take {names} out"
                yield Seen(place, f"TORCH_CUDA_ARCH_LIST={value}: nvcc of CUDA {toolkit} does not know {names}", (way,))


def _arch_lists(target: Target) -> Iterator[tuple[Place, str]]:
    for event in target.events:
        if isinstance(event, EnvSet) and event.name in _ARCH_LISTS:
            yield event.place, event.value
        elif isinstance(event, Ran):
            exported = event.words[1:] if event.command.program == "export" else ()
            given = dict(event.command.assigned) | {word.partition("=")[0]: word.partition("=")[2] for word in exported}
            yield from ((event.place, value) for name, value in given.items() if name in _ARCH_LISTS)


def gpu_during_build(target: Target, question: Question) -> Iterator[Seen]:
    """RUN nvidia-smi, or RUN python -c "... assert torch.cuda.is_available()": a build has no GPU."""
    for stage in _stages(target):
        for ran in stage.ran:
            text = " ".join(ran.words)
            asserts = re.search(r"assert torch\.cuda\.is_available\(\)|torch\.cuda\.get_device|\.cuda\(\)|cuda:0", text)
            if ran.command.program == "nvidia-smi" or (ran.command.program.startswith("python") and asserts):
                ends = "AssertionError" if asserts and asserts[0].startswith("assert") else _NO_DRIVER
                error = "" if ran.command.program == "nvidia-smi" else ends
                do = ("prove it when the container runs: firstlight verify",)
                yield Seen(ran.place, f"RUN {ran.shown}", do, error=error)


def pip_refused_by_system(target: Target, question: Question) -> Iterator[Seen]:
    """Ubuntu 24.04 and Debian 12 on: pip of the system installs nothing without a virtual environment."""
    for stage in _stages(target):
        if not stage.image.managed_python:
            continue
        if _own_python(stage):
            continue
        for install in installs(stage):
            allowed = "--break-system-packages" in install.options or "PIP_BREAK_SYSTEM_PACKAGES" in stage.env
            if install.tool == "conda" or allowed or any("/" in word for word in install.ran.words[:1]):
                continue
            if install.tool == "uv" and "--system" not in install.options and "UV_SYSTEM_PYTHON" not in stage.env:
                continue
            yield Seen(
                install.ran.place,
                f"{install.ran.shown}: {stage.image.name} has {stage.image.system}'s Python, which apt manages",
                ("RUN python3 -m venv /opt/venv, then ENV PATH=/opt/venv/bin:$PATH",),
            )
            break  # once for a stage: the first one ends the build


def _own_python(target: Target) -> bool:
    """Whether the image gets a Python that apt does not manage, or makes an environment."""
    if any(event.name in ("VIRTUAL_ENV", "CONDA_PREFIX") for event in target.events if isinstance(event, EnvSet)):
        return True
    for ran in target.ran:
        text = " ".join(ran.words)
        if re.search(r"-m venv|virtualenv|uv venv|conda|pyenv|get-pip\.py|deadsnakes|EXTERNALLY-MANAGED", text):
            return True
    path = target.env.get("PATH")
    return path is not None and re.search(r"venv|conda", path.value) is not None


def no_python_in_image(target: Target, question: Question) -> Iterator[Seen]:
    """nvidia/cuda has no Python: pip is not found."""
    for stage in _stages(target):
        if stage.image.has_python or _own_python(stage) or stage.copied_from:
            continue
        have = any(re.match(r"python|pip", package) for package, _ in apt_packages(stage))
        for install in installs(stage):
            if have or install.tool != "pip" or _scripted(stage, install.ran):
                continue
            yield Seen(
                install.ran.place,
                f"{install.ran.shown}: {stage.image.name} has no Python, and nothing before it installs one",
                ("RUN apt-get update && apt-get install --yes python3 python3-venv python3-pip",),
            )
            break


def _scripted(target: Target, before: Ran) -> bool:
    """Whether a script or a package list that cannot be read runs before: it may bring Python."""
    earlier = target.ran[: target.ran.index(before)]
    return any(
        ran.command.program in ("sh", "bash", "curl", "wget", "xargs", "make", "add-apt-repository")
        or ran.command.program.endswith(".sh")
        or "uv" in ran.words[:1]
        for ran in earlier
    )


BUILD_LINT_RULES = (
    LintRule(
        "toolkit-differs-from-torch",
        toolkit_differs_from_torch,
        Severity.BLOCKS,
        "nvcc of the image is of another CUDA major than torch",
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
    LintRule(
        "pip-refused-by-system",
        pip_refused_by_system,
        Severity.BLOCKS,
        "the build fails: pip may not install into the system's Python",
        "Debian 12, Ubuntu 23.04 and later mark their Python as managed by apt (PEP 668).",
        "error: externally-managed-environment",
        "peps.python.org/pep-0668",
    ),
    LintRule(
        "no-python-in-image",
        no_python_in_image,
        Severity.BLOCKS,
        "the build fails: there is no Python in the image",
        "NVIDIA's CUDA images, and plain Ubuntu and Debian, come without Python and pip.",
        "/bin/sh: 1: pip: not found",
        "hub.docker.com/r/nvidia/cuda",
    ),
)
