"""A kernel ready to be launched, found again by what it was built from: a new pattern must not read sources again.

Looking for a build in cache.py means reading a kernel's sources and hashing them, 0.3 to 0.4 ms, as often as it is
asked. A process asks once for each variant and device.
"""

from __future__ import annotations

import functools

from firstlight.kernels.sm90.cache import built
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.driver import Kernel, load


@functools.lru_cache(maxsize=1024)  # the sources of a running process do not change
def loaded(variant: Variant, *, device: int, shared_bytes: int = 0) -> Kernel:
    """The kernel of a variant, which is named as its source, on a device; compiled the first time."""
    return load(built(variant).cubin, variant.source, device=device, shared_bytes=shared_bytes)
