"""Rules about what the installed torch was built for: no GPU, another maker's GPU, or GPUs other than those here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import has_nvidia_gpu, listed, platform, shown, wanted_version
from firstlight.diagnosis.source_answers import source_answers
from firstlight.diagnosis.wheel_answers import (
    TORCH_OR_ELSE_WAYS,
    TORCH_WAYS,
    proof_of_wheel,
    torch_chain,
    torch_or_else,
)
from firstlight.diagnosis.wheel_bounds import may_have_code
from firstlight.diagnosis.wheel_choice import SeenGpu, fits_python, gpus_of, wheels_that_run
from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.facts.python_environments import PythonEnvironment
from firstlight.facts.torch_install import TorchBuild, TorchInstall
from firstlight.tables.gpu_rows import Runs
from firstlight.tables.torch_index import index_of_version
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion
from firstlight.ways.kinds import AskPerson, BuildFromSource, InstallWheels, MakeEnvironment, Package, Why
from firstlight.ways.way import Chain, Proof, chain

_JETSON_GUIDE = "docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform"


def torch_cpu_only(question: Question) -> Iterator[Seen]:
    """A wheel from the CPU index on a machine with a GPU."""
    torch = _cpu_torch(question)
    if torch is None or _is_plain_arm_wheel(question, torch) or _needsjetson_wheel(question):
        return
    yield Seen(
        saw=f"torch {_shown(torch)} was built without CUDA; {_gpus_shown(question)}", answers=torch_or_else(question)
    )


def aarch64_wheel_without_cuda(question: Question) -> Iterator[Seen]:
    """PyPI's torch for aarch64 has CUDA only from 2.11 on."""
    torch = _cpu_torch(question)
    if torch is None or not _is_plain_arm_wheel(question, torch) or _needsjetson_wheel(question):
        return
    yield Seen(
        saw=f"torch {_shown(torch)} is PyPI's wheel for aarch64, which had no CUDA at this release; "
        f"{_gpus_shown(question)}",
        answers=torch_or_else(question),
    )


def torch_for_other_vendor(question: Question) -> Iterator[Seen]:
    """A ROCm or XPU build on a machine whose GPUs are NVIDIA's."""
    facts = question.facts
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    if torch is None or isinstance(torch.build, Unknown) or not has_nvidia_gpu(facts):
        return
    if torch.build.value not in (TorchBuild.ROCM, TorchBuild.XPU):
        return
    vendor = {TorchBuild.ROCM: "AMD (ROCm)", TorchBuild.XPU: "Intel (XPU)"}[torch.build.value]
    yield Seen(
        saw=f"torch {_shown(torch)} was built for {vendor}; {_gpus_shown(question)}", answers=torch_or_else(question)
    )


def arch_not_in_wheel(question: Question) -> Iterator[Seen]:
    """A wheel holds machine code for some GPUs only: cu130 has none for a V100."""
    facts = question.facts
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    if torch is None or isinstance(torch.wheel_cuda, Unknown) or isinstance(torch.version, Unknown):
        return
    codes, said_by = _codes(question, torch)
    left_out = [gpu for gpu in _each_once(gpus_of(question)) if _runs(question, torch, gpu) is Runs.NO]
    cuda = torch.wheel_cuda.value.release
    has = f"has code for {', '.join(codes)} ({said_by}), none of which runs on it"
    if not codes:
        has = f"is built with CUDA {cuda}, whose compiler knows no code that runs on it"
    for gpu in left_out:
        yield Seen(
            saw=f"{gpu.name} has compute capability {gpu.capability} ({gpu.seen_in}); "
            f"torch {torch.version.value} {has}",
            answers=_for_this_gpu(question),
        )


def jetson_needs_own_wheel(question: Question) -> Iterator[Seen]:
    """No official wheel runs on an Orin before CUDA 13.2: its code is for servers."""
    facts = question.facts
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    if torch is None or not _needsjetson_wheel(question):
        return
    gpu = gpus_of(question)[0]
    built = "without CUDA" if isinstance(torch.build, Known) and torch.build.value is TorchBuild.CPU else "for servers"
    l4t = f", Jetson Linux {facts.place.l4t.value}" if isinstance(facts.place.l4t, Known) else ""
    yield Seen(
        saw=f"torch {_shown(torch)} was built {built}; this is {gpu.name}, compute capability {gpu.capability} "
        f"({gpu.seen_in}){l4t}, for which PyTorch publishes no wheel",
        answers=jetson_wheel(question),
    )


