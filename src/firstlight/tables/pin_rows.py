"""Rows about the packages around torch: what each release requires, which wheels PyPI has of it, how large they are."""

import datetime

from firstlight.tables.row import Pin, Row, row_class


@row_class(frozen=True, slots=True, kw_only=True)
class PackagePins(Row):
    """A release on PyPI: vllm 0.11.0 requires torch==2.8.0, has wheels cp38-abi3 for both machines, of CUDA 12.

    x86_64 and aarch64 hold the Pythons of the Linux wheels: cp312, cp313t, cp38-abi3 (3.8 and later), py3 (any); () =
    no wheel. cuda_major_* is that of the libcudart its libraries name; None = they name none.
    """

    project: str
    version: str
    released: datetime.date
    requires_python: str
    x86_64: tuple[str, ...]
    aarch64: tuple[str, ...]
    cuda_major_x86_64: int | None
    cuda_major_aarch64: int | None
    sdist: bool
    requires: tuple[Pin, ...]
    requires_x86_64: tuple[Pin, ...]  # besides those of every machine
    requires_aarch64: tuple[Pin, ...]

    def pythons(self, machine: str) -> tuple[str, ...]:
        """The Pythons that PyPI has a wheel for on a machine, e.g. ('cp38-abi3',)."""
        return {"x86_64": self.x86_64, "aarch64": self.aarch64}.get(machine, ())

    def cuda_major(self, machine: str) -> int | None:
        """The CUDA major the wheel for a machine is linked with, e.g. 12."""
        return {"x86_64": self.cuda_major_x86_64, "aarch64": self.cuda_major_aarch64}.get(machine)

    def pin(self, project: str) -> Pin | None:
        """The requirement on a project on x86_64, e.g. 'torch'."""
        return next((pin for pin in self.pins("x86_64") if pin.project == project), None)

    def pins(self, machine: str) -> tuple[Pin, ...]:
        """What it requires on a machine: vllm 0.11.0 requires xformers on x86_64 alone."""
        own = {"x86_64": self.requires_x86_64, "aarch64": self.requires_aarch64}
        return (*self.requires, *own.get(machine, ()))


@row_class(frozen=True, slots=True, kw_only=True)
class BesideWheel(Row):
    """A release that is installed beside torch, by the Pythons of its Linux wheels: numpy 2.5.4 has cp312 to cp315."""

    project: str
    version: str
    x86_64: tuple[str, ...]
    aarch64: tuple[str, ...]

    def pythons(self, machine: str) -> tuple[str, ...]:
        """The Pythons that PyPI has a wheel for on a machine, e.g. ('cp312', 'cp313')."""
        return {"x86_64": self.x86_64, "aarch64": self.aarch64}.get(machine, ())


@row_class(frozen=True, slots=True, kw_only=True)
class WheelSize(Row):
    """A file on PyPI: torch 2.9.0 for x86_64 has 899738273 bytes and pulls nvidia-cudnn-cu12==9.10.2.21 and more.

    machine 'source' = a source archive. pulls: the nvidia-*, cuda-* and triton wheels that pip fetches with it.
    """

    project: str
    version: str
    machine: str
    bytes: int
    pulls: tuple[Pin, ...]


@row_class(frozen=True, slots=True, kw_only=True)
class FrameworkExtra(Row):
    """Releases whose extra brings CUDA: jax[cuda13] from 0.7.2 on; of releases before seen_from nothing is known."""

    project: str
    extra: str
    first: str
    before: str  # '' = up to the newest
    cuda: str
    seen_from: str
    unseen_from: str

    @property
    def major(self) -> int:
        return int(self.cuda)


@row_class(frozen=True, slots=True, kw_only=True)
class FrameworkBuild(Row):
    """Releases of another framework on PyPI: tensorflow from 2.18 on is built for CUDA 12.5 and cuDNN 9, on x86_64.

    cuda: '12' stands for any minor. before '' = up to the newest. brought_by: the extra that brings the libraries.
    unseen_from: the first release after those that were looked at, 2.22; '' = of all releases it is known by the name.
    """

    project: str
    first: str
    before: str
    cuda: str
    cudnn: int  # 0 = none is needed
    machines: tuple[str, ...]  # where the wheel has CUDA at all
    brought_by: str
    unseen_from: str = ""

    @property
    def major(self) -> int:
        return int(self.cuda.partition(".")[0])
