"""Which of two kernel modules of one name is loaded: depmod has an order of folders."""

from __future__ import annotations

# depmod.conf(5): updates is searched first; RHEL, Fedora and SUSE put extra beside it. The kernel's own tree is last.
_BEFORE_THE_KERNELS = ("/updates/", "/extra/")


def comes_first(path: str) -> bool:
    """Whether a module hides one in the kernel's own tree, e.g. /lib/modules/6.8.0-60/updates/dkms/nvidia.ko."""
    return any(folder in path for folder in _BEFORE_THE_KERNELS)