def no_wheel_for_python(question: Question) -> Iterator[Seen]:
    """Each release of torch has wheels for some Pythons only: 2.1.0 has none for Python 3.12."""
    facts = question.facts
    version, environment = wanted_version(facts), facts.environment
    release = None if version is None else question.tables.torch_release(version.public, facts.place.arch)
    if version is None or release is None or environment is None or fits_python(facts, release):
        return
    python = environment.python_version
    newest = next(each for each in reversed(release.cpython) if not each.endswith("t"))
    torch = InstallWheels((Package("torch", str(version)),), index_of_version(str(version)))
    yield Seen(
        saw=f"torch {version.public} has wheels for Python {listed(release.cpython)} (PyPI, {release.date}); this is "
        f"Python {shown(python) if isinstance(python, Known) else 'unknown'}",
        answers=(chain(MakeEnvironment(f"~/venv-{newest}", newest), torch), *_nearest(question, version)),
    )


def _nearest(question: Question, version: TorchVersion) -> Iterator[Chain]:
    """The wheel that runs here of the next release after a version; where there is none, of the newest before it."""
    found = tuple(wheels_that_run(question))
    later = min((wheel.torch for wheel in found if wheel.torch > version), default=None)
    wheel = next((wheel for wheel in found if later in (None, wheel.torch)), None)
    if wheel is not None:
        yield torch_chain(question, wheel)


def _cpu_torch(question: Question) -> TorchInstall | None:
    """The torch if it was built without CUDA, nobody asked for that, and there is an NVIDIA GPU to miss it."""
    facts = question.facts
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    if torch is None or isinstance(torch.build, Unknown) or torch.build.value is not TorchBuild.CPU:
        return None
    return torch if has_nvidia_gpu(facts) and not question.wants_no_cuda else None


def _is_plain_arm_wheel(question: Question, torch: TorchInstall) -> bool:
    """Whether it is PyPI's CPU wheel for aarch64: recorded without the +cpu of the CPU index, and of such a release."""
    if question.facts.place.arch != "aarch64" or isinstance(torch.version, Unknown):
        return False
    recorded = torch.recorded_version.value if isinstance(torch.recorded_version, Known) else torch.version.value.text
    release = question.tables.torch_release(torch.version.value, "aarch64")
    return "+" not in recorded and release is not None and release.wheel_cuda is None


def _needsjetson_wheel(question: Question) -> bool:
    """Whether this is a Jetson that the installed torch does not run on, nor any official wheel."""
    facts = question.facts
    gpus = gpus_of(question)
    if platform(facts) is not Platform.JETSON or not gpus or isinstance(facts.torch, Unknown):
        return False
    torch = facts.torch.value
    has_no_cuda = isinstance(torch.build, Known) and torch.build.value is TorchBuild.CPU
    if not has_no_cuda and _runs(question, torch, gpus[0]) is not Runs.NO:
        return False
    return next(wheels_that_run(question), None) is None


def _runs(question: Question, torch: TorchInstall, gpu: SeenGpu) -> Runs:
    """Whether a wheel has code for a GPU; PTX for an older capability is compiled by the driver."""
    if isinstance(torch.wheel_cuda, Unknown):
        return Runs.NOT_KNOWN
    codes, _ = _codes(question, torch)
    if not codes and _is_official(question, torch):
        may = may_have_code(question.tables, torch.wheel_cuda.value, gpu.capability)
        return Runs.NOT_KNOWN if may else Runs.NO
    answers = {code_runs(question, code, gpu.capability, torch_cuda=torch.wheel_cuda.value) for code in codes}
    if Runs.YES in answers:
        return Runs.YES
    return Runs.NOT_KNOWN if Runs.NOT_KNOWN in answers or not answers else Runs.NO


def _is_official(question: Question, torch: TorchInstall) -> bool:
    """Whether it is a release of PyTorch's index; what others build may have PTX for later GPUs."""
    if isinstance(torch.version, Unknown) or isinstance(torch.wheel_cuda, Unknown):
        return False
    version, cuda = torch.version.value, torch.wheel_cuda.value
    known = question.tables.torch_release(version.public, question.facts.place.arch) is not None
    return known and version.local in ("", cuda.release.tag)


def code_runs(question: Question, code: str, device: ComputeCapability, *, torch_cuda: CudaVersion) -> Runs:
    """One entry of the list: sm_90, sm_90a (that capability alone), compute_90 (PTX: that and later), compute_100f."""
    try:
        built_for = ComputeCapability.parse(code)
    except BadVersion:
        return Runs.NOT_KNOWN
    if code.endswith("a"):
        return Runs.YES if built_for == device else Runs.NO
    if code.startswith("compute_"):
        in_family = built_for.major == device.major or not code.endswith("f")
        return Runs.YES if built_for <= device and in_family else Runs.NO
    return question.tables.runs_on(built_for, device, torch_cuda=torch_cuda)


