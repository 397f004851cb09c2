"""Which toolkit and which variables a build would take here."""

from __future__ import annotations

from firstlight.facts.collect import Facts
from firstlight.facts.known import Unknown
from firstlight.facts.toolkits import Part, Toolkit

# How cpp_extension found its toolkit -> how the probe found it.
_FOUND_BY = {"nvcc on PATH": "PATH"}


def toolkit_in_use(facts: Facts) -> Toolkit | None:
    """The toolkit torch.utils.cpp_extension would take: CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda."""
    home = facts.toolkits.cpp_extension_home
    if isinstance(home, Unknown):
        return None
    found_by = _FOUND_BY.get(home.seen_in, home.seen_in)
    for toolkit in facts.toolkits.toolkits:
        if toolkit.path == home.value.rstrip("/") or found_by in toolkit.found_by:
            return toolkit
    return None


def is_wrapped(facts: Facts) -> bool:
    """Whether nvcc on PATH is a script outside the toolkit, and torch takes the folder above it for CUDA_HOME."""
    on_path, home = facts.toolkits.nvcc_on_path, facts.toolkits.cpp_extension_home
    if isinstance(on_path, Unknown) or isinstance(home, Unknown):
        return False
    return on_path.value.is_wrapper and home.seen_in == "nvcc on PATH"


def has_compiler(toolkit: Toolkit) -> bool:
    return Part.NVCC in toolkit.has


def variable(facts: Facts, name: str) -> str:
    """The value of a build variable, "" when it is not set."""
    return next((each.value for each in facts.build_variables if each.name == name), "")
