"""Rows about the error codes of CUDA and NVML, and about the error texts that `explain` knows."""

from enum import Enum

from firstlight.tables.row import Row, row_class


class ErrorApi(Enum):
    """The library that gives a code."""

    CUDA = "cuda"
    NVML = "nvml"


@row_class(frozen=True, slots=True, kw_only=True)
class ErrorCode(Row):
    """An error code: 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, and the exact text the runtime prints.

    The driver API, the runtime API and the text are '' where that library has none for the code.
    """

    api: ErrorApi
    code: int
    name: str
    runtime_name: str
    text: str
    meaning: str = ""


@row_class(frozen=True, slots=True, kw_only=True)
class ErrorText(Row):
    """An error text that is known: vllm-no-device, of the product vllm, in the family device-not-visible.

    The product is general and the family '' where the words are CUDA's, torch's or the system's own.
    """

    code: str
    product: str
    family: str
    title: str
