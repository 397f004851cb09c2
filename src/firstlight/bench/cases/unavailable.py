"""What `prepare` raises when the place turns out to lack the kernel a case is about."""

from __future__ import annotations

from firstlight.errors import FirstlightError


class Unavailable(FirstlightError):
    """No kernel for the case here, e.g. torch built without flash attention: the case is skipped with this text."""
