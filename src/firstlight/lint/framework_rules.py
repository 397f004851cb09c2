"""Rules about JAX, TensorFlow, ONNX Runtime and CuPy: the CUDA each is built for, and who brings its libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.lint.driver_rules import compat_inside
from firstlight.lint.framework_libraries import ANY_CUDNN, Libraries, libraries_of, torch_cudnn
from firstlight.lint.frameworks import SERVERS, Framework, bounds_of, cuda_of, frameworks, has_extra, named_for_gpu
from firstlight.lint.host import compat_serves, floor_of, gpu_words, is_board, machine_words, runs_major, wheels_for
from firstlight.lint.images import KNOWS_BLACKWELL, Flavour
from firstlight.lint.meant import for_cpu_alone, gpu_is_meant
from firstlight.lint.model import Target
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.torch_answers import cuda_image
from firstlight.lint.torches import fails, torches
from firstlight.lint.written import ask
from firstlight.tables.gpu_rows import Runs
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion
from firstlight.ways.kinds import InstallWheels, Package, Why
from firstlight.ways.way import Chain, chain

_JAX_OLDEST = {12: ComputeCapability(5, 2), 13: ComputeCapability(7, 5)}  # docs.jax.dev, installation
# "SGLang only supports sm75 and above": its model_runner.py at v0.4.0, v0.4.5, v0.5.2 and v0.5.10.
_SGLANG_OLDEST = ComputeCapability(7, 5)
_BLACKWELL = ComputeCapability(12, 0)  # the newest that CUDA 12.8 makes code for


def framework_needs_newer_driver(target: Target, question: Question) -> Iterator[SeenAt]:
    """jax[cuda13] on driver 570: the plugin is for CUDA 13."""
    for each in frameworks(target, question):
        if not each.major or runs_major(question, each.major) is not False:
            continue
        inside = next((one for one in compat_inside(target) if one.cuda.major == each.major), None)
        if inside is not None and compat_serves(question, inside.cuda) and not _without_code(each, question):
            continue
        floor = floor_of(question, each.major)
        saw = f"{each.shown} is built for CUDA {each.major}, which needs driver {floor}; {machine_words(question)}"
        yield SeenAt(each.place, saw, _of_major(each, question))


def _of_major(each: Framework, question: Question) -> tuple[Chain, ...]:
    """The same framework for a CUDA that the driver runs."""
    runs = [major for major in (13, 12, 11) if runs_major(question, major)]
    if each.project == "jax" and 12 in runs:
        return (_jax_12(each, question),)
    if match := re.fullmatch(r"cupy-cuda\d+x", each.project):
        return tuple(chain(InstallWheels((Package(f"cupy-cuda{major}x"),))) for major in runs[:1] if match)
    rows = [row for row in question.tables.framework_builds if row.project == each.project and row.major in runs]
    if rows:
        package = Package(each.project, extras=each.extras, bounds=bounds_of(rows[-1]))
        title = f"take a release for CUDA {rows[-1].major}: {package.requirement}"
        return (chain(InstallWheels((package,)), title=title),)
    return (ask("get a newer driver on that machine", Why.HOST),)


def _jax_12(each: Framework, question: Question) -> Chain:
    package = _jax_by_extra(each, question, ("cuda12",))
    return chain(InstallWheels((package,)), title=f"take the plugin for CUDA 12: {package.requirement}")


def _jax_by_extra(each: Framework, question: Question, extras: tuple[str, ...]) -> Package:
    """JAX as it is asked for with the first of these extras that it has; a later one where it has none of them."""
    rows = [row for extra in extras for row in question.tables.framework_extras if row.extra == extra]
    for row in rows:
        if has_extra(row, each.spec):
            return Package("jax", extras=(row.extra,), bounds=each.spec)
    return Package("jax", extras=(rows[-1].extra,), bounds=f">={rows[-1].first}")


def framework_without_cuda(target: Target, question: Question) -> Iterator[SeenAt]:
    """onnxruntime in place of onnxruntime-gpu, and CUDAExecutionProvider in the program."""
    here, meant = frameworks(target, question), gpu_is_meant(target)
    if not gpus_of(question) or for_cpu_alone(target) or (target.service is not None and not meant):
        return  # a service that asks for no GPU is for the CPU, and so is what says so of itself
    for each in here:
        severity = Severity.BLOCKS if meant or named_for_gpu(each) else Severity.DEGRADES
        if each.major == 0 and not _beside_a_gpu_build(each, here) and not _chosen_for_cpu(each, severity):
            saw = f"{each.shown} has no CUDA on {question.facts.place.arch}"
            saw += f": {each.lacks}" if each.lacks else ""
            yield SeenAt(each.place, saw, _with_cuda(each, question), severity=severity)
        elif each.project == "tensorflow" and not each.brings_libraries and not _may_have_libraries(target, question):
            other = f"{target.image.name} has none" if target.image.name else "nothing else brings them"
            saw = f"{each.shown} comes without CUDA's libraries, and {other}"
            yield SeenAt(each.place, saw, _with_cuda(each, question), severity=severity)


def _may_have_libraries(target: Target, question: Question) -> bool:
    """Whether something brings CUDA's libraries, or the image may: tensorflow/tensorflow:latest-gpu has them."""
    image = target.image
    for_cpu = image.repository == "tensorflow/tensorflow" and not image.asks_for_gpus
    untold = bool(image.name) and image.flavour is Flavour.UNKNOWN and not for_cpu
    return untold or bool(libraries_of(target, question))


