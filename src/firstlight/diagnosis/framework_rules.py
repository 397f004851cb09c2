"""Rules about JAX, TensorFlow, ONNX Runtime and CuPy beside torch: libraries they share, files they fight over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.extension_rules import taken_out
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.leftover_wheels import asked_by_torch, is_of_torch, left_over
from firstlight.diagnosis.library_providers import cuda_major
from firstlight.diagnosis.observed import has_nvidia_gpu, is_wanted, listed
from firstlight.diagnosis.wheel_answers import TORCH_WAYS, torch_answers
from firstlight.diagnosis.wheel_choice import Wheel
from firstlight.facts.collect import Facts
from firstlight.facts.companions import Companion
from firstlight.facts.cuda_libraries import FoundIn
from firstlight.facts.distributions import Distribution, Requirement, find_distribution
from firstlight.facts.extensions import Extension
from firstlight.facts.known import Known, Unknown
from firstlight.ways.building import environment_to_change
from firstlight.ways.kinds import InstallWheels, Manner, Package, RemoveDistributions
from firstlight.ways.way import Chain, Way, chain

# Packages that write the same folder: whichever was installed last is what Python imports.
_ONE_FOLDER = (
    ("onnxruntime", r"onnxruntime(?:-gpu)?"),
    ("cupy", r"cupy(?:-cuda\d+x?|-rocm[\w-]*)?"),
    ("tensorflow", r"tensorflow(?:-cpu)?"),
)
_JAX_PLUGIN = r"jax-cuda(\d+)-(?:plugin|pjrt)"
# METADATA of the PyPI wheels: 1.22.0 to 1.26.0 are of CUDA 12, 1.27.0 of CUDA 13.
_ONNXRUNTIME = {12: ">=1.20,<1.27", 13: ">=1.27"}
_RUNTIME = "libonnxruntime_providers_cuda.so"
_OF_CUDA = ("libcudart.so.", "libcublas.so.", "libcublasLt.so.", "libcudnn.so.")
_READ = ("cudart", "cublas", "cudnn")  # what facts.cuda_libraries lists of these


def framework_wants_newer_library(question: Question) -> Iterator[Seen]:
    """JAX refuses a cuDNN older than the one it was built with; torch's pin brought that older one."""
    facts = question.facts
    installed = {each.name: each for each in reversed(facts.nvidia_wheels)}
    for framework in facts.companions:
        for wanted in framework.gpu_requires:
            floor, wheel = _floor(wanted.specifier), installed.get(wanted.name)
            have = () if wheel is None else _numbers(wheel.version)
            if wheel is None or not floor or not have or have >= floor:
                continue
            pin = _pin_of_torch(facts, wanted.name)
            whose = f"; torch requires {wanted.name}{pin.specifier}" if pin is not None else ""
            yield Seen(
                saw=f"{framework.name} {framework.version} is built for {wanted.name}{wanted.specifier}; installed is "
                f"{wheel.version} ({wheel.folder}){whose}",
                answers=tuple(_both_served(question, framework, wanted)),
                means=f"There is one {wanted.name} for both. {_say(framework.name)} leaves the GPU unused or stops, "
                "whichever is imported first; torch itself works.",
            )


def jax_plugin_of_other_version(question: Question) -> Iterator[Seen]:
    """jaxlib takes a CUDA plugin of its own version alone, and goes on without the GPU."""
    environment = question.facts.environment
    here = () if environment is None else environment.distributions
    jaxlib = find_distribution(here, "jaxlib")
    plugins = sorted((each for each in here if re.fullmatch(_JAX_PLUGIN, each.name)), key=lambda each: each.name)
    other = [each for each in plugins if jaxlib is not None and not _same(each.version, jaxlib.version)]
    if jaxlib is None or not other:
        return
    same = tuple(Package(each.name, jaxlib.version) for each in {each.name: each for each in plugins}.values())
    yield Seen(
        saw=f"jaxlib is {jaxlib.version}; {listed(f'{each.name} is {each.version}' for each in other)} "
        f"({jaxlib.folder})",
        answers=(
            chain(InstallWheels(same)),
            chain(InstallWheels((Package("jax", other[0].version), Package("jaxlib", other[0].version)))),
        ),
    )


