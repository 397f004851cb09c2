"""What the name of a base image tells: its CUDA, its torch, its Python, whether a toolkit is inside."""

from __future__ import annotations

import re
from enum import Enum

from firstlight.errors import BadVersion
from firstlight.frozen import dataclass
from firstlight.versions import CudaVersion, TorchVersion

_NAME = re.compile(r"(?P<repository>[^@:]+(?::\d+/[^@:]+)?)(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]+))?")
CUDA_REPOSITORIES = ("nvidia/cuda", "nvcr.io/nvidia/cuda")
# Servers that are of no use without a GPU; what is inside is not in their names.
_GPU_SERVERS = ("vllm/vllm-openai", "lmsysorg/sglang", "ghcr.io/huggingface/text-generation-inference")
# Python of the distribution, as its apt has it.
_SYSTEM_PYTHON = {
    "ubuntu20.04": "3.8",
    "ubuntu22.04": "3.10",
    "ubuntu24.04": "3.12",
    "ubuntu26.04": "3.14",
    "debian11": "3.9",
    "debian12": "3.11",
    "debian13": "3.13",
}
# From these on the distribution's pip refuses to install beside apt (PEP 668).
_MANAGED = ("ubuntu24.04", "ubuntu26.04", "debian12", "debian13")
_CODE_NAMES = {
    "focal": "ubuntu20.04",
    "jammy": "ubuntu22.04",
    "noble": "ubuntu24.04",
    "bullseye": "debian11",
    "bookworm": "debian12",
    "trixie": "debian13",
}


class Flavour(Enum):
    """How much of a toolkit an image has: devel has nvcc; NONE has nothing of CUDA; UNKNOWN: its name does not say."""

    BASE = "base"
    RUNTIME = "runtime"
    DEVEL = "devel"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Image:
    """A base image by its name: nvidia/cuda:12.8.1-devel-ubuntu22.04 has CUDA 12.8.1 with nvcc, and no Python."""

    name: str
    repository: str
    tag: str
    pinned: bool  # by digest
    flavour: Flavour
    cuda: CudaVersion | None = None
    torch: TorchVersion | None = None
    companions: tuple[str, ...] = ()  # what comes with its torch: torchvision
    python: str = ""  # 3.12, where the name tells
    system: str = ""  # ubuntu24.04
    has_python: bool = True
    has_compat: bool = False  # /usr/local/cuda/compat is inside
    asks_for_gpus: bool = False  # sets NVIDIA_VISIBLE_DEVICES
    requires_cuda: bool = False  # sets NVIDIA_REQUIRE_CUDA
    library_path: str = ""  # what LD_LIBRARY_PATH is in it

    @property
    def is_cuda(self) -> bool:
        """Whether CUDA or a torch with CUDA is inside by its name."""
        return self.cuda is not None or self.asks_for_gpus

    @property
    def managed_python(self) -> bool:
        """Whether pip of the system refuses to install (externally-managed-environment)."""
        return self.system in _MANAGED


def image_named(name: str) -> Image:
    """What a name tells; a name that tells nothing is UNKNOWN, never wrong."""
    match = _NAME.fullmatch(name.strip())
    if match is None or "$" in name:
        return Image(name, name, "", pinned="@sha256:" in name, flavour=Flavour.UNKNOWN)
    repository = match["repository"].removeprefix("docker.io/").removeprefix("library/")
    tag, pinned = match["tag"] or "", match["digest"] is not None
    if repository in CUDA_REPOSITORIES:
        return _nvidia_cuda(name, repository, tag, pinned=pinned)
    if repository == "pytorch/pytorch":
        return _pytorch(name, repository, tag, pinned=pinned)
    if repository.startswith("nvcr.io/nvidia/") or repository in _GPU_SERVERS:
        # What these hold is not in their names: 25.04 is a date.
        return Image(name, repository, tag, pinned, Flavour.UNKNOWN, asks_for_gpus=True)
    if repository in ("python", "ubuntu", "debian") or _CUDA_IN_TAG.search(tag) is None:
        return _plain(name, repository, tag, pinned=pinned)
    found = _CUDA_IN_TAG.search(tag)
    assert found is not None
    system = _system(tag)
    flavour = _flavour(tag, Flavour.UNKNOWN)
    return Image(name, repository, tag, pinned, flavour, cuda=_cuda(found.group(1)), system=system, asks_for_gpus=True)