def _chosen_for_cpu(each: Framework, severity: Severity) -> bool:
    """Whether the name itself says CPU, and nothing in the file speaks of a GPU."""
    return severity is not Severity.BLOCKS and ("cpu" in each.extras or each.project.endswith("-cpu"))


def _beside_a_gpu_build(each: Framework, here: tuple[Framework, ...]) -> bool:
    return any(one.major and one.project.startswith(each.project) and one != each for one in here)


def _with_cuda(each: Framework, question: Question) -> tuple[Chain, ...]:
    arch = question.facts.place.arch
    if is_board(question):
        return (ask("take NVIDIA's build for Jetson", Why.PROGRAM),)
    if each.project == "jax":
        fitting = ("cuda13", "cuda12") if runs_major(question, 13) else ("cuda12",)
        package = _jax_by_extra(each, question, fitting)
        return (chain(InstallWheels((package,)), title=f"name the plugin: {package.requirement}"),)
    if each.project == "onnxruntime" and (with_libraries := _onnxruntime(question)):
        return with_libraries
    if arch == "x86_64" and each.project == "tensorflow":
        package = Package("tensorflow", extras=("and-cuda",), bounds=each.spec)
        return (chain(InstallWheels((package,)), title="name the extra: tensorflow[and-cuda]"),)
    return (ask("take NVIDIA's image of it, nvcr.io/nvidia/tensorflow", Why.PROGRAM),)


def _onnxruntime(question: Question) -> tuple[Chain, ...]:
    """onnxruntime-gpu for this driver with the extras that bring its libraries; () where there is none."""
    rows = [row for row in question.tables.framework_builds if row.project == "onnxruntime-gpu" and row.brought_by]
    fitting = [row for row in rows if runs_major(question, row.major) and question.facts.place.arch in row.machines]
    if not fitting:
        return ()
    first = max(fitting[-1].first, "1.22")  # the first whose METADATA was seen to have these extras
    bounds = f">={first}" + (f",<{fitting[-1].before}" if fitting[-1].before else "")
    package = Package("onnxruntime-gpu", extras=("cuda", "cudnn"), bounds=bounds)
    return (chain(InstallWheels((package,)), title=f"take {package.requirement}, which brings its libraries"),)


def framework_has_no_code_for_gpu(target: Target, question: Question) -> Iterator[SeenAt]:
    """tensorflow 2.15 is compiled by CUDA 12.2, which does not know an RTX 5090."""
    for each in frameworks(target, question):
        if each.major and (why := _without_code(each, question)):
            saw = f"{each.shown} {why}, and this is {gpu_words(question)}"
            if _too_old_for_sglang(each, question):
                error = "RuntimeError: SGLang only supports sm75 and above."
                yield SeenAt(each.place, saw, _newer(each, question), "It asks for the GPU's number and stops.", error)
            else:
                yield SeenAt(each.place, saw, _newer(each, question))


def _too_old_for_sglang(each: Framework, question: Question) -> bool:
    return each.project == "sglang" and any(gpu.capability < _SGLANG_OLDEST for gpu in gpus_of(question))


def _without_code(each: Framework, question: Question) -> str:
    """Why a framework has no code for the GPUs here; '' where it has, or where that is not known."""
    gpus = gpus_of(question)
    if is_board(question):
        compiled = each.project in ("jax", "tensorflow", "onnxruntime-gpu", "vllm", "sglang", "tgi")
        return "has no code for Jetson's GPUs: its wheels for aarch64 are for servers" if compiled else ""
    if each.project == "jax" and not each.cuda:
        oldest = _JAX_OLDEST.get(each.major)
        old = oldest is not None and any(gpu.capability < oldest for gpu in gpus)
        return f"has code from {oldest} on" if old else ""
    if _too_old_for_sglang(each, question):
        return f"starts on GPUs from {_SGLANG_OLDEST} on"
    if each.torch is not None and (codes := _codes_of(each.torch, each.cuda, question)):
        cuda = CudaVersion.parse(each.cuda)
        ran = (question.tables.any_runs_on(codes, gpu.capability, torch_cuda=cuda) for gpu in gpus)
        names = " ".join(code.sm for code in codes)
        return f"has a torch of CUDA {each.cuda} with code for {names}" if Runs.NO in ran else ""
    row = question.tables.targets(CudaVersion.parse(each.cuda)) if each.cuda else None
    if row is None:
        return ""
    newest = max(ComputeCapability.parse(target) for target in row.targets)
    oldest = min(ComputeCapability.parse(target) for target in row.targets)
    if any(gpu.capability < oldest for gpu in gpus):
        return f"is compiled by CUDA {each.cuda}, which makes code from {oldest} on"
    beyond = [gpu for gpu in gpus if gpu.capability.major > newest.major]
    return f"is compiled by CUDA {each.cuda}, which makes code up to {newest}" if beyond else ""


