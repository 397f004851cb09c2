"""`firstlight emit agents`: hooks and texts for coding tools, merged into what is there; --remove restores it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any

import click

from firstlight.apply.disk import Disk
from firstlight.emit.agents import TOOLS, AgentsAsked, added, every_file, stripped, touched_files
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.guard.policy import NAME, Policy, parse_policy
from firstlight.opening import open_regular

RECORD = ".firstlight/agents.json"
_SCHEMA = "firstlight.agents/1"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a file was before us (None: not there), the digest of what we made of it, the folders made for it."""

    before: bytes | None
    after: str
    mode: int
    folders: tuple[str, ...]


def emit_agents(folder: str, asked: AgentsAsked, *, as_json: str) -> None:
    """Write the files of the tools into a project's folder; every one, or none."""
    root = os.path.abspath(folder or ".")
    if not os.path.isdir(root):
        raise BadInput(f"--out {folder}: no such folder; accepted: the project's folder, where {NAME} is or will be.")
    record = _record(root)
    bases = {path: _base(root, path, record) for path in touched_files(asked)}
    policy = _policy_of(root, bases[NAME])
    made: dict[str, tuple[bytes | None, bytes]] = {}
    for path, base in bases.items():
        text = _text(base, path)
        data = added(path, text, policy, asked).encode()
        if data != base:
            made[path] = (base, data)
    disk = Disk()
    for path, (base, data) in made.items():
        full = os.path.join(root, path)
        mode = os.stat(full).st_mode & 0o777 if os.path.exists(full) else 0o644
        folders = record[path].folders if path in record else tuple(disk.make_folders(os.path.dirname(full)))
        disk.make_folders(os.path.dirname(full))
        record[path] = Kept(base, hashlib.sha256(data).hexdigest(), mode, folders)
        _write_record(root, record, disk)
        disk.write(full, data, mode=mode)
        click.echo(f"firstlight: {'wrote' if base is None else 'merged into'} {full}", err=True)
    if as_json == "yes":
        click.echo(json.dumps({"schema": _SCHEMA, "folder": root, "files": list(made)}, indent=1))
        return
    _say_next(asked)


def _say_next(asked: AgentsAsked) -> None:
    click.echo("firstlight: see what gets through:\n  firstlight guard test\nfirstlight: take it out again:", err=True)
    click.echo("  firstlight emit agents --remove", err=True)
    if "codex" in asked.tools:
        click.echo(
            "firstlight: Codex runs a project's hooks after you have trusted them: /hooks in its prompt", err=True
        )


def remove_agents(folder: str, *, as_json: str) -> None:
    """Take our part out of every file: to the byte where nobody changed it since, else our part alone."""
    root = os.path.abspath(folder or ".")
    record, disk = _record(root), Disk()
    restored: list[str] = []
    for path in every_file():
        full = os.path.join(root, path)
        if not os.path.lexists(full):
            continue
        now = _bytes(full)
        kept = record.get(path)
        if kept is not None and hashlib.sha256(now).hexdigest() == kept.after:
            before, how = kept.before, "restored"
        else:
            left = stripped(path, _text(now, path)).encode()
            if left == now:
                continue
            before, how = left or None, "removed our part from"
        if before is None:
            disk.remove(full)
            click.echo(f"firstlight: removed {full}", err=True)
        else:
            disk.write(full, before, mode=os.stat(full).st_mode & 0o777)
            click.echo(f"firstlight: {how} {full}", err=True)
        restored.append(path)
    if os.path.exists(os.path.join(root, RECORD)):
        disk.remove(os.path.join(root, RECORD))
    for made in sorted(
        {each for kept in record.values() for each in kept.folders} | {os.path.join(root, ".firstlight")}, reverse=True
    ):
        if os.path.isdir(made) and not os.listdir(made):
            os.rmdir(made)
    if as_json == "yes":
        click.echo(json.dumps({"schema": _SCHEMA, "folder": root, "removed": restored}, indent=1))
    elif not restored:
        click.echo("firstlight: nothing of ours is in these files", err=True)


def asked_of(tools: tuple[str, ...], *, mcp: str) -> AgentsAsked:
    """What was asked for; every tool where none is named."""
    return AgentsAsked(tuple(dict.fromkeys(tools)) or TOOLS, mcp=mcp == "yes")


def _policy_of(root: str, base: bytes | None) -> Policy:
    from firstlight.emit.agents_texts import STARTER

    return parse_policy(_text(base, NAME) or STARTER, os.path.join(root, NAME))


def _base(root: str, path: str, record: dict[str, Kept]) -> bytes | None:
    """A file without our part: as the record has it, or with our part taken out."""
    full = os.path.join(root, path)
    if not os.path.lexists(full):
        return None
    real = os.path.realpath(full)
    if os.path.islink(full) or not real.startswith(os.path.realpath(root) + os.sep):
        raise BadInput(f"{full} is a link to {real}; accepted: a file of the project itself. Nothing was written.")
    now = _bytes(full)
    kept = record.get(path)
    if kept is not None and hashlib.sha256(now).hexdigest() == kept.after:
        return kept.before
    left = stripped(path, _text(now, path))
    return left.encode() if left or path not in record else None


def _text(data: bytes | None, path: str) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: byte {error.start} is not UTF-8; accepted: a text. Nothing was written.") from None


def _bytes(path: str) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}. Nothing was written.") from None


def _record(root: str) -> dict[str, Kept]:
    path = os.path.join(root, RECORD)
    if not os.path.exists(path):
        return {}
    try:
        found: dict[str, Any] = json.loads(_bytes(path))
        return {
            name: Kept(
                None if each["before"] is None else base64.b64decode(each["before"], validate=True),
                str(each["after"]),
                int(each["mode"]),
                tuple(os.path.join(root, made) for made in each["folders"] if ".." not in made.split("/")),
            )
            for name, each in found["files"].items()
            if name in every_file()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: not a record of firstlight ({error}). Restore it from git, or delete it.") from None


def _write_record(root: str, record: dict[str, Kept], disk: Disk) -> None:
    files = {
        name: {
            "before": None if kept.before is None else base64.b64encode(kept.before).decode(),
            "after": kept.after,
            "mode": kept.mode,
            "folders": [os.path.relpath(made, root) for made in kept.folders],
        }
        for name, kept in record.items()
    }
    path = os.path.join(root, RECORD)
    disk.make_folders(os.path.dirname(path))
    disk.write(path, json.dumps({"schema": _SCHEMA, "files": files}, indent=1).encode() + b"\n", mode=0o644)