def packages_share_a_folder(question: Question) -> Iterator[Seen]:
    """onnxruntime over onnxruntime-gpu: pip shows both, and the CUDA provider is gone."""
    facts = question.facts
    environment = facts.environment
    for folder, pattern in _ONE_FOLDER:
        found: dict[str, Distribution] = {}
        for each in sorted(() if environment is None else environment.distributions, key=lambda one: one.name):
            if re.fullmatch(pattern, each.name):
                found.setdefault(each.name, each)
        if len({each.folder for each in found.values()}) != 1 or len(found) < 2:
            continue
        kept = _kept(question, tuple(found.values()))
        again = InstallWheels((Package(kept.name, kept.version),), manner=Manner.AGAIN)
        gone = tuple(name for name in found if name != kept.name)
        yield Seen(
            saw=f"{listed(f'{each.name} {each.version}' for each in found.values())} are installed into one folder, "
            f"{kept.folder}/{folder}",
            answers=(chain(RemoveDistributions(gone), again),),
            means=f"The files in {folder} are those of whichever was installed last; where that is not {kept.name}, "
            f"{_say(folder)} computes on the CPU or does not import.",
        )


def framework_finds_no_cuda(question: Question) -> Iterator[Seen]:
    """onnxruntime-gpu of CUDA 12 beside a torch of CUDA 13: its libraries are nowhere, and it computes on the CPU."""
    facts = question.facts
    if not has_nvidia_gpu(facts):
        return
    for file, companion in _providers(facts):
        absent = [name for name in file.needed if name.startswith(_OF_CUDA) and not _is_anywhere(facts, name)]
        if absent and isinstance(file.cuda_major, Known):
            beside = cuda_major(facts)
            torch = f"; torch is built for CUDA {beside}" if beside else ""
            yield Seen(
                saw=f"{companion.name} {companion.version}: {file.path} asks for {listed(absent)}, which "
                f"{'is' if len(absent) == 1 else 'are'} nowhere here{torch}",
                answers=tuple(_of_this_cuda(question, companion, own=file.cuda_major.value)),
            )


def framework_needs_torch_first(question: Question) -> Iterator[Seen]:
    """onnxruntime-gpu finds the CUDA libraries of wheels only once torch, or its own preload, has loaded them."""
    facts = question.facts
    if not has_nvidia_gpu(facts):
        return
    for file, companion in _providers(facts):
        wanted = [name for name in file.needed if name.startswith(_OF_CUDA)]
        only = [name for name in wanted if _is_anywhere(facts, name) and not _is_on_a_path(facts, name)]
        if only and len(wanted) == sum(_is_anywhere(facts, name) for name in wanted):
            yield Seen(
                saw=f"{companion.name} {companion.version}: {listed(only)} "
                f"{'is' if len(only) == 1 else 'are'} in wheels alone, where {file.path} does not look"
            )


def nvidia_wheels_left_over(question: Question) -> Iterator[Seen]:
    """The CUDA 12 wheels of the torch before: this one is of CUDA 13, and nothing around it asks for them."""
    facts, major = question.facts, cuda_major(question.facts)
    if major is None or is_wanted(facts):
        return
    here, pinned = {each.name for each in facts.nvidia_wheels}, asked_by_torch(facts)
    others = (each for each in left_over(facts, major) if each.name not in pinned and is_of_torch(each))
    left = [each for each in others if not _has_twin(each.name, here)]
    if left and pinned & here:
        yield Seen(
            saw=f"{listed(f'{each.name} {each.version}' for each in left)} ({left[0].folder}): torch is built for CUDA "
            f"{major}, and neither it nor the packages around it ask for {'it' if len(left) == 1 else 'them'}"
        )


def _has_twin(name: str, here: set[str]) -> bool:
    """Whether the same library of another major is installed beside it: two-cuda-majors speaks of these."""
    base = name.rpartition("-cu")[0]
    return any(other != name and other.rpartition("-cu")[0] == base for other in here)


def _providers(facts: Facts) -> Iterator[tuple[Extension, Companion]]:
    for each in facts.extensions.files.value if isinstance(facts.extensions.files, Known) else ():
        companion = next((one for one in facts.companions if one.name == each.package), None)
        if companion is not None and each.path.endswith(f"/{_RUNTIME}"):
            yield each, companion


def _is_anywhere(facts: Facts, name: str) -> bool:
    """Whether a library is in a place that the facts list: they know cudart, cublas and cudnn, not each part."""
    stem = name.partition(".so")[0].removeprefix("lib").removesuffix("Lt")
    if stem not in _READ:
        return True
    major = name.rpartition(".so.")[2].partition(".")[0]
    return any(found.file.startswith(f"lib{stem}.so.{major}") for found in facts.cuda_libraries.named(stem))