def _codes_of(torch: TorchVersion, cuda: str, question: Question) -> tuple[ComputeCapability, ...]:
    """The capabilities that the torch in a server's image has code for; () where the tables do not know."""
    row = question.tables.variant_targets(torch, CudaVersion.parse(cuda), machine=question.facts.place.arch)
    return () if row is None else row.compiled_for


def _newer(each: Framework, question: Question) -> tuple[Chain, ...]:
    if each.project == "jax" and each.major == 13 and not is_board(question):
        return (_jax_12(each, question),)
    if _too_old_for_sglang(each, question):
        return (ask("run another server on this GPU, e.g. an image of vLLM's that has code for it", Why.PROGRAM),)
    of_image = [repository for repository, name in SERVERS.items() if name.lower() == each.project]
    for row in question.tables.framework_builds:
        if row.project in of_image and not _without_code(replace(each, cuda=row.cuda), question):
            return (ask(f"take {SERVERS[row.project]} {row.first} or later"),)
    if is_board(question):
        return (ask("take NVIDIA's build for Jetson", Why.PROGRAM),)
    for row in question.tables.framework_builds:
        known = cuda_of(row) and question.tables.targets(CudaVersion.parse(row.cuda)) is not None
        if row.project == each.project and known and not _without_code(replace(each, cuda=row.cuda), question):
            package = Package(each.project, extras=each.extras, bounds=bounds_of(row))
            return (chain(InstallWheels((package,)), title=f"take a newer one: {package.requirement}"),)
    if each.project == "tensorflow" and not any(gpu.capability > _BLACKWELL for gpu in gpus_of(question)):
        year, month = KNOWS_BLACKWELL
        return (ask(f"take NVIDIA's image of it, nvcr.io/nvidia/tensorflow, {year}.{month:02d} or later", Why.PROGRAM),)
    return (ask(f"take a {each.project} that is built for this GPU, or build it for it", Why.PROGRAM),)


def framework_libraries_differ(target: Target, question: Question) -> Iterator[SeenAt]:
    """onnxruntime-gpu 1.18 wants CUDA 11 and cuDNN 8, and the image has CUDA 12."""
    have, named = libraries_of(target, question), bool(target.image.name)
    if named and target.image.flavour is Flavour.UNKNOWN:
        return
    if not have and not named:
        have = tuple(_advised(target, question))  # a list of packages: what else the machine has is not known
        if not have:
            return
    for each in frameworks(target, question):
        if not each.major or each.brings_libraries or any(_serves(one, each) for one in have):
            continue
        if is_board(question) and _without_code(each, question):
            continue  # no library makes a server's build run there
        wants = f"CUDA {each.major}" + (f" and cuDNN {each.cudnn}" if each.cudnn else "")
        if have:
            saw = f"{each.shown} wants {wants}; {have[0].where} brings {have[0].shown}"
            yield SeenAt(each.place, saw, _beside_the_torch(each, have[0], target, question), error=_not_found(each))
        elif each.project != "tensorflow":  # of that framework-without-cuda speaks
            saw = f"{each.shown} wants the libraries of {wants}, and nothing in the image brings them"
            yield SeenAt(each.place, saw, _libraries_for(each, None, question), error=_not_found(each))


def _beside_the_torch(each: Framework, have: Libraries, target: Target, question: Question) -> tuple[Chain, ...]:
    """What goes with the libraries that are there, or with those of the torch that another finding puts there."""
    if (image := _image_for(each, have, target, question)) is not None:
        return (image,)
    torch = torches(target, question).last
    if torch is None or torch.install is None or not fails(torch, question) or have.where != torch.shown:
        return _libraries_for(each, have, question)
    there = next(_advised(target, question), None)
    if there is None:
        return _libraries_for(each, have, question)
    if _serves(there, each):
        title = f"keep it: it goes with {there.where}, which is to be installed in place of {torch.shown}"
        return (ask("keep it, and install the other torch", Why.PROGRAM, title=title),)
    return tuple(_going_with(answer, there.where) for answer in _libraries_for(each, there, question))