_CUDA_IN_TAG = re.compile(r"(?:^|[-_.])(?:cuda|cu)[-_.]?(\d{1,2}\.\d{1,2}(?:\.\d+)?|1[1-9]\d)(?![\d.])")


def _nvidia_cuda(name: str, repository: str, tag: str, *, pinned: bool) -> Image:
    system = _system(tag)
    version = re.match(r"\d+\.\d+(?:\.\d+)?", tag)
    # From public Dockerfiles, not read from the images: /usr/local/nvidia is where some hosts mount the driver.
    path = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    return Image(
        name,
        repository,
        tag,
        pinned,
        _flavour(tag, Flavour.UNKNOWN),
        cuda=_cuda(version.group()) if version is not None else None,
        system=system,
        python=_SYSTEM_PYTHON.get(system, ""),
        has_python=False,
        has_compat=True,
        asks_for_gpus=True,
        requires_cuda=True,
        library_path=path,
    )


def _pytorch(name: str, repository: str, tag: str, *, pinned: bool) -> Image:
    match = re.match(r"(?P<torch>\d+\.\d+(?:\.\d+)?)-cuda(?P<cuda>\d+\.\d+(?:\.\d+)?)", tag)
    flavour = _flavour(tag, Flavour.RUNTIME)
    devel = flavour is Flavour.DEVEL  # built on nvidia/cuda; the runtime ones on a plain ubuntu
    return Image(
        name,
        repository,
        tag,
        pinned,
        flavour,
        cuda=_cuda(match["cuda"]) if match is not None else None,
        torch=_torch(match["torch"]) if match is not None else None,
        companions=("torchvision", "torchaudio"),  # the Dockerfile of github.com/pytorch/pytorch installs all three
        has_compat=devel,
        asks_for_gpus=True,
        requires_cuda=devel,
        library_path="/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    )


def _plain(name: str, repository: str, tag: str, *, pinned: bool) -> Image:
    short = repository.rpartition("/")[2]
    if short == "python":
        version = re.match(r"3\.\d+", tag)
        python = version.group() if version is not None else ""
        return Image(name, repository, tag, pinned, Flavour.NONE, python=python)
    if short in ("ubuntu", "debian"):
        system = _system(f"{short}{tag}")
        python = _SYSTEM_PYTHON.get(system, "")
        return Image(name, repository, tag, pinned, Flavour.NONE, python=python, system=system, has_python=False)
    known_plain = ("alpine", "busybox", "fedora", "rockylinux", "almalinux", "miniconda3", "micromamba", "uv", "node")
    flavour = Flavour.NONE if short in known_plain else Flavour.UNKNOWN
    return Image(name, repository, tag, pinned, flavour)


def _system(text: str) -> str:
    match = re.search(r"(ubuntu|debian)-?(\d+(?:\.\d+)?)", text)
    if match is not None:
        return match.group(1) + (match.group(2) if match.group(1) == "ubuntu" else match.group(2).split(".")[0])
    return next((system for code, system in _CODE_NAMES.items() if code in text), "")


def _flavour(tag: str, otherwise: Flavour) -> Flavour:
    words = re.split(r"[-_.]", tag)
    return next((each for each in (Flavour.DEVEL, Flavour.RUNTIME, Flavour.BASE) if each.value in words), otherwise)


def _cuda(text: str) -> CudaVersion | None:
    try:
        return CudaVersion.parse(text) if "." in text else CudaVersion.from_tag(f"cu{text}")
    except BadVersion:
        return None


def _torch(text: str) -> TorchVersion | None:
    try:
        return TorchVersion.parse(text)
    except BadVersion:
        return None
