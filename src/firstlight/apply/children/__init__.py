"""Scripts that run in the interpreter of an environment that is changed; each prints one JSON object."""

from __future__ import annotations

from firstlight.machine.interface import ChildScript


def child_script(name: str) -> ChildScript:
    """The script of that name in this folder, e.g. 'environment'."""
    import pkgutil

    source = pkgutil.get_data(__name__, f"{name}.py")
    assert source is not None, name
    return ChildScript(name, source.decode("utf-8"))
