"""`--set key=value`: pretend one fact. The key is a path in the facts document, or a short name."""

from __future__ import annotations

import enum
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar, get_args, get_origin

from firstlight.errors import BadInput, BadVersion
from firstlight.facts.known import PRETENDED_BY, Known, Origin, Unknown
from firstlight.records import VERSION_TYPES, fact_type, hints, is_fact

T = TypeVar("T")

# What people call it -> where it is.
SHORT_NAMES = {
    "driver": "driver.kernel_version",
    "driver_cuda": "libcuda.driver_cuda",
    "cuinit": "libcuda.init_code",
    "gpu": "gpus.devices.0.name",
    "brand": "gpus.devices.0.brand",
    "capability": "gpus.devices.0.capability",
    "glibc": "runtime.glibc",
}


# What a libcuda answered under another driver, or beside another code, is not seen under the one that is pretended.
_NO_LONGER_SEEN = {
    "driver.kernel_version": (
        "libcuda.driver_cuda",
        "libcuda.init_code",
        "libcuda.init_name",
        "libcuda.init_text",
        "libcuda.device_count",
    ),
    "libcuda.init_code": ("libcuda.init_name", "libcuda.init_text"),
}


def override(facts: T, settings: tuple[str, ...]) -> T:
    """The facts with each `key=value` put in, seen in '--set'; bad keys and values raise BadInput naming them."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--set {setting!r}: expected KEY=VALUE, e.g. --set driver=570.133.20")
        path = SHORT_NAMES.get(key.strip(), key.strip())
        before = facts
        facts = _put(type(facts), facts, _Setting(key.strip(), text.strip(), tuple(path.split("."))))
        facts = _without_what_depends(before, facts, path=path)
    return facts


def _without_what_depends(before: T, after: T, *, path: str) -> T:
    """The facts without what was seen together with the old value of one; what --set said itself stays."""
    old, new = _at(before, path), _at(after, path)
    if isinstance(old, Known) and isinstance(new, Known) and old.value == new.value:
        return after
    name_of = {place: short for short, place in SHORT_NAMES.items()}
    for place in _NO_LONGER_SEEN.get(path, ()):
        found = _at(after, place)
        if isinstance(found, Known) and found.origin is not Origin.PRETENDED:
            group, _, name = place.partition(".")
            forgotten: Any = {name: Unknown(f"--set {name_of[path]}: not observed")}
            changed: Any = {group: replace(getattr(after, group), **forgotten)}
            after = replace(after, **changed)  # type: ignore[type-var]
    return after


def _at(facts: Any, path: str) -> Any:
    """What lies at a path such as libcuda.init_code; None where there is no such path."""
    for name in path.split("."):
        facts = getattr(facts, name, None)
    return facts


class _Setting:
    """One key, its value and the path still to go."""

    def __init__(self, key: str, text: str, path: tuple[str, ...]) -> None:
        self.key, self.text, self.path = key, text, path

    def next(self) -> _Setting:
        return _Setting(self.key, self.text, self.path[1:])

    def bad(self, what: str) -> BadInput:
        return BadInput(f"--set {self.key}: {what}. `firstlight facts --json` shows every key.")


def _put(kind: Any, value: Any, setting: _Setting) -> Any:
    if is_fact(kind):
        if not setting.path:
            if setting.text == "unknown":
                return Unknown(PRETENDED_BY)
            return Known(_parse(fact_type(kind), setting), PRETENDED_BY, Origin.PRETENDED)
        if isinstance(value, Unknown):
            raise setting.bad(f"nothing to change inside it, since it is unknown here ({value.reason})")
        return Known(_put(fact_type(kind), value.value, setting), value.seen_in)
    if not setting.path:
        return _parse(kind, setting)
    name = setting.path[0]
    if get_origin(kind) is tuple:
        if not name.isdigit() or int(name) >= len(value):
            raise setting.bad(f"{name!r} is not one of its {len(value)} items, counted from 0")
        changed = _put(get_args(kind)[0], value[int(name)], setting.next())
        return (*value[: int(name)], changed, *value[int(name) + 1 :])
    if is_dataclass(kind) and kind not in VERSION_TYPES:
        fields = hints(kind) if isinstance(kind, type) else {}
        if name not in fields:
            short = (
                "" if len(setting.path) < len(setting.key.split(".")) else f"; short names: {', '.join(SHORT_NAMES)}"
            )
            raise setting.bad(f"{name!r} is not a fact here; accepted: {', '.join(fields)}{short}")
        return replace(value, **{name: _put(fields[name], getattr(value, name), setting.next())})
    raise setting.bad(f"nothing lies below it, so {name!r} cannot be set")


def _parse(kind: Any, setting: _Setting) -> Any:
    text = setting.text
    if kind in VERSION_TYPES:
        try:
            return kind.parse(text)
        except BadVersion as error:
            raise setting.bad(str(error).rstrip(".")) from None
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return tuple(_parse(item, _Setting(setting.key, part.strip(), ())) for part in text.split(",") if part.strip())
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        by_text = {str(item.value): item for item in kind}
        if text not in by_text:
            raise setting.bad(f"{text!r} is not accepted; accepted: {', '.join(by_text)}")
        return by_text[text]
    if kind is bool:
        if text not in ("true", "false"):
            raise setting.bad(f"{text!r} is not accepted; accepted: true, false")
        return text == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            raise setting.bad(f"{text!r} is not a number") from None
    if kind is str:
        return text
    raise setting.bad("it holds several facts; set one of them, e.g. driver.kernel_version")
