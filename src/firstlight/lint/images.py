"""What the name of a base image tells: its CUDA, its torch, its Python, whether a toolkit is inside."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum

from firstlight.errors import BadVersion
from firstlight.frozen import dataclass
from firstlight.lint.torch_in_tag import torch_in_tag
from firstlight.versions import CudaVersion, TorchVersion

_NAME = re.compile(r"(?P<repository>[^@:]+(?::\d+/[^@:]+)?)(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]+))?")
LONGEST_NAME = 512  # Docker takes 255 for the repository and 128 for the tag
CUDA_REPOSITORIES = ("nvidia/cuda", "nvcr.io/nvidia/cuda")
# Servers that are of no use without a GPU; what is inside is not in their names.
GPU_SERVERS = ("vllm/vllm-openai", "lmsysorg/sglang", "ghcr.io/huggingface/text-generation-inference")
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
    cudnn: int = 0  # the major of the cuDNN in an image of nvidia/cuda; 0 = none
    python: str = ""  # 3.12, where the name tells
    system: str = ""  # ubuntu24.04
    has_python: bool = True
    has_compat: bool = False  # /usr/local/cuda/compat is inside
    asks_for_gpus: bool = False  # sets NVIDIA_VISIBLE_DEVICES
    requires_cuda: bool = False  # sets NVIDIA_REQUIRE_CUDA
    library_path: str = ""  # what LD_LIBRARY_PATH is in it
    processors: tuple[str, ...] = ()  # x86_64, aarch64, tegra, where its repository publishes not all of them
    is_rocm: bool = False  # for AMD's GPUs
    released: tuple[int, int] = (0, 0)  # (25, 4) of NVIDIA's images that are named by a date
    vendor_torch: bool = False  # a torch of NVIDIA's own build is inside, of no release on an index

    @property
    def is_cuda(self) -> bool:
        """Whether CUDA or a torch with CUDA is inside by its name."""
        return self.cuda is not None or self.asks_for_gpus

    @property
    def is_server(self) -> bool:
        """Whether it is a server of language models, which passes tensors through /dev/shm."""
        return self.repository in GPU_SERVERS

    @property
    def server_release(self) -> str:
        """0.6.3 of vllm/vllm-openai:v0.6.3, 3.0.1 of .../text-generation-inference:3.0.1; '' where none is named."""
        match = re.match(r"v?(\d+\.\d+\.\d+(?:\.post\d+)?)(?:-|$)", self.tag) if self.is_server else None
        return "" if match is None else match.group(1)

    @property
    def tagged_cuda(self) -> CudaVersion | None:
        """CUDA 12.4 of lmsysorg/sglang:v0.4.5-cu124; None where the tag names none."""
        match = _CUDA_IN_TAG.search(self.tag)
        return None if match is None else _cuda(match.group(1))

    @property
    def managed_python(self) -> bool:
        """Whether pip of the system refuses to install (externally-managed-environment)."""
        return self.system in _MANAGED


# Read in the issues of their projects: pytorch/pytorch#145716 and NVIDIA-NeMo/labs-molt#122 (no arm64 manifest).
# huggingface/text-generation-inference#2332 (asked for GH200 and not made); huggingface/text-embeddings-inference#900
# (its tags for arm64 have a name of their own, cpu-arm64-...). The docker-bake.hcl files of runpod/containers; the
# repositories of aws/deep-learning-containers, whose arm64 ones are called -arm64 or -graviton.
_X86_ONLY = re.compile(
    r"(?:docker\.io/|ghcr\.io/)?(?:pytorch/pytorch|rocm/.+|tensorflow/tensorflow|huggingface/text-generation-inference"
    r"|huggingface/text-embeddings-inference|runpod/[\w.-]+"
    r"|\d+\.dkr\.ecr\.[\w.-]+/(?:huggingface-)?(?:pytorch|tensorflow)-(?:training|inference))"
)
# What gives GPUs to others and is given none itself: github.com/NVIDIA/k8s-device-plugin, deployments/static.
_INFRASTRUCTURE = re.compile(
    r"nvcr\.io/nvidia/(?:k8s-device-plugin|gpu-feature-discovery|gpu-operator|driver|distroless/|cloud-native/"
    r"|k8s/(?:container-toolkit|dcgm-exporter))"
)
# Jetson's: built for the GPU in its chip and for the driver of Jetson Linux, which no server has.
_TEGRA = re.compile(r"nvcr\.io/(?:nvidia|ea-linux4tegra)/(?:l4t|jetson)[\w.-]*|dustynv/.+|ultralytics/.+:.*jetson.*")
_VENDOR_TORCH = re.compile(r"nvcr\.io/nvidia/(?:pytorch|l4t-pytorch|l4t-ml|nemo)|dustynv/.*(?:torch|l4t-ml).*")


# docs.nvidia.com/deeplearning/triton-inference-server, introduction/compatibility: NVIDIA's images of 24.12 have CUDA
# 12.6, those of 25.01 have 12.8, the first that knows Blackwell.
KNOWS_BLACKWELL = (25, 1)


# A tag that says GPU (tensorflow:2.16.1-gpu-jupyter), and one of the same projects for other makers' or none.
_FOR_A_GPU = re.compile(r"(?:^|[-_.])(?:gpu|cuda(?:-?1[1-3])?|cublas|cu1[1-3]\d)(?:$|[-_.])")
_FOR_OTHERS = re.compile(r"(?:^|[-_.])(?:rocm|hip|intel|xpu|sycl|vulkan|amd$|cpu|xeon|npu|neuron|gaudi)")


def image_named(name: str) -> Image:
    """What a name tells; a name that tells nothing is UNKNOWN, never wrong."""
    image = _by_name(name)
    if "$" in name:
        return image
    tegra = _TEGRA.fullmatch(image.repository) or (
        image.repository.startswith("nvcr.io/nvidia/") and image.tag.endswith("-igpu")
    )
    return replace(
        image,
        processors=("tegra",) if tegra else ("x86_64",) if _is_x86_only(image) else (),
        is_rocm=image.repository.startswith("rocm/") or re.search(r"(?:^|[-_])rocm", image.tag) is not None,
        released=_released(image),
        vendor_torch=_VENDOR_TORCH.fullmatch(image.repository) is not None,
        asks_for_gpus=not _FOR_OTHERS.search(image.tag)
        and (image.asks_for_gpus or bool(tegra) or _FOR_A_GPU.search(image.tag) is not None),
    )


# The first release with images for arm64 under the same tag: vllm-project/vllm#22206 (of 0.10.0);
# .github/workflows/release-docker.yml of sgl-project/sglang at v0.5.3 (its arm64 has tags with -gb200) and v0.5.4.
_FIRST_FOR_ARM = {GPU_SERVERS[0]: (0, 10), GPU_SERVERS[1]: (0, 5, 4)}


def _is_x86_only(image: Image) -> bool:
    """Whether it is for amd64 alone: servers before a release, and repositories that never had another."""
    if re.search(r"arm64|aarch64|gb200", image.tag):
        return False
    number = image.server_release.partition(".post")[0]
    first = _FIRST_FOR_ARM.get(image.repository, ()) if number else ()
    early = tuple(int(part) for part in number.split(".")) < first if first else False
    return early or _X86_ONLY.fullmatch(image.repository) is not None


def _released(image: Image) -> tuple[int, int]:
    dated = re.match(r"(\d\d)\.(\d\d)(?:-|$)", image.tag)
    if dated is None or not image.repository.startswith("nvcr.io/nvidia/"):
        return (0, 0)
    return int(dated.group(1)), int(dated.group(2))


def _by_name(name: str) -> Image:
    match = _NAME.fullmatch(name.strip()) if len(name) <= LONGEST_NAME else None
    if match is None or "$" in name:
        return Image(name, name, "", pinned="@sha256:" in name, flavour=Flavour.UNKNOWN)
    repository = match["repository"].removeprefix("docker.io/").removeprefix("library/")
    tag, pinned = match["tag"] or "", match["digest"] is not None
    if repository in CUDA_REPOSITORIES:
        return _nvidia_cuda(name, repository, tag, pinned=pinned)
    if repository == "pytorch/pytorch":
        return _pytorch(name, repository, tag, pinned=pinned)
    nvidias = repository.startswith("nvcr.io/nvidia/") and _INFRASTRUCTURE.match(repository) is None
    if nvidias or repository in GPU_SERVERS:
        # What these hold is not in their names: 25.04 is a date.
        return Image(name, repository, tag, pinned, Flavour.UNKNOWN, asks_for_gpus=True)
    if repository in ("python", "ubuntu", "debian") or _CUDA_IN_TAG.search(tag) is None:
        return _plain(name, repository, tag, pinned=pinned)
    found = _CUDA_IN_TAG.search(tag)
    assert found is not None
    system = _system(tag)
    flavour = _flavour(tag, Flavour.UNKNOWN)
    cuda, torch = _cuda(found.group(1)), torch_in_tag(repository, tag)
    return Image(name, repository, tag, pinned, flavour, cuda, torch, system=system, asks_for_gpus=True)


# 12.8 of cuda12.8.1 and cu128; cu1281 has its third number too.
_CUDA_IN_TAG = re.compile(
    r"(?:^|[-_.])(?:cuda|cu)[-_.]?(\d{1,2}\.\d{1,2}(?:\.\d+)?|1[1-9]\d)(?:(?<=cu\d{3})\d)?(?![\d.])"
)


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
        cudnn=_cudnn(tag),
        system=system,
        python=_SYSTEM_PYTHON.get(system, ""),
        has_python=False,
        has_compat=True,
        asks_for_gpus=True,
        requires_cuda=True,
        library_path=path,
    )


def _cudnn(tag: str) -> int:
    """8 of ...-cudnn8-runtime...; the tags of today say `cudnn` alone, and hold 9."""
    match = re.search(r"-cudnn(\d*)(?:-|$)", tag)
    return 0 if match is None else int(match.group(1) or 9)


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
    return Image(name, repository, tag, pinned, flavour, has_python=repository != "alpine")


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