def _is_on_a_path(facts: Facts, name: str) -> bool:
    """Whether the loader finds it by itself: LD_LIBRARY_PATH, the system's folders, conda."""
    stem = name.partition(".so")[0].removeprefix("lib").removesuffix("Lt")
    major = name.rpartition(".so.")[2].partition(".")[0]
    return any(
        found.file.startswith(f"lib{stem}.so.{major}") and found.found_in is not FoundIn.WHEEL
        for found in facts.cuda_libraries.named(stem)
    )


def _of_this_cuda(question: Question, companion: Companion, *, own: int) -> Iterator[Chain]:
    beside = cuda_major(question.facts)
    if beside is not None and beside != own and beside in _ONNXRUNTIME:
        bounded = Package(companion.name, bounds=_ONNXRUNTIME[beside])
        yield chain(InstallWheels((bounded,)), title=f"install {companion.name} for torch's CUDA {beside}")
    if own == 12 and beside != 13:
        names = ("nvidia-cuda-runtime-cu12", "nvidia-cublas-cu12", "nvidia-cudnn-cu12")
        yield chain(InstallWheels(tuple(Package(name) for name in names)))
    yield from taken_out(question, companion.name)


def _both_served(question: Question, framework: Companion, wanted: Requirement) -> Iterator[Chain]:
    """A torch that pins a newer one; the newer library where torch pins none; doing without the framework here."""
    floor, arch = _floor(wanted.specifier), question.facts.place.arch

    def brings_it(wheel: Wheel) -> bool:
        release = question.tables.torch_release(wheel.torch, arch)
        pin = None if release is None or release.wheel_cuda != wheel.cuda else release.pin(wanted.name)
        return pin is not None and _numbers(pin.version or "") >= floor

    along = _carried_along(question, framework)
    for one in torch_answers(question, brings_it):
        if not one.why_not:
            yield replace(one, ways=(*one.ways, *along))
    if _pin_of_torch(question.facts, wanted.name) is None:  # else torch would be off its pin
        bounds = wanted.specifier.replace("==", ">=")
        yield chain(InstallWheels((Package(wanted.name, bounds=bounds),)))
    gone = tuple(
        sorted(each.name for each in question.facts.companions if each.name.startswith(_family(framework.name)))
    )
    title = f"take {framework.name} out, into an environment of its own"
    yield from taken_out(question, *gone, title=title)


def _carried_along(question: Question, framework: Companion) -> tuple[Way, ...]:
    """The framework in its version, where torch goes into a new environment: there is nothing in that one yet."""
    environment = question.facts.environment
    if environment is None or environment_to_change(question.facts) is not None:
        return ()
    start = _family(framework.name).partition("-")[0]
    here = {each.name: each.version for each in environment.distributions if each.name.startswith(start)}
    packages = tuple(Package(name, version) for name, version in sorted(here.items()))
    return (InstallWheels(packages),) if packages else ()


def _family(name: str) -> str:
    return "jax-cuda" if name.startswith("jax-cuda") else name


def _kept(question: Question, found: tuple[Distribution, ...]) -> Distribution:
    """Of packages that share a folder the one for GPUs, of torch's CUDA where several are."""
    major = cuda_major(question.facts)
    fitting = [each for each in found if major and each.name.endswith(f"-cuda{major}x")]
    for_gpus = [each for each in found if each.name.endswith("-gpu") or "-cuda" in each.name]
    plain = [each for each in found if not each.name.endswith("-cpu")]
    return next(iter((*fitting, *for_gpus, *plain, *found)))


def _pin_of_torch(facts: Facts, name: str) -> Requirement | None:
    if isinstance(facts.torch, Unknown) or isinstance(facts.torch.value.requires, Unknown):
        return None
    return next((each for each in facts.torch.value.requires.value if each.name == name), None)


def _floor(specifier: str) -> tuple[int, ...]:
    """The lowest version that a requirement admits; of ==9.3.0.75 that one: a newer one of its major serves too."""
    found = re.search(r"(?:>=|===?|~=)\s*(\d+(?:\.\d+)*)", specifier)
    return _numbers(found.group(1)) if found else ()


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _same(one: str, other: str) -> bool:
    return _numbers(one) == _numbers(other)


def _say(name: str) -> str:
    families = {"jax": "JAX", "tensorflow": "TensorFlow", "onnxruntime": "ONNX Runtime", "cupy": "CuPy"}
    return next((said for start, said in families.items() if name.startswith(start)), name)


