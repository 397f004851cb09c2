"""Which torch an install takes: by the indexes that it searches, by conda's packages, and by what the tables know."""

from __future__ import annotations

import re

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.specifiers import newest, satisfies
from firstlight.errors import BadVersion
from firstlight.frozen import dataclass
from firstlight.lint.installs import Install, Requirement
from firstlight.tables.torch_rows import TorchRelease, VariantStatus
from firstlight.versions import CudaVersion, TorchVersion

_INDEX_TAG = re.compile(r"/whl/(?:nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]*|xpu)/?$")
_PYPI = re.compile(r"^https?://(?:[^/@]*@)?pypi\.(?:python\.)?org(?:/|$)")
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


def torch_asked(install: Install) -> Requirement | None:
    """What an install asks of torch, which conda calls pytorch; None where it does not name it."""
    return install.of("torch") or (install.of("pytorch") if install.tool == "conda" else None)


def taken(install: Install, asked: Requirement, question: Question, *, python: str) -> Taken | None:
    """The torch that an install takes; None where the tables cannot tell, as of nightlies."""
    if asked.address:
        return _of_address(asked.address)
    exact = _parsed(asked.exact)
    if asked.exact and exact is None:
        return None
    if install.tool == "conda":
        return None if exact is None else Taken(exact, _conda_variant(install), "")
    if exact is not None and exact.local:
        return Taken(exact, exact.local, install.index)
    if exact is None and "--pre" in install.options:
        return None
    return _best(install, asked, question, python=python)


def _best(install: Install, asked: Requirement, question: Question, *, python: str) -> Taken | None:
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
            version = _newest(question, asked.spec, variant, python=python)
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


def _has(index: str, version: TorchVersion, question: Question) -> bool:
    """Whether an index has a release; yes where the tables know no variants of the release at all."""
    if "/nightly/" in index or version.is_nightly:
        return "/nightly/" in index and version.is_nightly
    variant = variant_of(index)
    if not variant.startswith("cu") or not question.tables.torch_variants(version):
        return True
    return CudaVersion.from_tag(variant) in _variants(question, version)


def no_index_has_local(install: Install) -> bool:
    """Whether torch is asked for with a local part (2.9.0+cu130) of indexes that cannot have it.

    PyPI takes no local versions: packaging.python.org/en/latest/specifications/version-specifiers.
    """
    asked = torch_asked(install)
    if asked is None or "+" not in asked.exact or install.tool == "conda" or install.find_links:
        return False
    local = asked.exact.partition("+")[2]
    return not any(_could_have(index, local) for index in (install.index, *install.extra_indexes))


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
        return "cpu"
    for each in map(install.of, _CONDA_CUDA):
        if each is not None and re.fullmatch(r"\d+\.\d(?:\.\d+)*", each.exact):
            return CudaVersion.parse(".".join(each.exact.split(".")[:2])).tag
    return ""


def _parsed(text: str) -> TorchVersion | None:
    try:
        return TorchVersion.parse(text) if text else None
    except BadVersion:
        return None


def _newest(question: Question, spec: str, variant: str, *, python: str) -> TorchVersion | None:
    """The newest release that the tables know for this machine, Python, specifier and variant."""
    tables = question.tables
    fitting: dict[str, TorchRelease] = {}
    for row in tables.torch_releases:
        if row.machine != question.facts.place.arch or (python and python not in row.cpython):
            continue
        if spec and not satisfies(row.torch.public, spec):
            continue
        if variant.startswith("cu") and CudaVersion.from_tag(variant) not in _variants(question, row.torch):
            continue
        fitting[row.torch.public] = row
    best = newest(tuple(fitting))
    return fitting[best].torch if best else None


def _variants(question: Question, torch: TorchVersion) -> set[CudaVersion]:
    """The CUDA variants of a torch that PyTorch's index is said to have."""
    rows = question.tables.torch_variants(torch)
    known = {row.wheel_cuda for row in rows}
    release = question.tables.torch_release(torch.public, question.facts.place.arch)
    if release is not None and release.wheel_cuda is not None:
        known.add(release.wheel_cuda)
    return known


def certain_variants(question: Question, torch: TorchVersion) -> set[CudaVersion]:
    """The same, () where one of them is only in torch's own list, so that the index may have more or fewer."""
    rows = question.tables.torch_variants(torch)
    if any(row.status is VariantStatus.IN_WHEEL_TABLE for row in rows):
        return set()
    return _variants(question, torch)


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
        return BuiltFor(None, "")
    return BuiltFor(release.wheel_cuda, "cpu" if release.wheel_cuda is None else release.wheel_cuda.tag)