def _codes(question: Question, torch: TorchInstall) -> tuple[tuple[str, ...], str]:
    """What a torch has code for and who says so: its own library, else the tables for that release and CUDA."""
    if isinstance(torch.compiled_for, Known):
        return torch.compiled_for.value, torch.compiled_for.seen_in
    if isinstance(torch.version, Unknown) or isinstance(torch.wheel_cuda, Unknown):
        return (), ""
    arch, version, cuda = question.facts.place.arch, torch.version.value, torch.wheel_cuda.value
    release = question.tables.torch_release(version, arch)
    if release is not None and release.wheel_cuda is not None and release.wheel_cuda == cuda.release:
        return tuple(each.sm for each in release.compiled_for), release.source
    variant = question.tables.variant_targets(version, cuda, machine=arch)
    return ((), "") if variant is None else (tuple(each.sm for each in variant.compiled_for), variant.source)


def _for_this_gpu(question: Question) -> tuple[Chain, ...]:
    """A wheel with code for the GPUs here, or a build."""
    if _needsjetson_wheel(question):
        return jetson_wheel(question)
    return tuple(dict.fromkeys((*torch_or_else(question), *_with_another_python(question), *source_answers(question))))


def _with_another_python(question: Question) -> tuple[Chain, ...]:
    """The newest torch that runs here under a newer Python, where no release for this one has code for the GPUs."""
    environment = question.facts.environment
    if environment is None or any(True for _ in wheels_that_run(question)):
        return ()
    releases = {row.torch: row for row in question.tables.torch_releases if row.machine == question.facts.place.arch}
    anywhere = replace(question, facts=_without_python(question.facts, environment))
    wheel = next((each for each in wheels_that_run(anywhere) if each.torch in releases), None)
    if wheel is None:
        return ()
    newest = next(each for each in reversed(releases[wheel.torch].cpython) if not each.endswith("t"))
    local = f"+{wheel.cuda.tag}" if wheel.index else ""
    torch = InstallWheels((Package("torch", f"{wheel.torch.public}{local}"),), wheel.index)
    made = MakeEnvironment(f"~/venv-{newest}", newest)
    return (chain(made, torch, proof=proof_of_wheel(question, wheel), by=f"PyPI, {releases[wheel.torch].date}"),)


def _without_python(facts: Facts, environment: PythonEnvironment) -> Facts:
    """The facts as they are for whoever may choose the Python."""
    chosen = replace(environment, python_version=Unknown("to be chosen"))
    others = tuple(chosen if each is environment else each for each in facts.python.environments)
    return replace(facts, python=replace(facts.python, environments=others))


def jetson_wheel(question: Question) -> tuple[Chain, ...]:
    """NVIDIA's index for JetPack 6; of the other releases the guide."""
    facts = question.facts
    l4t = facts.place.l4t.value if isinstance(facts.place.l4t, Known) else ""
    pack, release = question.tables.jetpack(l4t), question.tables.tegra_release(l4t)
    answers = []
    if pack is not None and release is not None and pack.jetpack.startswith("6"):
        packages = Package("torch"), Package("torchvision")
        answers.append(chain(InstallWheels(packages, f"https://pypi.jetson-ai-lab.io/jp6/{release.cuda.tag}")))
    number = "" if pack is None else f" ({pack.jetpack})"
    python = "" if release is None else release.wheel_python
    for_python = f", for Python {python}" if python else ""
    new = ((f"python{python}", "-m", "venv", "FOLDER"),) if python and python != _python(question) else ()
    interpreter = "FOLDER/bin/python" if new else _interpreter(question)
    wheel = "" if release is None else release.torch_wheel
    install = ((interpreter, "-m", "pip", "install", wheel),) if wheel else ()
    own = AskPerson("take-jetpack-torch", Why.BOARD, (*new, *install), of=(number, for_python))
    answers.append(chain(own, proof=Proof.DOCUMENTED, by=_JETSON_GUIDE))
    return (*answers, *source_answers(question))


def _python(question: Question) -> str:
    """The judged Python's release, e.g. 3.10; '' where none is judged."""
    environment = question.facts.environment
    version = "" if environment is None else value_or(environment.python_version, "")
    return ".".join(version.split(".")[:2])


def _interpreter(question: Question) -> str:
    environment = question.facts.environment
    return "python3" if environment is None else value_or(environment.interpreter, f"{environment.prefix}/bin/python3")


def _each_once(gpus: tuple[SeenGpu, ...]) -> tuple[SeenGpu, ...]:
    """One of each model: eight H100s are one sentence."""
    return tuple({(gpu.name, gpu.capability): gpu for gpu in gpus}.values())


def _gpus_shown(question: Question) -> str:
    """What was seen of the GPUs, e.g. 'NVIDIA H100 80GB HBM3 is here (NVML)'."""
    gpus = _each_once(gpus_of(question))
    if gpus:
        return f"{' and '.join(gpu.name for gpu in gpus)} is here ({gpus[0].seen_in})"
    return "an NVIDIA GPU is on the bus"