FRAMEWORK_RULES = (
    Rule(
        check=nvidia_wheels_left_over,
        severity=Severity.NOTE,
        depth=60,
        title="NVIDIA's wheels of another CUDA major are left over from another torch.",
        fires_when="Wheels named -cuN have another CUDA major than torch, and neither torch nor another package asks "
        "for them.",
        looks_at=("nvidia_wheels", "torch.requires", "companions.requires"),
        means=(
            "They take disk space, and torch does not load them. No installer removes them with the torch that "
            "brought them; `pip uninstall` does, where nothing else needs them."
        ),
        source="METADATA of the installed wheels",
        ways=(),
    ),
    Rule(
        check=framework_wants_newer_library,
        severity=Severity.DEGRADES,
        depth=45,
        title="JAX or TensorFlow is built for a newer NVIDIA library than the one that is here.",
        fires_when="The extra that brings CUDA to JAX, TensorFlow, ONNX Runtime or CuPy asks for a newer NVIDIA wheel "
        "than the installed one.",
        looks_at=("companions.gpu_requires", "nvidia_wheels", "torch.requires"),
        means="It leaves the GPU unused or stops; torch itself works.",
        error="Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.8.0.  CuDNN library needs to have "
        "matching major version and equal or higher minor version.",
        source="AI-Hypercomputer/maxtext#1509",
        ways=TORCH_WAYS,
    ),
    Rule(
        check=jax_plugin_of_other_version,
        severity=Severity.DEGRADES,
        depth=45,
        title="JAX's CUDA plugin has another version than jaxlib.",
        fires_when="The plugin jax-cudaN-plugin or jax-cudaN-pjrt has another version number than jaxlib.",
        looks_at=("python.environments.distributions",),
        means="JAX warns and computes on the CPU, or crashes at the first array; torch is not affected.",
        error="RuntimeWarning: JAX plugin jax_cuda12_plugin version 0.9.2 is installed, but it is not compatible with "
        "the installed jaxlib version 0.9.0.1, so it will not be used.",
        source="jaxlib/plugin_support.py of jaxlib 0.6.0; ma-gilles/recovar#64",
        ways=(InstallWheels,),
    ),
    Rule(
        check=packages_share_a_folder,
        severity=Severity.DEGRADES,
        depth=45,
        title="Two packages are installed into one folder.",
        fires_when="Both onnxruntime and onnxruntime-gpu, two builds of CuPy, or tensorflow and tensorflow-cpu are "
        "installed in one site-packages folder.",
        looks_at=("python.environments.distributions",),
        means="What is imported is whichever was installed last.",
        error="Specified provider 'CUDAExecutionProvider' is not in available provider names. Available providers: "
        "'AzureExecutionProvider, CPUExecutionProvider'",
        source="microsoft/onnxruntime#26996; gpustack/gpustack#5459",
        ways=(RemoveDistributions, InstallWheels),
    ),
    Rule(
        check=framework_finds_no_cuda,
        severity=Severity.DEGRADES,
        depth=45,
        title="ONNX Runtime's CUDA provider asks for CUDA libraries that are not here.",
        fires_when="The library libonnxruntime_providers_cuda.so needs a cudart, cuBLAS or cuDNN of a number that no "
        "wheel, toolkit or system folder has.",
        looks_at=("extensions.files.needed", "cuda_libraries.libraries"),
        means="ONNX Runtime prints an error and computes on the CPU; torch itself works.",
        error="Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.11: cannot open "
        "shared object file: No such file or directory",
        source="microsoft/onnxruntime#21684",
        ways=(InstallWheels, RemoveDistributions),
    ),
    Rule(
        check=framework_needs_torch_first,
        severity=Severity.NOTE,
        depth=45,
        title="ONNX Runtime finds its CUDA libraries only after torch was imported.",
        fires_when="Its CUDA libraries are in wheels alone, and no search path leads there.",
        looks_at=("extensions.files.needed", "cuda_libraries.libraries"),
        means=(
            "Import torch before onnxruntime, or call onnxruntime.preload_dlls() (from 1.21 on): the order decides. "
            "Alone it computes on the CPU."
        ),
        error="Failed to load library libonnxruntime_providers_cuda.so with error: libcudnn_adv.so.9: cannot open "
        "shared object file: No such file or directory",
        source="microsoft/onnxruntime#23643; microsoft/onnxruntime#23744",
        ways=(),
    ),
)
