"""Which CUDA the other frameworks of an image are built for: JAX, TensorFlow, ONNX Runtime, CuPy, servers."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.frozen import dataclass
from firstlight.lint.images import GPU_SERVERS, KNOWS_BLACKWELL
from firstlight.lint.installs import installs
from firstlight.lint.model import Install, Place, ProjectAsked, Target, stages_of
from firstlight.specifiers import satisfies
from firstlight.tables.pin_rows import FrameworkBuild, FrameworkExtra
from firstlight.versions import CudaVersion, TorchVersion

_JAX = re.compile(r"jax(?:-cuda\d+-(?:plugin|pjrt))?")
_FOR_OTHERS = frozenset(("tpu", "rocm", "rocm7-local"))  # extras of jax for what is no GPU of NVIDIA's
_WITHOUT_CUDA = ("jax", "onnxruntime", "tensorflow-cpu")


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework that an install brings: tensorflow 2.15.1 for CUDA 12.2; major 0: it has no CUDA."""

    project: str
    shown: str  # tensorflow[and-cuda]==2.15.1
    place: Place
    major: int
    cuda: str = ""  # 12.2, where its compiler is known
    cudnn: int = 0
    brings_libraries: bool = True
    install: Install | None = None
    extras: tuple[str, ...] = ()
    spec: str = ""  # ==2.15.1
    lacks: str = ""  # why its extra brings no CUDA: "the extra cuda13 brings a plugin from jax 0.7.2 on"
    torch: TorchVersion | None = None  # inside a server's image


def frameworks(target: Target, question: Question) -> tuple[Framework, ...]:
    """The frameworks of an image by its installs; the last one of each project counts."""
    found: dict[str, Framework] = {}
    if (inside := in_base(target, question)) is not None:
        found[inside.project] = inside
    for stage in reversed(stages_of(target)):
        for install in installs(stage):
            if install.tool == "conda":
                continue  # conda-forge builds its own
            for asked in install.requirements:
                if (one := _framework(asked, install, question)) is not None:
                    found[one.project] = one
    return tuple(found.values())


def in_base(target: Target, question: Question) -> Framework | None:
    """The framework that the base is made for: vLLM's image, or TensorFlow's with -gpu."""
    image = target.image
    if image.server_release:
        return _vllm(target, question) if image.repository == GPU_SERVERS[0] else _server(target, question)
    if image.released != (0, 0) and (made := re.fullmatch(r"nvcr\.io/nvidia/(tensorflow|jax)", image.repository)):
        before = image.released < KNOWS_BLACKWELL
        return Framework(made.group(1), image.name, target.place, 12, "12.6" if before else "")
    release = re.match(r"(\d+\.\d+\.\d+)(-gpu)?", image.tag) if image.repository == "tensorflow/tensorflow" else None
    row = None if release is None else _row(ProjectAsked("tensorflow", f"=={release.group(1)}"), question)
    if release is None or row is None:
        return None
    major = row.major if release.group(2) else 0
    shown = f"tensorflow {release.group(1)} of {image.name}"
    return Framework("tensorflow", shown, target.place, major, cuda_of(row), row.cudnn)


SERVERS = {"lmsysorg/sglang": "SGLang", "ghcr.io/huggingface/text-generation-inference": "TGI"}


def _server(target: Target, question: Question) -> Framework | None:
    """SGLang or TGI in its own image, with the CUDA of the torch inside; None of a release without a row."""
    image = target.image
    row = _row(ProjectAsked(image.repository, f"=={image.server_release}"), question)
    named = image.tagged_cuda
    if row is None or image.is_rocm or not image.asks_for_gpus or (named is not None and named.major > row.major):
        return None
    # 12.5 in a tag is of the image: its torch is of the row's 12.4. A tag may name an older or a newer build too.
    cuda = row.cuda if named is None or named.release == CudaVersion(12, 5) else str(named.release)
    name = SERVERS[image.repository]
    major = CudaVersion.parse(cuda).major
    return Framework(name.lower(), f"{name} {image.server_release}", target.place, major, cuda)


def _vllm(target: Target, question: Question) -> Framework | None:
    """vLLM in its own image, with the CUDA of the torch that its release pins: 0.6.3 has CUDA 12.1."""
    row = question.tables.companion("vllm", target.image.server_release)
    pin = None if row is None else row.pin("torch")
    release = None if pin is None else question.tables.torch_release(pin.version, "x86_64")
    if release is None or release.wheel_cuda is None:
        return None
    cuda, number = release.wheel_cuda, target.image.server_release
    if _release_of(number) >= _VLLM_OF_12_8:
        cuda = max(cuda, CudaVersion(12, 8))
    cuda = target.image.tagged_cuda or cuda
    return Framework("vllm", f"vLLM {number}", target.place, cuda.major, str(cuda), torch=release.torch)


# Its images have CUDA 12.8 from 0.9.0 on, whatever PyPI's torch has: vllm-project/vllm#18813 (asks for cuda>=12.8) and
# #18818 (its torch, with no code for Volta).
_VLLM_OF_12_8 = (0, 9)


def _release_of(number: str) -> tuple[int, ...]:
    return tuple(int(part) for part in number.partition(".post")[0].split("."))


