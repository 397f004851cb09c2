"""What can go wrong between a kernel's source and its launch, apart from input that the backend does not take."""

from __future__ import annotations

from firstlight.errors import FirstlightError


class KernelBuildFailed(FirstlightError, RuntimeError):
    """A compiler refused a kernel; names the command, the first error line and the file with the whole log."""

    exit_code = 1


class DriverCallFailed(FirstlightError, RuntimeError):
    """The CUDA driver refused a call, e.g. 'cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200), ...'."""

    exit_code = 1

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