def _shown(torch: TorchInstall) -> str:
    """2.9.0+cpu (/opt/venv/.../torch/version.py)."""
    if isinstance(torch.version, Unknown):
        return f"in {torch.folder}"
    version: TorchVersion = torch.version.value
    return f"{version} ({torch.version.seen_in})"


_BUILD = ("torch.build", "torch.version", "torch.recorded_version", "place.arch", "gpus.devices")

BUILD_OF_TORCH_RULES = (
    Rule(
        check=no_wheel_for_python,
        severity=Severity.BLOCKS,
        depth=40,
        title="The wanted torch has no wheel for this Python.",
        fires_when="A torch is wanted (--want torch==VERSION) whose release has wheels for other Pythons than the one "
        "that is judged.",
        looks_at=("torch.version", "python.environments.python_version", "place.arch"),
        means="Nothing is found to install: pip and uv take wheels of this Python alone.",
        error="ERROR: No matching distribution found for torch==...",
        source="pypi.org/project/torch, the wheels of each release",
        ways=(MakeEnvironment, *TORCH_WAYS),
    ),
    Rule(
        check=jetson_needs_own_wheel,
        severity=Severity.BLOCKS,
        depth=40,
        title="This Jetson needs a torch wheel made for it.",
        fires_when="The machine is a Jetson, the installed torch has no code for its GPU, and no official wheel has.",
        looks_at=("place.platform", "place.l4t", "torch.build", "torch.compiled_for", "libcuda.devices"),
        means="torch sees no GPU, or its first kernel fails; another official wheel does not help.",
        error="AssertionError: Torch not compiled with CUDA enabled",
        source="github.com/nvidia-cosmos/cosmos-reason2/pull/45",
        ways=(InstallWheels, AskPerson, BuildFromSource),
        explains=("arch-not-in-wheel", "torch-cpu-only", "aarch64-wheel-without-cuda"),
    ),
    Rule(
        check=torch_cpu_only,
        severity=Severity.BLOCKS,
        depth=40,
        title="The installed torch was built without CUDA.",
        wanted_title="The wanted torch was built without CUDA.",
        fires_when="The installed torch says cuda = None in its version.py, and there is an NVIDIA GPU.",
        looks_at=_BUILD,
        needs=("torch",),
        means="torch works on the CPU alone and never looks for a GPU; no driver and no variable changes that.",
        error="AssertionError: Torch not compiled with CUDA enabled",
        source="talmolab/sleap-nn#662",
        ways=TORCH_OR_ELSE_WAYS,
        explains=("extension-lacks-symbols",),
    ),
    Rule(
        check=aarch64_wheel_without_cuda,
        severity=Severity.BLOCKS,
        depth=40,
        title="PyPI's torch for Arm had no CUDA at this version.",
        fires_when="torch on aarch64 is PyPI's wheel of a release before 2.11, and there is an NVIDIA GPU.",
        looks_at=_BUILD,
        needs=("torch",),
        means="torch works on the CPU alone; the CUDA wheels for Arm are on PyTorch's own index, or on PyPI from 2.11.",
        error="AssertionError: Torch not compiled with CUDA enabled",
        source="pytorch/pytorch#160162",
        ways=TORCH_OR_ELSE_WAYS,
        explains=("extension-lacks-symbols",),
    ),
    Rule(
        check=torch_for_other_vendor,
        severity=Severity.BLOCKS,
        depth=40,
        title="The installed torch was built for another maker's GPUs.",
        wanted_title="The wanted torch was built for another maker's GPUs.",
        fires_when="The installed torch names ROCm or XPU in its version.py, and the GPU is NVIDIA's.",
        looks_at=("torch.build", "torch.rocm", "torch.xpu", "gpus.devices"),
        needs=("torch",),
        means="torch looks for AMD or Intel GPUs and finds none.",
        error="RuntimeError: No HIP GPUs are available",
        source="pytorch/pytorch#70036",
        ways=TORCH_OR_ELSE_WAYS,
    ),
    Rule(
        check=arch_not_in_wheel,
        severity=Severity.BLOCKS,
        depth=40,
        title="The installed torch has no machine code for this GPU.",
        wanted_title="The wanted torch has no machine code for this GPU.",
        fires_when="No architecture in the wheel's own list runs on a GPU here, and it holds no PTX that would.",
        looks_at=("torch.compiled_for", "torch.wheel_cuda", "gpus.devices.capability", "libcuda.devices"),
        needs=("torch",),
        means="torch sees the GPU (is_available() is True), and the first kernel fails.",
        error="torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
        source="vllm-project/vllm#19185",
        ways=(MakeEnvironment, *TORCH_OR_ELSE_WAYS),
    ),
)
