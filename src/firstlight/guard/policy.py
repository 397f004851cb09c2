"""firstlight.toml: what a team has agreed on, read into types; every key is known or refused with the nearest one.

require = "team.toml"            # the list of verify --require; its versions, toolkit and env are kept

[ban]
packages = ["triton", "flash-attn<2.8"]
versions = { torch = "==2.8.*" }

[pin]
toolkit = "13.0"
cutlass = "v4.3.0"
archs = ["sm_90a"]

[protect]
paths = ["third_party/cutlass", "configs/*.yaml"]

[commands]
mode = "deny-list"               # or "allow-list"
allow = ["make build", "make run"]
container = true                 # package managers and compilers only inside of a container
"""

from __future__ import annotations

import os
import re
from typing import Any

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.guard.place import text_of
from firstlight.near import nearest
from firstlight.toml import parse_toml
from firstlight.versions import canonical

NAME = "firstlight.toml"
LOCK = "firstlight.lock"
CONSTRAINTS = "firstlight-constraints.txt"  # what `firstlight lock --hold` puts beside the lock
MODES = ("deny-list", "allow-list")
# Always protected: whoever can change these can change the guard.
ALWAYS = (
    NAME, LOCK, CONSTRAINTS, ".git/hooks", ".git/config", ".claude/settings.json", ".claude/settings.local.json",
    ".cursor/hooks.json", ".cursor/rules/firstlight.mdc", ".codex/hooks.json", ".codex/rules/firstlight.rules",
    ".codex/config.toml", ".firstlight/agents.json", ".pre-commit-config.yaml", ".venv/bin/firstlight",
)  # fmt: skip
_KEYS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "": {"require": str, "ban": dict, "pin": dict, "protect": dict, "commands": dict},
    "ban": {"packages": list, "versions": (dict, list)},
    "pin": {"toolkit": str, "cutlass": str, "archs": list},
    "protect": {"paths": list},
    "commands": {"mode": str, "allow": list, "container": bool},
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*?)\s*(?:\[.*\])?\s*((?:[=<>!~].*)?)")
# by hand, since a hook is read with every action and importing packaging takes 40 ms
_CLAUSE = re.compile(r"(?:===|==|!=|~=|<=|>=|<|>)\s*v?\d[\w.!+-]*(?:\.\*)?")
_ARCH = re.compile(r"(?:sm_|compute_)?(\d{1,3})(?:\.(\d))?([af]?)(?:\+ptx)?", re.I)


@dataclass(frozen=True, slots=True)
class Ban:
    name: str
    spec: str  # '' bans every version
    line: int


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy and the lines that its parts stand on, for the reason of a deny."""

    path: str
    bans: tuple[Ban, ...] = ()
    kept: tuple[Ban, ...] = ()  # distributions of the require file: name and the versions that are right
    toolkit: str = ""  # 13.0
    cutlass: str = ""
    archs: tuple[str, ...] = ()  # 90a
    env: tuple[tuple[str, str], ...] = ()
    protected: tuple[str, ...] = ALWAYS
    mode: str = "deny-list"
    allow: tuple[tuple[str, ...], ...] = ()
    container: bool = False
    lines: tuple[tuple[str, int], ...] = ()
    require: str = ""

    def line(self, key: str) -> int:
        """The line that a key stands on; 0 where the policy does not have it, and the guard's own rule speaks."""
        return dict(self.lines).get(key, 0)

    @property
    def root(self) -> str:
        return os.path.dirname(self.path)


