"""Rules about the base image, the torch inside, and the driver and GPUs of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.compat_answers import wired_release
from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.frozen import dataclass
from firstlight.lint.build_rules import arch_lists
from firstlight.lint.host import (
    brand_word,
    compat_eligible,
    compat_serves,
    driver_cuda,
    driver_of,
    floor_of,
    gpu_words,
    is_board,
    lets_in,
    machine_words,
    runs_major,
)
from firstlight.lint.images import Image
from firstlight.lint.installs import apt_packages, installs
from firstlight.lint.meant import for_cpu_alone
from firstlight.lint.model import Copied, Place, Target, Where, stages_of
from firstlight.lint.require_cuda import Offered, meets
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.torch_answers import (
    cuda_image,
    one_with_cuda,
    other_date,
    other_torch,
    other_wheel,
    solved_without_driver,
)
from firstlight.lint.torches import (
    InImage,
    codes_in_reach,
    codes_of,
    replaces_vendor_torch,
    runs_there,
    torches,
    without_code,
)
from firstlight.lint.wheels import torch_asked
from firstlight.lint.written import ask, variables_in
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import Variable, Why
from firstlight.ways.way import Chain, chain

_NVIDIA_COMPAT = "docs.nvidia.com/deploy/cuda-compatibility"
_UNLESS_TOLD = "The list names no index: pip finds no such file, unless the command that installs it names one."
_AT_START = "start it where the container toolkit sees to compat (its ldconfig mode), or through `firstlight run`"
_TOOLKIT_ENV = "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"


def image_refused_by_driver(target: Target, question: Question) -> Iterator[SeenAt]:
    """nvidia/cuda:13.0.2 on a GeForce with driver 550 does not start: its NVIDIA_REQUIRE_CUDA says no."""
    own, env = driver_cuda(question), target.env
    if own is None or env.get("NVIDIA_DISABLE_REQUIRE") is not None:
        return
    written = env.get("NVIDIA_REQUIRE_CUDA")
    if written is not None:
        capability = next((str(gpu.capability) for gpu in gpus_of(question)), "")
        host = Offered(own, driver_of(question), brand_word(question), capability)
        if meets(written.value, host) is False:
            yield SeenAt(
                written.place,
                f"NVIDIA_REQUIRE_CUDA={_short(written.value)} does not let in {machine_words(question)}",
                (_what_is_needed(written.place, target, question),),
            )
        return
    image = target.image
    if image.cuda is None or not image.requires_cuda or own >= image.cuda.release:
        return
    yield from _refused(target, question, image.cuda)


def _what_is_needed(place: Place, target: Target, question: Question) -> Chain:
    torch = torches(target, question).last
    if torch is not None and torch.cuda is not None and runs_there(torch, question):
        return _gate(place, torch.cuda.major, f"ask for what {torch.shown} needs and no more")
    title = "ask for what the wheels inside need, not more: a CUDA 12 wheel runs from cuda>=12.0 on"
    return ask("ask for what the wheels inside need, not more", title=title)


def _gate(place: Place, major: int, title: str) -> Chain:
    return chain(variables_in(place, Variable("NVIDIA_REQUIRE_CUDA", f"cuda>={major}.0")), title=title)


def _refused(target: Target, question: Question, cuda: CudaVersion) -> Iterator[SeenAt]:
    row, eligible = question.tables.image(cuda), compat_eligible(question)
    saw = f"{target.image.name} asks for cuda>={cuda.release}; {machine_words(question)} on {gpu_words(question)}"
    older = tuple(_older_image(target, target.image, question))
    # Jetson's container toolkit knows `cuda` and `arch` alone, and skips the brands and branches of the list:
    # github.com/NVIDIA/nvidia-container-toolkit, internal/modifier/csv.go and internal/requirements/constraints; seen
    # on an Orin in dusty-nv/jetson-containers#1459.
    if is_board(question):
        named = any(True for stage in stages_of(target) for _ in arch_lists(stage))  # which an older nvcc may not know
        answers = (
            (ask("take an image made for Jetson, e.g. nvcr.io/nvidia/l4t-jetpack", Why.PROGRAM),) if named else older
        )
        error = f"requirements not met: unsatisfied condition: cuda>={cuda.release} (cuda={driver_cuda(question)})"
        yield SeenAt(target.place, f"{saw}; Jetson's container toolkit goes by its CUDA alone", answers, error=error)
        return
    if lets_in(question, cuda):
        return  # let in by the list of branches; torch-needs-newer-driver speaks where compat is needed after all
    if row is None and branches_not_known(target.image, question):
        return  # said among what was not judged
    excepted = row is None or row.brands != "all"
    why = (
        "GeForce and Titan are not in its list of exceptions" if eligible is False and excepted else "its list lacks it"
    )
    yield SeenAt(target.place, f"{saw}; {why}", older)


# From this image on no GeForce or Titan is let in by the list of branches: the table `images` says so of all.
_NO_GEFORCE_FROM = CudaVersion(12, 6)


def branches_not_known(image: Image, question: Question) -> bool:
    """Whether an image may let the driver in by a list of branches that is not in the tables."""
    own = driver_cuda(question)
    if own is None or image.cuda is None or not image.requires_cuda or own >= image.cuda.release:
        return False
    may = compat_eligible(question) is not False or image.cuda.release < _NO_GEFORCE_FROM
    return may and question.tables.image(image.cuda) is None


def _older_image(target: Target, image: Image, question: Question) -> Iterator[Chain]:
    own = driver_cuda(question)
    assert image.cuda is not None
    older = cuda_image(image, question)
    yield older or ask("use an older base image" if own is None else f"use a base image of CUDA {own} or older")
    if own is not None and runs_major(question, image.cuda.major):
        yield _gate(
            target.place, image.cuda.major, f"ask for any CUDA {image.cuda.major}: the driver runs all of its minors"
        )


def torch_needs_newer_driver(target: Target, question: Question) -> Iterator[SeenAt]:
    """pip install torch brings CUDA 13, which driver 550 does not run."""
    torch = torches(target, question).last
    if torch is None or torch.cuda is None or runs_major(question, torch.cuda.major) is not False:
        return
    saw = f"{torch.how}: {torch.shown} needs driver {floor_of(question, torch.cuda.major)}; {machine_words(question)}"
    inside = next((each for each in compat_inside(target) if each.cuda.major == torch.cuda.major), None)
    if inside is not None and compat_serves(question, inside.cuda) and not without_code(torch, question):
        wired = chain(wired_release(question, inside.cuda, inside.folder), title=_AT_START)
        yield SeenAt(
            torch.place,
            f"{saw}. Only the compat library inside makes it run: {inside.where}",
            (wired, *other_wheel(torch, target, question)),
            because="The driver alone does not run it. Something has to put the compat library in front where the "
            "driver is older, and only there: NVIDIA's container toolkit does so for /usr/local/cuda/compat.",
            severity=Severity.NOTE if "/firstlight/compat" in inside.where else Severity.DEGRADES,
        )
        return
    yield SeenAt(torch.place, saw, other_torch(torch, target, question))


@dataclass(frozen=True, slots=True)
class _Compat:
    """A compat library in the image and where it comes from, e.g. 13.0 of nvidia/cuda:13.0.2-base-ubuntu22.04."""

    cuda: CudaVersion
    where: str
    folder: str


def compat_inside(target: Target) -> Iterator[_Compat]:
    """The compat libraries of the base, of apt packages, and of folders copied in that name their CUDA."""
    if target.image.has_compat and target.image.cuda is not None:
        yield _Compat(target.image.cuda, target.image.name, _folder(target.image.cuda))
    for package, ran in apt_packages(target):
        if match := re.fullmatch(r"cuda-compat-(\d+)-(\d+)", package):
            cuda = CudaVersion(int(match[1]), int(match[2]))
            yield _Compat(cuda, f"{package} (line {ran.place.line})", _folder(cuda))
    for event in target.events:
        if isinstance(event, Copied) and (match := _named_compat(event)):
            cuda = CudaVersion(*(int(group) for group in match.groups() if group))
            yield _Compat(cuda, f"{event.destination} (line {event.place.line})", event.destination)


def _named_compat(event: Copied) -> re.Match[str] | None:
    """The CUDA of a compat folder that is copied in, by the names it has there or had before."""
    names = " ".join((*event.sources, event.destination))
    return re.search(r"compat.*cuda-(\d+)\.(\d+)|cuda-(\d+)\.(\d+)/compat", names) if "compat" in names else None


def _folder(cuda: CudaVersion) -> str:
    return f"/usr/local/cuda-{cuda.release}/compat"


def torch_has_no_code_for_gpu(target: Target, question: Question) -> Iterator[SeenAt]:
    """torch 2.5.1 has no code for an RTX 5090 (12.0)."""
    torch = torches(target, question).last
    asked = [(install, each) for install in installs(target) if (each := torch_asked(install)) is not None]
    replaced = any(replaces_vendor_torch(install, each) for install, each in asked)
    if torch is None and target.image.vendor_torch and not replaced:
        yield from _image_without_code(target, question)
    if torch is None or torch.cuda is None:
        return
    missing = without_code(torch, question)
    if missing:
        names = ", ".join(dict.fromkeys(f"{gpu.name} ({gpu.capability})" for gpu in missing))
        saw = f"{torch.how}: {torch.shown} {_code_words(torch, question)}; nothing in it runs on {names}"
        yield SeenAt(torch.place, saw, other_wheel(torch, target, question))


def _of_older_jetsons(image: Image, question: Question) -> tuple[str, str] | None:
    """dustynv/l4t-pytorch:r36.4.0 on a Thor: the compiler of Jetson Linux 36 knows no such GPU."""
    row = question.tables.tegra_release(image.tag.removeprefix("r")) if "tegra" in image.processors else None
    built = None if row is None else question.tables.targets(row.cuda)
    if row is None or built is None or all(gpu.capability.sm in built.targets for gpu in gpus_of(question)):
        return None
    lines = ((each, question.tables.targets(each.cuda)) for each in question.tables.tegra_releases)
    wanted = {gpu.capability.sm for gpu in gpus_of(question)}
    first = next((each.l4t for each, made in lines if made is not None and wanted <= {*made.targets}), "")
    other = f"the tag for Jetson Linux {first}" if first else "the tag for its own Jetson Linux"
    return f"is for Jetson Linux {row.l4t}, whose CUDA is {row.cuda}", other


def _image_without_code(target: Target, question: Question) -> Iterator[SeenAt]:
    """nvcr.io/nvidia/pytorch:23.04-py3 on an RTX 5090: its CUDA does not know that GPU."""
    why, other = _of_older_jetsons(target.image, question) or other_date(target.image, question)
    for gpu in gpus_of(question)[:1]:
        if other:
            saw = f"{target.image.name} {why}, and has no code for {gpu.name} ({gpu.capability})"
            yield SeenAt(target.place, saw, (ask(f"take {other} of it"),))


def _code_words(torch: InImage, question: Question) -> str:
    """'has code for sm_80 sm_90'; where that is not known, what its compiler can make: 'sm_35 to sm_90'."""
    if codes := codes_of(torch, question):
        return "has code for " + " ".join(code.sm for code in codes)
    reach = codes_in_reach(torch, question)
    if not reach:
        return f"is compiled by CUDA {torch.cuda}, which knows no such GPU"
    return f"can have code for {reach[0].sm} to {reach[-1].sm}, all that its compiler makes"


def torch_is_cpu_only(target: Target, question: Question) -> Iterator[SeenAt]:
    """The index .../whl/cpu, or an arm64 wheel of PyPI that is built without CUDA."""
    torch = torches(target, question).last
    if torch is None or torch.variant != "cpu" or not gpus_of(question) or for_cpu_alone(target):
        return
    why = "a build has no driver, so conda takes the one without CUDA" if solved_without_driver(torch) else torch.shown
    yield SeenAt(torch.place, f"{torch.how}: {why}", one_with_cuda(torch, target, question))


def conda_cuda_beyond_driver(target: Target, question: Question) -> Iterator[SeenAt]:
    """cuda = "12.9" or "13" of pixi's system-requirements, and a driver of CUDA 12.8: pixi does not start."""
    own = driver_cuda(question)
    if own is None or target.where is Where.BUILD or for_cpu_alone(target):
        return
    for install in installs(target):
        asked = install.of("__cuda")
        spec = "" if asked is None else asked.spec.removeprefix(">=")
        wanted = CudaVersion.parse(spec if "." in spec else f"{spec}.0") if spec else None
        if asked is None or asked.place is None or wanted is None or wanted.release <= own:
            continue
        saw = f"system-requirements want CUDA {wanted.release}; {machine_words(question)}"
        major = min(wanted.major, own.major)
        title = f'write `cuda = "{major}.0"`: the driver runs all of CUDA {major}'
        yield SeenAt(asked.place, saw, (ask("lower the CUDA of system-requirements", title=title),))


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


