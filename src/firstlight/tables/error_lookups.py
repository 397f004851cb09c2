"""Questions about error codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows

if TYPE_CHECKING:
    from firstlight.tables.error_rows import ErrorCode
    from firstlight.tables.xid_rows import Xid


class ErrorLookups(StoredRows):
    """The group `errors`. None means that the tables do not know."""

    __slots__ = ()

    @property
    def error_codes(self) -> tuple[ErrorCode, ...]:
        return self._rows("error_codes")

    @property
    def xids(self) -> tuple[Xid, ...]:
        return self._rows("xids")

    def xid(self, code: int) -> Xid | None:
        """An Xid by number: xid(79).action is RESTART_MACHINE."""
        return next((row for row in self.xids if row.code == code), None)

    def error(self, code: int) -> ErrorCode | None:
        """A CUDA error by number: error(803).name is 'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH'."""
        return self._error("cuda", code)

    def nvml_error(self, code: int) -> ErrorCode | None:
        """An NVML error by number: nvml_error(18).name is 'NVML_ERROR_LIB_RM_VERSION_MISMATCH'."""
        return self._error("nvml", code)

    def _error(self, api: str, code: int) -> ErrorCode | None:
        rows = (row for row in self.error_codes if row.api.value == api)
        return next((row for row in rows if row.code == code), None)

    def errors_in(self, text: str) -> tuple[ErrorCode, ...]:
        """The CUDA errors whose own words, or whose name, stand in a text; longest words first."""
        found = [row for row in self.error_codes if row.api.value == "cuda" and _speaks(row, text)]
        return tuple(sorted(found, key=lambda row: len(row.text), reverse=True))


def _speaks(row: ErrorCode, text: str) -> bool:
    # Two words or more: 'out of memory' is a quotation, a lone 'timeout' is not.
    if " " in row.text and row.text in text:
        return True
    return any(name and name in text.split() for name in (row.name, row.runtime_name))
