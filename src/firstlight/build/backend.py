"""Who turns a tree into a wheel; apart from how a tree is read, so that a stage starts without that."""

from __future__ import annotations

import enum


class Backend(enum.Enum):
    """Who turns the tree into a wheel, and so how it is configured, compiled and told what to do."""

    SKBUILD = "scikit-build-core"  # CMake and Ninja; configured apart, compiled by ninja, packed by the backend
    PYTORCH = "PyTorch's setup.py"  # CMake and Ninja behind a setup.py of its own, with a switch to configure alone
    TORCH_EXTENSION = "torch.utils.cpp_extension"  # setuptools; ninja runs inside the making of the wheel
    SETUPTOOLS = "setuptools"  # no record of units: after a stop whole modules are compiled again
    OTHER = "another backend"


BY_NINJA = (Backend.SKBUILD, Backend.PYTORCH)  # ninja is ours to start, so that units and targets can be named
