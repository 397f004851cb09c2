"""Which torch an install takes: by the indexes that it searches, by conda's packages, and by what the tables know."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_bounds import variants_of, why_no_variant
from firstlight.errors import BadVersion
from firstlight.frozen import dataclass
from firstlight.lint.images import Flavour
from firstlight.lint.installs import AUTO, CPU
from firstlight.lint.model import Copied, Install, ProjectAsked, Syntax, Target
from firstlight.specifiers import newest, satisfies
from firstlight.tables.torch_rows import TorchRelease
from firstlight.versions import CudaVersion, TorchVersion

_INDEX_TAG = re.compile(r"/whl/(?:nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]*|xpu)/?$")
_PYPI = re.compile(r"^https?://(?:[^/@]*@)?pypi\.(?:python\.)?org(?:/|$)")
_LISTS = (Syntax.REQUIREMENTS, Syntax.PYPROJECT, Syntax.PIXI)
_OF_PYTORCH = re.compile(r"cu\d|cpu|rocm|xpu")
_CUDA_TAG = re.compile(r"cu\d{2,3}")
# The packages by which conda chooses the CUDA of pytorch; the last is conda-forge's.
_CONDA_CUDA = ("pytorch-cuda", "cudatoolkit", "cuda-version")


@dataclass(frozen=True, slots=True)
class Taken:
    """The torch that an install takes: 2.9.0, cu130, of https://download.pytorch.org/whl/cu130."""

    version: TorchVersion
    variant: str  # cu130, cpu; '' where neither version nor index tell
    index: str  # '' is PyPI

    @property
    def has_local(self) -> bool:
        """Whether the installed version has a local part: PyPI's has none."""
        return bool(self.variant)


def torch_asked(install: Install) -> ProjectAsked | None:
    """What an install asks of torch, which conda calls pytorch; None where it does not name it."""
    return install.of("torch") or (install.of("pytorch") if install.tool == "conda" else None)


def taken(
    install: Install, asked: ProjectAsked, question: Question, *, python: str, admitted: frozenset[str] = frozenset()
) -> Taken | None:
    """The torch that an install takes, of those admitted where any are named; None where the tables cannot tell."""
    if asked.address:
        return _of_address(asked.address)
    if any("jetson" in index for index in (asked.index, install.index, *install.extra_indexes)):
        return None  # NVIDIA's builds for Jetson, of which the tables know nothing
    if install.backend == AUTO:
        return None  # by the driver that is there when it runs: torch-backend-auto-in-build speaks of builds
    if asked.index:  # the file takes this one project from there and nowhere else
        install = replace(install, index=asked.index, extra_indexes=())
    exact = _parsed(asked.exact)
    if asked.exact and exact is None:
        return None
    if install.tool == "conda":
        variant = _conda_variant(install)
        exact = exact or (_newest(question, asked.spec, variant, python=python) if variant == CPU else None)
        return None if exact is None else Taken(exact, variant, "")
    if exact is not None and exact.local:
        return Taken(exact, exact.local, install.index)
    if exact is None and "--pre" in install.options:
        return None
    return _best(install, asked, question, python=python, admitted=admitted)


def _best(
    install: Install, asked: ProjectAsked, question: Question, *, python: str, admitted: frozenset[str]
) -> Taken | None:
    """The highest version over all indexes, which is what pip takes: 2.9.0+cu130 is higher than PyPI's 2.9.0.

    uv looks at one index only, the first that has the project, and --extra-index-url and --index come before the
    default index: docs.astral.sh/uv/pip/compatibility, "Packages that exist on multiple indexes".
    """
    exact = _parsed(asked.exact)
    extra = [index for index in install.extra_indexes if variant_of(index) or _PYPI.search(index)]
    indexes = [*extra, install.index]
    if install.first_index:
        indexes = indexes[:1]
    found: dict[str, Taken] = {}
    for index in indexes:
        variant = variant_of(index)
        version = exact if exact is None or _has(index, exact, question) else None
        if exact is None and "/nightly/" not in index:
            version = _newest(question, asked.spec, variant, python=python, admitted=admitted)
        if version is not None:
            found[f"{version.public}+{variant}" if variant else version.public] = Taken(version, variant, index)
    best = newest(tuple(found))
    if best:
        return found[best]
    # No index is known to have it: it is taken at its word, and torch-wheel-does-not-exist speaks.
    return None if exact is None else Taken(exact, variant_of(indexes[-1]), indexes[-1])


