"""Random edits of a recorded machine: a fact forgotten, an item lost, another driver, torch, path or mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.records import VERSION_TYPES

_KEPT = ("selected",)  # an index into a list beside it
_FORGOTTEN = Unknown("forgotten")
_DRIVERS = ("470.82.01", "535.104.05", "550.54.15", "570.133.20", "580.95.05", "595.45.04", "610.20.01", "unknown")
_TORCHES = ("1.13.1", "2.4.0+cu118", "2.6.0+cu124", "2.9.0+cu130", "2.9.0+cpu", "2.15.0", "2.16.0.dev20261101+cu132")
_PATHS = ("/usr/local/cuda/compat", "/usr/local/cuda-13.0/compat", "/usr/local/cuda/lib64", "/opt/x/lib", "")
_MASKS = ("", "0", "7", "-1", "0,1", "GPU-deadbeef")
_CODES = ("0", "3", "34", "46", "100", "304", "802", "803", "804", "999", "unknown")


@dataclass(frozen=True, slots=True)
class Edit:
    """What is edited and a number that chooses where, or to what."""

    kind: str
    number: int


KINDS = ("forget", "lose", "driver", "torch", "path", "mask", "cuinit")


def edited(facts: Facts, edit: Edit) -> Facts:
    """The facts with one edit; one that has no place on this machine leaves them."""
    match edit.kind:
        case "forget" | "lose":
            places = tuple(_places(facts, edit.kind, ()))
            return facts if not places else _without(facts, places[edit.number % len(places)])
        case "driver":
            return override(facts, (f"driver={_DRIVERS[edit.number % len(_DRIVERS)]}",))
        case "cuinit":
            return override(facts, (f"cuinit={_CODES[edit.number % len(_CODES)]}",))
        case "torch" if isinstance(facts.torch, Known):
            return override(facts, (f"torch.version={_TORCHES[edit.number % len(_TORCHES)]}",))
        case "path":
            path = (_PATHS[edit.number % len(_PATHS)], *facts.libcuda.ld_library_path)
            return replace(facts, libcuda=replace(facts.libcuda, ld_library_path=path))
        case "mask":
            mask = Known(_MASKS[edit.number % len(_MASKS)], "CUDA_VISIBLE_DEVICES")
            return replace(facts, gpus=replace(facts.gpus, cuda_visible_devices=mask))
    return facts


def _places(value: Any, kind: str, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where a known fact can be forgotten, or an item of a list lost."""
    if isinstance(value, Known):
        if kind == "forget":
            yield path
        yield from _places(value.value, kind, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if kind == "lose":
                yield (*path, index)
            yield from _places(item, kind, (*path, index))
    elif is_dataclass(value) and not isinstance(value, (type, *VERSION_TYPES)):
        for field in fields(value):
            if field.name not in _KEPT and not (kind == "lose" and field.name == "environments"):
                yield from _places(getattr(value, field.name), kind, (*path, field.name))


def _without(value: Any, path: tuple[str | int, ...]) -> Any:
    """The value without what lies at the path: a list loses the item, a fact is Unknown."""
    if not path:
        return _FORGOTTEN
    if isinstance(value, Known):
        return Known(_without(value.value, path), value.seen_in)
    first, rest = path[0], path[1:]
    if isinstance(first, int):
        inside = () if not rest and not isinstance(value[first], Known) else (_without(value[first], rest),)
        return (*value[:first], *inside, *value[first + 1 :])
    return replace(value, **{first: _without(getattr(value, first), rest)})
