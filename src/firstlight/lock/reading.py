"""A lock read back: what is wrong with it is one sentence that says what was found, what is accepted and what to do."""

from __future__ import annotations

import re
from typing import Any

from firstlight.diagnosis.finding import Goal
from firstlight.errors import BadInput
from firstlight.lock.merges import conflict_in
from firstlight.lock.stack import Held, Judged, Lock, LockedClass, MachineKind, Part
from firstlight.lock.writing import FINDINGS, SCHEMA, digest_of
from firstlight.near import nearest
from firstlight.opening import open_given
from firstlight.toml import parse_toml

_LARGEST = 16 << 20
_DIGEST = re.compile(r"(.*?)\s*(sha256:[0-9a-f]{64})")
_AGAIN = "Take it from version control, or move it away and write it again with `firstlight lock`"
_TOP = ("name", "capability", "processor", "driver_branch_floor", "goal", "verified", "verify", "bench", "digest")
_PARTS = {part.value: part for part in Part}


def read_lock(path: str) -> Lock:
    """The lock in a file; BadInput where it is none that can be used."""
    text = _text_of(path)
    if conflict := conflict_in(text):
        raise BadInput(f"{path}: {conflict}")
    if "\r" in text:
        raise BadInput(
            f"{path}: its lines end in CRLF, and a lock is compared to the byte. Make them LF "
            f"(sed -i 's/\\r$//' {path}), and keep them so: {path} -text in .gitattributes."
        )
    document = _parsed(text, path)
    _check_schema(document.get("schema"), path)
    if unknown := sorted(set(document) - {"schema", "class"}):
        raise BadInput(f"{path}: {unknown[0][:60]!a} is not part of a lock. {_AGAIN}.")
    classes = document.get("class", [])
    if not isinstance(classes, list) or not all(isinstance(each, dict) for each in classes):
        raise BadInput(f"{path}: `class` is not a list of [[class]] tables. {_AGAIN}.")
    read = tuple(_class(each, path) for each in classes)
    names = [each.name for each in read]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInput(f"{path}: the class {twice[0]} is there twice, as after a merge. Delete one, or lock it again.")
    return Lock(path, text, read)


def _text_of(path: str) -> str:
    try:
        with open_given(path) as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BadInput(
            f"{path}: {why}; accepted is a lock. Write one on a machine that works: firstlight lock"
        ) from None
    if len(data) > _LARGEST:
        raise BadInput(f"{path}: larger than {_LARGEST >> 20} MiB, which no lock is. {_AGAIN}.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text (byte {error.start} is not UTF-8). {_AGAIN}.") from None


def _parsed(text: str, path: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not TOML ({error}); it was edited or cut short. {_AGAIN}.") from None
    return document


def _check_schema(schema: Any, path: str) -> None:
    if schema == SCHEMA:
        return
    if isinstance(schema, str) and re.fullmatch(r"firstlight\.lock/\d{1,6}", schema):
        raise BadInput(f"{path}: schema is {schema}; this firstlight reads {SCHEMA}. Upgrade firstlight.")
    shown = ascii(schema)[:60] if isinstance(schema, str) else "missing"
    raise BadInput(f"{path}: schema is {shown}; accepted is {SCHEMA}, as `firstlight lock` writes it.")


def _class(table: dict[str, Any], path: str) -> LockedClass:
    name = _word(table, "name", f"{path}: a class")
    where = f"{path}: class {name}"
    for key in table:
        if key not in (*_TOP, *_PARTS, FINDINGS):
            near = nearest(key, (*_TOP, *_PARTS, FINDINGS))
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadInput(f"{where}: {key[:60]!a} is not part of a class.{hint} {_AGAIN}.")
    held = tuple(row for part in Part for row in _held(part, table.get(part.value, {}), where))
    findings = _rows(table.get(FINDINGS, {}), f"{where}: {FINDINGS}")
    floor = table.get("driver_branch_floor")
    verified = table.get("verified")
    if not isinstance(floor, int) or isinstance(floor, bool) or not isinstance(verified, bool):
        raise BadInput(f"{where}: driver_branch_floor or verified is missing or no such value. {_AGAIN}.")
    goal = _word(table, "goal", where)
    if goal not in {each.value for each in Goal}:
        accepted = ", ".join(each.value for each in Goal)
        raise BadInput(f"{where}: goal is {goal[:60]!a}; accepted: {accepted}. {_AGAIN}.")
    locked = LockedClass(
        name=name,
        kind=MachineKind(_word(table, "capability", where), _word(table, "processor", where), floor),
        goal=Goal(goal),
        verified=verified,
        verify=_word(table, "verify", where) if "verify" in table else "",
        bench=_word(table, "bench", where) if "bench" in table else "",
        held=held,
        findings=tuple(_judged(code, text) for code, text in findings),
    )
    if _word(table, "digest", where) != digest_of(locked):
        raise BadInput(
            f"{where} is not what `firstlight lock` wrote: its digest is that of other values. It was edited or cut "
            f"short. Take it from version control, or move it away and lock its machines again: firstlight lock"
        )
    return locked


def _word(table: dict[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value or not value.isprintable():
        shown = "missing" if value is None else f"{ascii(value)[:60]}, which is not text of that kind"
        raise BadInput(f"{where}: {key} is {shown}. {_AGAIN}.")
    return value


def _rows(table: Any, where: str) -> list[tuple[str, str]]:
    if not isinstance(table, dict):
        raise BadInput(f"{where} is not a table of facts. {_AGAIN}.")
    for key, value in table.items():
        if not isinstance(value, str) or not value.isprintable() or not key.isprintable():
            raise BadInput(f"{where}: {key[:60]!a} is {ascii(value)[:60]}; accepted is text on one line. {_AGAIN}.")
    return list(table.items())


def _judged(code: str, text: str) -> Judged:
    severity, *saw = text.split(" ")
    return Judged(code, severity, tuple(saw))


def _held(part: Part, table: Any, where: str) -> list[Held]:
    rows = []
    for name, text in _rows(table, f"{where}: {part.value}"):
        match = _DIGEST.fullmatch(text)
        rows.append(Held(part, name, match[1], match[2]) if match else Held(part, name, text))
    return rows