def find_policy(start: str) -> str:
    """The path of the firstlight.toml in a folder or the nearest one above; '' where there is none."""
    folder = os.path.abspath(start)
    while True:
        path = os.path.join(folder, NAME)
        if os.path.lexists(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def read_policy(path: str) -> Policy:
    """The policy of a file; BadInput names the line of what is wrong."""
    text = text_of(path)
    if text is None:
        raise BadInput(
            f"{path}: not there, not readable, or no text; accepted: a policy of up to 1 MiB. Restore it from git."
        )
    return parse_policy(text, path)


def parse_policy(text: str, path: str) -> Policy:
    found = _toml(text, path)
    _check(found, "", path, text)
    for section in ("ban", "pin", "protect", "commands"):
        _check(found.get(section, {}), section, path, text)
    ban, pin, commands = found.get("ban", {}), found.get("pin", {}), found.get("commands", {})
    mode = commands.get("mode", "deny-list")
    if mode not in MODES:
        near = nearest(mode, MODES)
        raise _bad(path, text, "mode", f"mode = {mode!a}; accepted: {' or '.join(MODES)}", near)
    allow = tuple(tuple(entry.split()) for entry in _texts(commands.get("allow", []), "allow", path, text))
    if mode == "allow-list" and not allow:
        raise _bad(path, text, "mode", "mode = 'allow-list' without `allow`: nothing could run", ())
    required = _required(found["require"], path) if "require" in found else Policy(path)
    return Policy(
        path,
        bans=_bans(ban, path, text),
        kept=required.kept,
        toolkit=_toolkit(pin.get("toolkit", ""), path, text) or required.toolkit,
        cutlass=pin.get("cutlass", "") or required.cutlass,
        archs=tuple(_arch(each, path, text) for each in _texts(pin.get("archs", []), "archs", path, text)),
        env=required.env,
        protected=(
            *ALWAYS,
            *((found["require"],) if "require" in found else ()),
            *_texts(found.get("protect", {}).get("paths", []), "paths", path, text),
        ),
        mode=mode,
        allow=allow,
        container=commands.get("container", False),
        lines=tuple(
            (key, _line(text, key)) for section in _KEYS for key in _KEYS[section] if _has(found, section, key)
        ),
        require=found.get("require", ""),
    )


def _has(found: dict[str, Any], section: str, key: str) -> bool:
    return key in (found.get(section, {}) if section else found)


def _toml(text: str, path: str) -> dict[str, Any]:
    if re.search(r"^(?:<{7}|={7}|>{7})(?: |$)", text, re.M):
        at = next(n for n, line in enumerate(text.split("\n"), 1) if line.startswith(("<<<<<<<", "=======")))
        raise BadInput(f"{path}:{at}: two versions of the policy that git could not merge. Choose one, then commit it.")
    try:
        found: dict[str, Any] = parse_toml(text.replace("\r\n", "\n"))
    except ValueError as error:
        raise BadInput(f"{path}: not TOML: {error}. Correct that line, or restore the file from git.") from None
    except RecursionError:
        raise BadInput(f"{path}: nested too deep to be a policy. Restore the file from git.") from None
    return found


def _check(found: dict[str, Any], section: str, path: str, text: str) -> None:
    keys = _KEYS[section]
    for key, value in found.items():
        where = f"[{section}] {key}" if section else key
        if key not in keys:
            raise _bad(
                path,
                text,
                key,
                f"{where[:60]!a} is not a key of a policy; accepted: {', '.join(keys)}",
                nearest(key, keys),
            )
        kind = keys[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = " or ".join(_WORDS[each] for each in (kind if isinstance(kind, tuple) else (kind,)))
            raise _bad(
                path, text, key, f"{where} is {_WORDS.get(type(value), 'something else')}; accepted: {names}", ()
            )


_WORDS: dict[type, str] = {
    str: "a text",
    list: "a list",
    dict: "a table",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def _bad(path: str, text: str, key: str, what: str, near: tuple[str, ...]) -> BadInput:
    hint = f" Did you mean {near[0]}?" if near else ""
    return BadInput(f"{path}:{_line(text, key)}: {what}.{hint} Until it is corrected, everything is denied.")


def _line(text: str, word: str) -> int:
    pattern = re.compile(rf"^\s*(?:\[\s*)?[\"']?{re.escape(word)}\b")
    return next((number for number, line in enumerate(text.split("\n"), 1) if pattern.search(line)), 1)


def _line_of_value(text: str, value: str) -> int:
    return next(
        (n for n, line in enumerate(text.split("\n"), 1) if value in line and not line.lstrip().startswith("#")), 1
    )


def _texts(found: list[Any], key: str, path: str, text: str) -> list[str]:
    for value in found:
        if not isinstance(value, str) or not value.strip():
            raise _bad(path, text, key, f"{key} holds {str(value)[:40]!a}; accepted: a list of texts", ())
    return list(found)


def _bans(ban: dict[str, Any], path: str, text: str) -> tuple[Ban, ...]:
    rows: list[str] = _texts(ban.get("packages", []), "packages", path, text)
    versions = ban.get("versions", {})
    if isinstance(versions, list):
        rows += _texts(versions, "versions", path, text)
    else:
        for name, spec in versions.items():
            each = [spec] if isinstance(spec, str) else spec if isinstance(spec, list) else [None]
            for one in _texts(each, "versions", path, text):
                rows.append(f"{name}{one if one[:1] in '=<>!~' else '==' + one}")
    found = []
    for row in rows:
        parts = _REQUIREMENT.fullmatch(row.strip())
        if parts is None or not right_spec(parts[2]):
            raise _bad(
                path, text, "packages", f"{row[:60]!a} is not a requirement; accepted: triton, or flash-attn<2.8", ()
            )
        found.append(Ban(canonical(parts[1]), parts[2], _line_of_value(text, parts[1])))
    return tuple(found)


def right_spec(spec: str) -> bool:
    """Whether a text is a specifier of versions, e.g. >=2.3,<3; '' is one."""
    return not spec or all(_CLAUSE.fullmatch(clause.strip()) for clause in spec.split(","))


def _toolkit(value: str, path: str, text: str) -> str:
    if value and not re.fullmatch(r"\d+\.\d+(?:\.\d+)?", value):
        raise _bad(path, text, "toolkit", f"toolkit = {value[:40]!a}; accepted: a release such as 13.0", ())
    return ".".join(value.split(".")[:2])


def arch_of(value: str) -> str:
    """An architecture as in sm_90a: 90a for compute_90a, 9.0a and 90a; '' for what is none."""
    found = _ARCH.fullmatch(value.strip())
    if not found:
        return ""
    number = f"{found[1]}{found[2]}" if found[2] is not None else found[1]
    return f"{number}{found[3].lower()}" if len(number) >= 2 else ""


def _arch(value: str, path: str, text: str) -> str:
    if not (found := arch_of(value)):
        raise _bad(path, text, "archs", f"archs holds {value[:40]!a}; accepted: sm_90a, compute_90a or 9.0a", ())
    return found


def _required(name: str, path: str) -> Policy:
    """What the require file keeps: versions of distributions, the toolkit, variables."""
    full = os.path.join(os.path.dirname(path), name)
    text = text_of(full)
    if text is None:
        raise BadInput(f"{path}: require = {name!a}, and {full} cannot be read. Restore it, or take the line out.")
    found = _toml(text, full)
    versions = found.get("versions", {})
    kept = tuple(
        Ban(canonical(each), spec if spec[:1] in "=<>!~" else f"=={spec}", _line_of_value(text, each))
        for each, spec in (versions.items() if isinstance(versions, dict) else ())
        if isinstance(spec, str) and each != "python" and right_spec(spec if spec[:1] in "=<>!~" else f"=={spec}")
    )
    exact = re.match(r"(?:==|>=|~=)?\s*(\d+\.\d+)", str(found.get("toolkit", "")))
    env = found.get("env", {})
    return Policy(
        full,
        kept=kept,
        toolkit=exact[1] if exact else "",
        env=tuple((str(k), v) for k, v in (env.items() if isinstance(env, dict) else ()) if isinstance(v, str)),
    )
