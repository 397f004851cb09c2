"""Who in an image brings the CUDA libraries that a framework does not bring itself: the base, torch, wheels, apt."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.frozen import dataclass
from firstlight.lint.images import Flavour
from firstlight.lint.installs import apt_packages, installs
from firstlight.lint.model import Target
from firstlight.lint.torches import torches

ANY_CUDNN = -1
_WITH_LIBRARIES = (Flavour.RUNTIME, Flavour.DEVEL)
_OF_NVIDIA = re.compile(r"nvidia-(?:cublas|cuda-runtime|cudnn)-cu(\d+)|cuda-toolkit|cudatoolkit|cudnn")


@dataclass(frozen=True, slots=True)
class Libraries:
    """CUDA libraries that something brings: CUDA 12 with cuDNN 9 of the base image; cuDNN 0 = none."""

    major: int
    cudnn: int
    where: str

    @property
    def shown(self) -> str:
        cudnn = "" if self.cudnn == ANY_CUDNN else f" with cuDNN {self.cudnn}" if self.cudnn else " without cuDNN"
        return f"CUDA {self.major}{cudnn}"


def libraries_of(target: Target, question: Question) -> tuple[Libraries, ...]:
    """All that bring some, the image first; a library of unknown version serves everybody."""
    return tuple(_found(target, question))


def _found(target: Target, question: Question) -> Iterator[Libraries]:
    image, torch = target.image, torches(target, question).last
    by_torch = 0 if torch is None else torch_cudnn(torch.version.public)
    if image.cuda is not None and image.flavour in _WITH_LIBRARIES and image.torch is None:
        yield Libraries(image.cuda.major, image.cudnn or _cudnn_of_apt(target) or by_torch, image.name)
    if torch is not None and torch.cuda is not None:
        yield Libraries(torch.cuda.major, by_torch, torch.shown)
    for install in installs(target):
        for each in install.requirements:
            if match := _OF_NVIDIA.fullmatch(each.project):
                majors = (int(match.group(1)),) if match.group(1) else (11, 12, 13)
                yield from (Libraries(major, ANY_CUDNN, each.project) for major in majors)


def _cudnn_of_apt(target: Target) -> int:
    """9 of libcudnn9-cuda-12 and of cudnn9-cuda-12."""
    named = (re.match(r"(?:lib)?cudnn(\d)", package) for package, _ in apt_packages(target))
    return next((int(match.group(1)) for match in named if match is not None), 0)


def torch_cudnn(version: str) -> int:
    """torch has cuDNN 9 from 2.4 on: onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return 9 if (major, minor) >= (2, 4) else 8
