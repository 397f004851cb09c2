"""Scripts that run in a child process of their own; each prints one JSON object."""

from __future__ import annotations

from firstlight.machine.interface import ChildScript


def child_script(name: str) -> ChildScript:
    """The script of that name in this folder, e.g. 'libcuda', read so that it is also found inside a zipapp."""
    import pkgutil

    source = pkgutil.get_data(__name__, f"{name}.py")
    assert source is not None, name
    return ChildScript(name, source.decode("utf-8"))