def _advised(target: Target, question: Question) -> Iterator[Libraries]:
    """What the torch brings that another finding puts in the place of one that does not work there."""
    torch = torches(target, question).last
    if torch is None or torch.install is None or not fails(torch, question):
        return
    for wheel in wheels_for(question, torch.version, torch.python)[:1]:
        yield Libraries(wheel.cuda.major, torch_cudnn(wheel.torch.public), f"torch {wheel.torch.public}")


def _image_for(each: Framework, have: Libraries, target: Target, question: Question) -> Chain | None:
    """An image of the framework's own CUDA, where nothing of the image's would run there; None where it does."""
    if have.where != target.image.name or target.image.cuda is None:
        return None
    old = runs_major(question, have.major) is False and compat_serves(question, target.image.cuda) is not True
    if not old and not _without_code(replace(each, cuda=str(target.image.cuda.release)), question):
        return None
    image = cuda_image(target.image, question, major=each.major)
    return None if image is None else replace(image, title=f"keep it, and take an image of CUDA {each.major}")


def _going_with(answer: Chain, torch: str) -> Chain:
    """The answer with the torch that it is for, since another finding brings that one."""
    named = [way.packages[0].requirement for way in answer.ways if isinstance(way, InstallWheels)]
    return replace(answer, title=f"take {named[0]}, which goes with {torch}, the one to install") if named else answer


def _not_found(each: Framework) -> str:
    """What the loader says, of the library that the framework asks for first: CuPy's compiler, cuBLAS of the others."""
    nvrtc = {11: "11.2"}.get(each.major, str(each.major))  # the one whose name has a minor
    name = f"libnvrtc.so.{nvrtc}" if each.project.startswith("cupy") else f"libcublasLt.so.{each.major}"
    return f"{name}: cannot open shared object file: No such file or directory"


def _serves(brought: Libraries, each: Framework) -> bool:
    return brought.major == each.major and (not each.cudnn or brought.cudnn in (each.cudnn, ANY_CUDNN))


def _libraries_for(each: Framework, have: Libraries | None, question: Question) -> tuple[Chain, ...]:
    """The framework of the CUDA that is there, or one that brings its own, or another image."""
    if re.fullmatch(r"cupy-cuda\d+x", each.project):
        other = have is not None and have.major != each.major
        package = Package(f"cupy-cuda{have.major}x") if have and other else Package(each.project, extras=("ctk",))
        return (chain(InstallWheels((package,)), title=f"take {package.requirement}"),)
    rows = [row for row in question.tables.framework_builds if row.project == each.project]
    fitting = [row for row in rows if have and row.major == have.major and row.cudnn in (0, have.cudnn)]
    fitting = [row for row in fitting if not _without_code(replace(each, cuda=cuda_of(row)), question)]
    image = ask(f"take an image of CUDA {each.major} with cuDNN {each.cudnn or 9}")
    if fitting and runs_major(question, fitting[-1].major):
        package = Package(each.project, bounds=bounds_of(fitting[-1]))
        return chain(InstallWheels((package,)), title=f"take {package.requirement}, which is built for these"), image
    return (*_onnxruntime(question), image) if each.project == "onnxruntime-gpu" else (image,)


FRAMEWORK_LINT_RULES = (
    LintRule(
        "framework-needs-newer-driver",
        framework_needs_newer_driver,
        Severity.BLOCKS,
        "a framework is built for a CUDA that the driver does not run",
        "The driver comes from the host; nothing in the image can make it newer. It computes on the CPU, or stops.",
        "CUDA driver version is insufficient for CUDA runtime version",
        "docs.nvidia.com/deploy/cuda-compatibility",
    ),
    LintRule(
        "framework-without-cuda",
        framework_without_cuda,
        Severity.BLOCKS,
        "a framework is built without CUDA",
        "It computes on the CPU, and says so at most in a warning.",
        "",
        "docs.jax.dev/en/latest/installation.html, onnxruntime.ai/docs/install, tensorflow.org/install/pip",
    ),
    LintRule(
        "framework-has-no-code-for-gpu",
        framework_has_no_code_for_gpu,
        Severity.BLOCKS,
        "a framework has no code for the GPU",
        "It sees the GPU, and its first kernel fails, or is compiled for many minutes.",
        "CUDA_ERROR_NO_BINARY_FOR_GPU; CUDA_ERROR_INVALID_PTX",
        "docs.nvidia.com/cuda/cuda-compiler-driver-nvcc",
    ),
    LintRule(
        "framework-libraries-differ",
        framework_libraries_differ,
        Severity.BLOCKS,
        "a framework does not find the CUDA libraries it is built for",
        "Libraries are found by their major: libcublas.so.12 does not stand in for libcublas.so.11, nor for .so.13.",
        "cannot open shared object file: No such file or directory",
        "onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#requirements",
    ),
)
