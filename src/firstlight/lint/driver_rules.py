"""Rules about the base image, the torch inside, and the driver and GPUs of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.specifiers import newest
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.frozen import dataclass
from firstlight.lint.build_rules import cuda_builds
from firstlight.lint.host import (
    brand_word,
    compat_eligible,
    compat_serves,
    driver_cuda,
    driver_of,
    floor_of,
    gpu_words,
    install_words,
    machine_words,
    runs_major,
    wheel_for,
)
from firstlight.lint.images import Flavour, Image
from firstlight.lint.installs import apt_packages
from firstlight.lint.model import Copied, Target
from firstlight.lint.require_cuda import Offered, meets
from firstlight.lint.rule import LintRule, Seen
from firstlight.lint.torches import InImage, Replacement, codes_in_reach, codes_of, runs_on_gpu, torches
from firstlight.lint.wheels import certain_variants, no_index_has_local
from firstlight.tables.gpu_rows import Runs
from firstlight.versions import CudaVersion, TorchVersion

_NVIDIA_COMPAT = "docs.nvidia.com/deploy/cuda-compatibility"
_TOOLKIT_ENV = "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"


def image_refused_by_driver(target: Target, question: Question) -> Iterator[Seen]:
    """nvidia/cuda:13.0.2 on a GeForce with driver 550 does not start: its NVIDIA_REQUIRE_CUDA says no."""
    own, env = driver_cuda(question), target.env
    if own is None or env.get("NVIDIA_DISABLE_REQUIRE") is not None:
        return
    written = env.get("NVIDIA_REQUIRE_CUDA")
    if written is not None:
        capability = next((str(gpu.capability) for gpu in gpus_of(question)), "")
        host = Offered(own, driver_of(question), brand_word(question), capability)
        if meets(written.value, host) is False:
            yield Seen(
                written.place,
                f"NVIDIA_REQUIRE_CUDA={_short(written.value)} does not let in {machine_words(question)}",
                (_what_is_needed(target, question),),
            )
        return
    image = target.image
    if image.cuda is None or not image.requires_cuda or own >= image.cuda.release:
        return
    yield from _refused(target, question, image.cuda)


def _what_is_needed(target: Target, question: Question) -> str:
    torch = torches(target, question).last
    if torch is not None and torch.cuda is not None and _runs(torch, question):
        return f'ENV NVIDIA_REQUIRE_CUDA="cuda>={torch.cuda.major}.0": {torch.shown} needs no more'
    return "ask for what the wheels inside need, not more: a CUDA 12 wheel runs from cuda>=12.0 on"


def _refused(target: Target, question: Question, cuda: CudaVersion) -> Iterator[Seen]:
    driver, row, eligible = driver_of(question), question.tables.image(cuda), compat_eligible(question)
    saw = f"{target.image.name} asks for cuda>={cuda.release}; {machine_words(question)} on {gpu_words(question)}"
    older = _older_image(target.image, question)
    if row is not None and driver is not None and driver.branch in row.branches and eligible is not False:
        return  # let in by the list of branches; torch-needs-newer-driver speaks where compat is needed after all
    if row is None and eligible is not False:
        yield Seen(
            target.place,
            f"{saw}; whether its list of older driver branches has this one is not in the tables",
            older,
            severity=Severity.DEGRADES,
        )
        return
    why = "GeForce and Titan are in no image's list of exceptions" if eligible is False else "its list lacks it"
    yield Seen(target.place, f"{saw}; {why}", older)


def _older_image(image: Image, question: Question) -> tuple[str, ...]:
    own = driver_cuda(question)
    assert image.cuda is not None
    same = own is not None and runs_major(question, image.cuda.major)
    out = [f"use a base image of CUDA {own} or older" if own is not None else "use an older base image"]
    if same:
        floor = f"cuda>={image.cuda.major}.0"
        out.append(f'or ENV NVIDIA_REQUIRE_CUDA="{floor}": the driver runs CUDA {image.cuda.major} of any minor')
    return tuple(out)


def torch_needs_newer_driver(target: Target, question: Question) -> Iterator[Seen]:
    """pip install torch brings CUDA 13, which driver 550 does not run."""
    found = torches(target, question)
    torch = found.last
    if torch is None or torch.cuda is None or runs_major(question, torch.cuda.major) is not False:
        return
    saw = f"{torch.how}: {torch.shown} needs driver {floor_of(question, torch.cuda.major)}; {machine_words(question)}"
    kept = next((each.before for each in found.replaced if each.after == torch and _runs(each.before, question)), None)
    keep = () if kept is None else (f"keep {kept.shown} of line {kept.place.line}: see torch-overwritten-later",)
    do = keep or _other_wheel(torch, question)
    inside = next((each for each in _compat_inside(target) if each.cuda.major == torch.cuda.major), None)
    if inside is not None and compat_serves(question, inside.cuda):
        yield Seen(
            torch.place,
            f"{saw}. Only the compat library inside makes it run: {inside.where}",
            (
                "start it where the container toolkit sees to compat (its ldconfig mode), or through `firstlight run`",
                *do,
            ),
            because="The driver alone does not run it. Something has to put the compat library in front where the "
            "driver is older, and only there: NVIDIA's container toolkit does so for /usr/local/cuda/compat.",
            severity=Severity.NOTE if "/firstlight/compat" in inside.where else Severity.DEGRADES,
        )
        return
    yield Seen(torch.place, saw, do)


@dataclass(frozen=True, slots=True)
class _Compat:
    """A compat library in the image and where it comes from, e.g. 13.0 of nvidia/cuda:13.0.2-base-ubuntu22.04."""

    cuda: CudaVersion
    where: str


def _compat_inside(target: Target) -> Iterator[_Compat]:
    """The compat libraries of the base, of apt packages, and of folders copied in that name their CUDA."""
    if target.image.has_compat and target.image.cuda is not None:
        yield _Compat(target.image.cuda, target.image.name)
    for package, ran in apt_packages(target):
        if match := re.fullmatch(r"cuda-compat-(\d+)-(\d+)", package):
            yield _Compat(CudaVersion(int(match[1]), int(match[2])), f"{package} (line {ran.place.line})")
    for event in target.events:
        if isinstance(event, Copied) and (match := re.search(r"compat.*cuda-(\d+)\.(\d+)", event.destination)):
            cuda = CudaVersion(int(match[1]), int(match[2]))
            yield _Compat(cuda, f"{event.destination} (line {event.place.line})")


def _runs(torch: InImage, question: Question) -> bool:
    return torch.cuda is not None and runs_major(question, torch.cuda.major) is not False


def _other_wheel(torch: InImage, question: Question) -> tuple[str, ...]:
    wheel = wheel_for(question, torch.version, torch.python)
    if wheel is None:
        return ("no official wheel is known to run there: a newer driver is needed",)
    return (f"RUN {install_words(wheel)}",)


def torch_has_no_code_for_gpu(target: Target, question: Question) -> Iterator[Seen]:
    """torch 2.5.1 has no code for an RTX 5090 (12.0)."""
    torch = torches(target, question).last
    if torch is None or torch.cuda is None:
        return
    missing = [gpu for gpu in gpus_of(question) if runs_on_gpu(torch, gpu.capability, question) is Runs.NO]
    if missing:
        names = ", ".join(dict.fromkeys(f"{gpu.name} ({gpu.capability})" for gpu in missing))
        saw = f"{torch.how}: {torch.shown} {_code_words(torch, question)}, none of which runs on {names}"
        yield Seen(torch.place, saw, _other_wheel(torch, question))


def _code_words(torch: InImage, question: Question) -> str:
    """'has code for sm_80 sm_90'; where that is not known, what its compiler can make: 'sm_35 to sm_90'."""
    if codes := codes_of(torch, question):
        return "has code for " + " ".join(code.sm for code in codes)
    reach = codes_in_reach(torch, question)
    return f"can have code for {reach[0].sm} to {reach[-1].sm}, all that its compiler makes"


def torch_is_cpu_only(target: Target, question: Question) -> Iterator[Seen]:
    """The index .../whl/cpu, or an arm64 wheel of PyPI that is built without CUDA."""
    torch = torches(target, question).last
    if torch is None or torch.variant != "cpu" or not gpus_of(question):
        return
    yield Seen(torch.place, f"{torch.how}: {torch.shown}", _other_wheel(torch, question))


def torch_wheel_does_not_exist(target: Target, question: Question) -> Iterator[Seen]:
    """torch==2.9.0 from .../whl/cu121: that release was never built for it."""
    torch = torches(target, question).last
    if torch is None or not torch.pinned or torch.install is None or torch.install.tool == "conda":
        return
    if no_index_has_local(torch.install) and not _may_be_configured(target):
        default = torch.install.index or "PyPI, which carries no versions with a local part"
        searched = " and ".join((*torch.install.extra_indexes, default))
        saw = f"{torch.how}: no torch {torch.version} is on {searched}"
        yield Seen(torch.place, saw, _other_wheel(torch, question))
        return
    newest = question.tables.newest_torch(question.facts.place.arch)
    if torch.version.stage != 2 or newest is None or torch.version > newest.torch:
        return
    known = certain_variants(question, torch.version)
    if torch.cuda is not None and torch.from_index and known and torch.cuda not in known:
        tags = ", ".join(cuda.tag for cuda in sorted(known))
        saw = f"{torch.how}: torch {torch.version.public} has no {torch.cuda.tag}; known for it: {tags}"
        yield Seen(torch.place, saw, _other_wheel(torch, question))
        return
    yield from _python_lacks(torch, question)


def _may_be_configured(target: Target) -> bool:
    """Whether pip or uv may read an index from a file of the image, which is not looked at."""
    copied = [event.destination for event in target.events if isinstance(event, Copied)]
    written = [path for ran in target.ran for path in ran.command.writes]
    read = re.compile(r"pip\.conf$|/\.?pip/?$|uv\.toml$|/uv/?$")
    return target.image.flavour is Flavour.UNKNOWN or any(read.search(path) for path in (*copied, *written))


def _python_lacks(torch: InImage, question: Question) -> Iterator[Seen]:
    release = question.tables.torch_release(torch.version.public, question.facts.place.arch)
    if release is None or not torch.python or torch.python in release.cpython:
        return
    pythons = ", ".join(release.cpython)
    saw = f"{torch.how}: torch {torch.version.public} has wheels for Python {pythons}; the image has {torch.python}"
    yield Seen(torch.place, saw, (_python_way(torch.version, torch.python, question),))


def _python_way(version: TorchVersion, python: str, question: Question) -> str:
    wheel = wheel_for(question, version, python)
    release = question.tables.torch_release(version.public, question.facts.place.arch)
    newest = release.cpython[-1].rstrip("t") if release is not None else ""
    other = f", or RUN {install_words(wheel)}" if wheel is not None else ""
    return f"use Python {newest}{other}"


def torch_overwritten_later(target: Target, question: Question) -> Iterator[Seen]:
    """pip install torchvision, on its own line after a pinned torch, brings the newest torch with it."""
    for each in torches(target, question).replaced:
        ran = each.install.ran
        after = "" if each.after is None else f" by {each.after.shown}"
        saw = f"{ran.shown} replaces {each.before.shown} (line {each.before.place.line}){after}: {each.why}"
        do = _keeping(each, question)
        earlier = target.ran[: target.ran.index(ran)]
        compiled = next((built for built, _ in cuda_builds(target) if built in earlier), None)
        if compiled is None:
            yield Seen(ran.place, saw, do)
            continue
        yield Seen(
            ran.place,
            f"{saw}. {compiled.shown} (line {compiled.place.line}) was compiled with the torch that is replaced",
            do,
            because="An extension works with the torch that it was compiled with, and with no other.",
            error="ImportError: ... undefined symbol: _ZN3c10...",
            severity=Severity.BLOCKS,
        )


def _keeping(found: Replacement, question: Question) -> tuple[str, ...]:
    """What to write so that the torch that was chosen stays."""
    hold = "pip freeze | grep -i '^torch==' > /tmp/held && pip install -c /tmp/held ..."
    if found.project == "torch":
        return (f"install torch once, in one place; or hold it: {hold}",)
    rows = question.tables.companions_for(found.project, found.before.version)
    fitting = newest(tuple(row.version for row in rows))
    if fitting:
        return (f"name the release that goes with torch {found.before.version.public}: {found.project}=={fitting}",)
    return (f"no {found.project} of the tables goes with torch {found.before.version.public}; hold torch: {hold}",)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


DRIVER_LINT_RULES = (
    LintRule(
        "image-refused-by-driver",
        image_refused_by_driver,
        Severity.BLOCKS,
        "the container does not start: the image asks for a newer CUDA than the driver has",
        "NVIDIA's container toolkit holds NVIDIA_REQUIRE_CUDA of the image against the driver before it starts.",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=..., please update your driver",
        _TOOLKIT_ENV,
    ),
    LintRule(
        "torch-needs-newer-driver",
        torch_needs_newer_driver,
        Severity.BLOCKS,
        "the torch inside is built for a CUDA that the driver does not run",
        "The driver comes from the host; nothing in the image can make it newer. torch.cuda.is_available() is False.",
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
        "torch-wheel-does-not-exist",
        torch_wheel_does_not_exist,
        Severity.BLOCKS,
        "the build fails: there is no such torch wheel",
        "pip finds no file for this version, CUDA and Python.",
        "ERROR: Could not find a version that satisfies the requirement torch",
        "pytorch.org/get-started/previous-versions",
    ),
    LintRule(
        "torch-overwritten-later",
        torch_overwritten_later,
        Severity.DEGRADES,
        "a later install replaces the torch that was chosen",
        "pip holds nothing that an earlier command installed: what is named last wins, with PyPI's CUDA.",
        "",
        "pip.pypa.io/en/stable/user_guide/#constraints-files",
    ),
)