def variant_of(index: str) -> str:
    """cu130 of https://download.pytorch.org/whl/cu130; '' of PyPI and of indexes that do not tell."""
    match = _INDEX_TAG.search(index)
    return "" if match is None else match.group(1)


# PyTorch's index has CUDA wheels for aarch64 of CUDA 12.4 and later: docling-project/docling-serve#281 looks them up.
_FIRST_FOR_AARCH64 = CudaVersion(12, 4)


def none_for_processor(variant: str, question: Question) -> bool:
    """Whether an index of PyTorch's has nothing for the machine's processor: cu121 for aarch64."""
    older = variant.startswith("cu") and CudaVersion.from_tag(variant[:5]) < _FIRST_FOR_AARCH64
    return older and question.facts.place.arch == "aarch64"


def only_index(install: Install, asked: ProjectAsked) -> str:
    """The one index that torch can come of; '' where there are several."""
    if asked.index:
        return asked.index
    first = (*install.extra_indexes, install.index)[:1] if install.first_index else ()
    alone = (install.index,) if not install.extra_indexes else first
    return alone[0] if alone else ""


def _has(index: str, version: TorchVersion, question: Question) -> bool:
    """Whether an index has a release; yes where the tables know no variants of the release at all."""
    if "/nightly/" in index or version.is_nightly:
        return "/nightly/" in index and version.is_nightly
    variant = variant_of(index)
    if none_for_processor(variant, question):
        return False
    if not variant.startswith("cu") or not question.tables.torch_variants(version):
        return True
    return not _why_no_variant(question, version, variant)


def no_index_has_local(install: Install, asked: ProjectAsked | None) -> bool:
    """Whether torch, or what is beside it, is asked for with a local part (2.9.0+cu130) of indexes without it.

    PyPI takes no local versions: packaging.python.org/en/latest/specifications/version-specifiers.
    """
    if asked is None or "+" not in asked.exact or install.tool == "conda" or install.find_links:
        return False
    local = asked.exact.partition("+")[2]
    indexes = (asked.index,) if asked.index else (install.index, *install.extra_indexes)
    return not any(_could_have(index, local) for index in indexes)


def may_be_configured(target: Target, local: str) -> bool:
    """Whether pip or uv may read an index from a file that is not looked at; a cluster's own has +computecanada."""
    copied = [event.destination for event in target.events if isinstance(event, Copied)]
    written = [path for ran in target.ran for path in ran.command.writes]
    read = re.compile(r"pip\.conf$|/\.?pip/?$|uv\.toml$|/uv/?$")
    unknown = target.image.flavour is Flavour.UNKNOWN if target.image.name else _OF_PYTORCH.match(local) is None
    return unknown or any(read.search(path) for path in (*copied, *written))


def index_may_be_told(install: Install) -> bool:
    """Whether a list of packages names no index itself, so that the command that installs it may."""
    asked = torch_asked(install)
    named = install.index or install.extra_indexes or (asked is not None and asked.index)
    return install.ran.place.syntax in _LISTS and not named


def _could_have(index: str, local: str) -> bool:
    if variant := variant_of(index):
        return f"{local}.".startswith(f"{variant}.")
    return bool(index) and _PYPI.search(index) is None


def _of_address(address: str) -> Taken | None:
    match = re.search(r"torch-(\d+\.\d+\.\d+(?:(?:%2B|\+)\w+)?)", address)
    version = None if match is None else _parsed(match.group(1).replace("%2B", "+"))
    return None if version is None else Taken(version, version.local, address)