DRIVER_LINT_RULES = (
    LintRule(
        "image-refused-by-driver",
        image_refused_by_driver,
        Severity.BLOCKS,
        "the container does not start: the image asks for a newer CUDA than the driver has",
        "NVIDIA's container toolkit checks the image's NVIDIA_REQUIRE_CUDA against the driver before it starts.",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=..., please update your driver",
        _TOOLKIT_ENV,
    ),
    LintRule(
        "torch-needs-newer-driver",
        torch_needs_newer_driver,
        Severity.BLOCKS,
        "the torch inside is built for a CUDA that the driver does not run",
        "The driver is the machine's own and runs no later CUDA major by itself. torch.cuda.is_available() is False.",
        "RuntimeError: The NVIDIA driver on your system is too old",
        _NVIDIA_COMPAT,
    ),
    LintRule(
        "torch-has-no-code-for-gpu",
        torch_has_no_code_for_gpu,
        Severity.BLOCKS,
        "the torch inside has no code for the GPU",
        "It imports and sees the GPU; the first kernel fails.",
        "CUDA error: no kernel image is available for execution on the device",
        "docs.pytorch.org/docs/stable/cuda.html, torch.cuda.get_arch_list",
    ),
    LintRule(
        "torch-is-cpu-only",
        torch_is_cpu_only,
        Severity.BLOCKS,
        "the torch inside is built without CUDA",
        "torch.cuda.is_available() is False on every machine.",
        "AssertionError: Torch not compiled with CUDA enabled",
        "pytorch.org/get-started/locally",
    ),
    LintRule(
        "conda-cuda-beyond-driver",
        conda_cuda_beyond_driver,
        Severity.BLOCKS,
        "pixi wants a later CUDA than the driver reports",
        "pixi checks system-requirements against the driver's CUDA before it runs anything, minor versions too.",
        "The current system has a mismatching virtual package. The workspace requires '__cuda' to be at least ...",
        "pixi.sh/latest/workspace/system_requirements",
    ),
)