def _framework(asked: ProjectAsked, install: Install, question: Question) -> Framework | None:
    if asked.address:
        return None
    extras = f"[{','.join(asked.extras)}]" if asked.extras else ""
    shown = f"{asked.project}{extras}{asked.spec}"
    place = asked.place or install.ran.place
    if _JAX.fullmatch(asked.project):
        if not _FOR_OTHERS.isdisjoint(asked.extras):
            return None
        return _jax(
            asked, Framework("jax", shown, place, 0, install=install, extras=asked.extras, spec=asked.spec), question
        )
    if asked.project in _WITHOUT_CUDA:
        return Framework(asked.project, shown, place, 0, install=install, spec=asked.spec)
    row = _row(asked, question)
    if row is None:
        return None
    if question.facts.place.arch not in row.machines:
        return Framework(asked.project, shown, place, 0, install=install, extras=asked.extras, spec=asked.spec)
    return Framework(
        asked.project,
        shown,
        place,
        row.major,
        cuda_of(row),
        row.cudnn,
        brings_libraries=bool(row.brought_by) and row.brought_by in asked.extras,
        install=install,
        extras=asked.extras,
        spec=asked.spec,
    )


def _jax(asked: ProjectAsked, plain: Framework, question: Question) -> Framework:
    """JAX with the CUDA of its extra; without where no release that is asked for has that extra."""
    rows = [row for row in question.tables.framework_extras if row.project == asked.project]
    named = [row for row in rows if row.extra in {_normal(extra) for extra in asked.extras}]
    for row in named:
        if has_extra(row, asked.spec):
            return replace(plain, major=row.major)
    if named and all(_was_looked_at(row, asked) for row in named):
        row = named[-1]
        until = f" and before {row.before}" if row.before else ""
        return replace(plain, lacks=f"the extra {row.extra} brings CUDA from jax {row.first} on{until}")
    return replace(plain, major=_jax_major(asked))


def has_extra(row: FrameworkExtra, spec: str) -> bool:
    """Whether the release that pip takes has the extra: of jax==0.4.30 cuda12, not cuda13."""
    exact = ProjectAsked(row.project, spec).exact
    taken = exact or next((version for version in _RELEASES_OF_JAX if not spec or satisfies(version, spec)), row.first)
    return bool(satisfies(taken, f">={row.first}" + (f",<{row.before}" if row.before else "")))


# Numbers that stand for releases, newest first, also of those to come: the first that a bound such as <0.5 admits.
_RELEASES_OF_JAX = tuple(
    f"0.{minor}.{patch}" for minor in range(20, 3, -1) for patch in reversed(range(40 if minor == 4 else 5))
)


def _was_looked_at(row: FrameworkExtra, asked: ProjectAsked) -> bool:
    """Whether the releases that are asked for are among those whose extras were read."""
    return not asked.exact or bool(satisfies(asked.exact, f">={row.seen_from},<{row.unseen_from}"))


def _normal(extra: str) -> str:
    return extra.lower().replace("_", "-")


def _jax_major(asked: ProjectAsked) -> int:
    """12 of jax[cuda12] and jax-cuda12-plugin; `cuda` alone is CUDA 12, by the METADATA of jax 0.6.2 to 0.12.0."""
    if match := re.search(r"cuda(\d+)", asked.project):
        return int(match.group(1)[:2])
    for extra in asked.extras:
        if match := re.match(r"cuda(\d\d)?", extra):
            return int(match.group(1) or 12)
    return 0


def _row(asked: ProjectAsked, question: Question) -> FrameworkBuild | None:
    rows = [row for row in question.tables.framework_builds if row.project == asked.project]
    if asked.exact:
        version = asked.exact.partition("+")[0]
        known = (row for row in rows if not row.unseen_from or satisfies(version, f"<{row.unseen_from}"))
        return next((row for row in known if satisfies(version, bounds_of(row))), None)
    if asked.spec:  # the newest build of which some release is admitted
        fitting = [row for row in rows if any(satisfies(version, asked.spec) for version in _some_of(row))]
        return fitting[-1] if fitting else None
    return rows[-1] if rows else None


def _some_of(row: FrameworkBuild) -> tuple[str, ...]:
    """Versions that stand for the releases of one build: 2.16, 2.17 and what comes before 2.18."""
    major, minor = (int(part) for part in f"{row.first}.0".split(".")[:2])
    end = row.before or row.unseen_from
    last = int(end.split(".")[1]) if end else minor + 12
    return tuple(f"{major}.{each}.{patch}" for each in range(minor, last) for patch in (0, 9))


def bounds_of(row: FrameworkBuild) -> str:
    """>=2.16,<2.18: the releases of one build."""
    return f">={row.first}" + (f",<{row.before}" if row.before else "")


def cuda_of(row: FrameworkBuild) -> str:
    """The CUDA of its compiler, 12.2; '' where only the major is known."""
    return row.cuda if "." in row.cuda else ""


def named_for_gpu(each: Framework) -> bool:
    """Whether the name of what is installed says GPU: tensorflow[and-cuda], onnxruntime-gpu."""
    return any(re.search(r"gpu|cuda", name) for name in (each.project, *each.extras))
