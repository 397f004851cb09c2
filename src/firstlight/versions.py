"""Driver, CUDA, torch and compute-capability versions: parse, compare, print."""

from __future__ import annotations

import re
from dataclasses import field

from firstlight.errors import BadVersion
from firstlight.frozen import dataclass

# Eighteen digits hold every date; Python refuses to read a number of thousands.
_DRIVER = re.compile(r"\d{2,4}(?:\.\d{1,18}){0,3}")
_CUDA = re.compile(r"(\d{1,2})\.(\d{1,2})(?:\.(\d{1,18}))?(?:\.\d{1,18})?")
_CUDA_TAG = re.compile(r"cu(\d{2,4})")
_TORCH = re.compile(
    r"(?P<release>\d{1,18}(?:\.\d{1,18})+)"
    r"(?P<stage>(?:a|b|rc|alpha|beta)\d*)?"
    r"(?:\.?post(?P<post>\d{1,18}))?"
    r"(?:\.?dev(?P<dev>\d{1,18}))?"
    r"(?:\+(?P<local>[A-Za-z0-9._-]+))?"
)
_CAPABILITY = re.compile(r"(?:sm_|compute_)?(\d{1,9})\.?(\d)([af]?)")


def canonical(project: str) -> str:
    """A project's name as indexes compare it (PEP 503): flash-attn for Flash_Attn."""
    return re.sub(r"[-_.]+", "-", project).lower()


@dataclass(frozen=True, slots=True, order=True)
class DriverVersion:
    """A driver version such as 580.95.05: compared field by field as integers, printed as written."""

    parts: tuple[int, ...]
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> DriverVersion:
        cleaned = text.strip()
        if not _DRIVER.fullmatch(cleaned):
            raise BadVersion(
                f"{_shown(text)} is not a driver version; accepted: numbers joined by dots, e.g. 580.95.05. "
                "Give the number from /sys/module/nvidia/version."
            )
        return cls(tuple(int(part) for part in cleaned.split(".")), cleaned)

    @property
    def branch(self) -> int:
        """The release branch, e.g. 580."""
        return self.parts[0]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, order=True)
class CudaVersion:
    """A CUDA version such as 13.0 or 13.0.88; the third number is left out where it is not known."""

    major: int
    minor: int
    patch: int = -1

    @classmethod
    def parse(cls, text: str) -> CudaVersion:
        match = _CUDA.fullmatch(text.strip())
        if match is None:
            raise BadVersion(f"{_shown(text)} is not a CUDA version; accepted: MAJOR.MINOR, e.g. 13.0.")
        major, minor, patch = match.groups()
        return cls(int(major), int(minor), -1 if patch is None else int(patch))

    @classmethod
    def from_driver_number(cls, number: int) -> CudaVersion:
        """What cuDriverGetVersion returns, 1000*major + 10*minor: 12040 is 12.4."""
        if number < 1000:
            raise BadVersion(
                f"{number} is not a cuDriverGetVersion answer; accepted: 1000*major + 10*minor, e.g. 13000."
            )
        return cls(number // 1000, number % 1000 // 10)

    @classmethod
    def from_tag(cls, tag: str) -> CudaVersion:
        """A wheel tag: cu130 is 13.0, cu118 is 11.8, cu92 is 9.2."""
        match = _CUDA_TAG.fullmatch(tag.strip())
        if match is None:
            raise BadVersion(f"{_shown(tag)} is not a CUDA wheel tag; accepted: cu and digits, e.g. cu130.")
        digits = match.group(1)
        return cls(int(digits[:-1]), int(digits[-1]))

    @property
    def tag(self) -> str:
        """The wheel tag, e.g. cu130."""
        return f"cu{self.major}{self.minor}"

    @property
    def release(self) -> CudaVersion:
        """Major and minor alone: 13.0.88 is 13.0."""
        return self if self.patch < 0 else CudaVersion(self.major, self.minor)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + ("" if self.patch < 0 else f".{self.patch}")


@dataclass(frozen=True, slots=True, order=True)
class ComputeCapability:
    """A compute capability such as 9.0; `sm_90a` and `9.0` both parse to it."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        match = _CAPABILITY.fullmatch(text.strip())
        if match is None:
            raise BadVersion(f"{_shown(text)} is not a compute capability; accepted: 9.0, sm_90, sm_90a.")
        return cls(int(match.group(1)), int(match.group(2)))

    @property
    def sm(self) -> str:
        """The architecture name, e.g. sm_90."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True, order=True)
class TorchVersion:
    """A torch version such as 2.9.0+cu130 or 2.10.0.dev20251015+cu130.

    Ordered by release, then development < pre-release < release < post; the local part (+cu130) does not order.
    """

    release: tuple[int, ...]
    stage: int  # 0 development, 1 alpha/beta/rc, 2 release, 3 post
    number: int
    local: str = field(compare=False)
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> TorchVersion:
        match = _TORCH.fullmatch(text.strip())
        if match is None:
            raise BadVersion(
                f"{_shown(text)} is not a torch version; accepted: e.g. 2.9.0+cu130 or 2.10.0.dev20251015."
            )
        release = tuple(int(part) for part in match["release"].split("."))
        if match["dev"] is not None:
            stage, number = 0, int(match["dev"])
        elif match["stage"] is not None:
            stage, number = 1, int(re.sub(r"\D", "", match["stage"]) or 0)
        elif match["post"] is not None:
            stage, number = 3, int(match["post"])
        else:
            stage, number = 2, 0
        return cls((*release, 0, 0, 0)[: max(3, len(release))], stage, number, match["local"] or "", text.strip())

    @property
    def is_nightly(self) -> bool:
        return self.stage == 0

    @property
    def cuda(self) -> CudaVersion | None:
        """CUDA named by the local part: 13.0 for +cu130; None for +cpu or none (PyPI's wheels name nothing)."""
        return CudaVersion.from_tag(self.local) if _CUDA_TAG.fullmatch(self.local) else None

    @property
    def public(self) -> str:
        """Without the local part: 2.9.0 for 2.9.0+cu130."""
        return self.text.split("+", 1)[0]

    def __str__(self) -> str:
        return self.text


def _shown(text: str) -> str:
    """The text given, short and printable, for an error message."""
    return ascii(text if len(text) <= 40 else text[:37] + "...")