def _conda_variant(install: Install) -> str:
    """cu118 of pytorch-cuda=11.8; cpu of cpuonly; '' where the command does not name the CUDA."""
    if install.of("cpuonly") is not None:
        return CPU
    for each in map(install.of, _CONDA_CUDA):
        if each is not None and re.fullmatch(r"\d+\.\d(?:\.\d+)*", each.exact):
            return CudaVersion.parse(".".join(each.exact.split(".")[:2])).tag
    return install.backend if not any(map(install.of, _CONDA_CUDA)) else ""


def _parsed(text: str) -> TorchVersion | None:
    try:
        return TorchVersion.parse(text) if text else None
    except BadVersion:
        return None


def _newest(
    question: Question, spec: str, variant: str, *, python: str, admitted: frozenset[str] = frozenset()
) -> TorchVersion | None:
    """The newest release that the tables know for this machine, Python, specifier and variant."""
    tables = question.tables
    fitting: dict[str, TorchRelease] = {}
    for row in tables.torch_releases:
        if row.machine != question.facts.place.arch or (python and python not in row.cpython):
            continue
        if (spec and not satisfies(row.torch.public, spec)) or (admitted and row.torch.public not in admitted):
            continue
        if variant.startswith("cu") and not _is_listed(question, row.torch, variant):
            continue
        fitting[row.torch.public] = row
    best = newest(tuple(fitting))
    return fitting[best].torch if best else None


def _is_listed(question: Question, torch: TorchVersion, variant: str) -> bool:
    """Whether PyTorch names a variant: what a plain install takes is the newest of which that is known."""
    if none_for_processor(variant, question):
        return False
    known = variants_of(question.tables, torch, machine=question.facts.place.arch)
    return CudaVersion.from_tag(variant) in known


def _why_no_variant(question: Question, torch: TorchVersion, variant: str) -> str:
    """Why a release cannot have a variant, e.g. cu121 of 2.9.0; '' where it may."""
    return why_no_variant(question.tables, torch, CudaVersion.from_tag(variant), machine=question.facts.place.arch)


@dataclass(frozen=True, slots=True)
class BuiltFor:
    """What a torch is built for: CUDA 12.4, cu124; cuda None: 'cpu', another maker's GPUs, or '' for not known."""

    cuda: CudaVersion | None
    variant: str


def built_for(found: Taken, install: Install, question: Question) -> BuiltFor:
    """The CUDA of a torch that is taken: its variant's, else that of PyPI's wheel."""
    if match := _CUDA_TAG.match(found.variant):  # cu118 of cu118.with.pypi.cudnn too
        return BuiltFor(CudaVersion.from_tag(match.group()), match.group())
    if found.variant or install.tool == "conda":
        return BuiltFor(None, found.variant)
    release = question.tables.torch_release(found.version.public, question.facts.place.arch)
    if release is None:
        return _before_the_tables(found.version, question)
    return BuiltFor(release.wheel_cuda, "cpu" if release.wheel_cuda is None else release.wheel_cuda.tag)


# pytorch.org/get-started/previous-versions: of 1.5 to 1.11 the plain `pip install torch==...` is the one of CUDA 10.2;
# for aarch64 PyPI had none with CUDA before 2.11 (the tables, from 1.12 on).
_FIRST_OF_10_2, _IN_THE_TABLES = (1, 5), (1, 12)


def _before_the_tables(version: TorchVersion, question: Question) -> BuiltFor:
    """What PyPI's wheel of a torch older than the tables is built for."""
    if not _FIRST_OF_10_2 <= version.release[:2] < _IN_THE_TABLES:
        return BuiltFor(None, "")
    if question.facts.place.arch != "x86_64":
        return BuiltFor(None, CPU)
    return BuiltFor(CudaVersion(10, 2), "cu102")
