"""The variables that a lock keeps: CUDA_*, LD_*, TORCH_* and NCCL_*, without people, devices and secrets in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known
from firstlight.frozen import dataclass
from firstlight.lock.places import Places
from firstlight.lock.stack import Held, Part

PREFIXES = ("CUDA_", "LD_", "NCCL_", "TORCH_")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the environment, e.g. NCCL_P2P_DISABLE set to 1."""

    name: str
    value: str


def variables_of(environ: Mapping[str, str | None]) -> tuple[Variable, ...]:
    """Those of an environment that a lock keeps."""
    kept = ((name, value) for name, value in environ.items() if name.startswith(PREFIXES) and value is not None)
    return tuple(Variable(name, value) for name, value in sorted(kept))


def held_settings(facts: Facts, variables: tuple[Variable, ...], places: Places) -> Iterator[Held]:
    """Every setting; of one that the facts tell too, the facts are believed: `--set` changes those."""
    values: dict[str, tuple[str, str]] = {each.name: (each.value, "the environment") for each in variables}
    for name, (value, seen_in) in _in_facts(facts).items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = (value, seen_in)
    for name, (value, seen_in) in values.items():
        yield Held(Part.SETTINGS, name, places.shown(value), seen_in=seen_in)


def _in_facts(facts: Facts) -> dict[str, tuple[str | None, str]]:
    lists = {"LD_LIBRARY_PATH": facts.libcuda.ld_library_path, "LD_PRELOAD": facts.libcuda.ld_preload}
    found: dict[str, tuple[str | None, str]] = {
        name: (":".join(value) if value else None, "the environment") for name, value in lists.items()
    }
    alone: dict[str, Fact[str]] = {
        "CUDA_VISIBLE_DEVICES": facts.gpus.cuda_visible_devices,
        "CUDA_DEVICE_ORDER": facts.gpus.cuda_device_order,
        "CUDA_HOME": facts.toolkits.cuda_home,
        "CUDA_PATH": facts.toolkits.cuda_path,
    }
    for name, fact in alone.items():
        found[name] = (fact.value, fact.seen_in) if isinstance(fact, Known) else (None, "")
    for each in facts.build_variables:
        if each.name.startswith(PREFIXES):
            found[each.name] = (each.value, "the environment")
    return found
