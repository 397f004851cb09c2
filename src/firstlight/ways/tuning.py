"""Runtime settings that were asked for: refused where nothing reads them, explained where something does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.near import nearest
from firstlight.tables import Tables
from firstlight.tables.setting_rows import RuntimeSetting, SettingReader
from firstlight.ways.at import At
from firstlight.ways.building import blank, state_of, written
from firstlight.ways.extras import Setting
from firstlight.ways.step import FileChange, Step, StepKind

ALL = "all"
_READERS = {
    SettingReader.TORCH: "torch",
    SettingReader.NCCL: "NCCL",
    SettingReader.CUDA: "CUDA",
    SettingReader.CUBLAS: "cuBLAS and cuDNN",
}
_UNREAD = (SettingReader.BUILD, SettingReader.NOBODY)
_HEAD = """\
# Written by firstlight; `firstlight undo` takes it back. Settings of the runtime, for a shell to read:
#   . {path}
"""


def parse_settings(texts: tuple[str, ...], tables: Tables) -> tuple[Setting, ...]:
    """--tuning NAME=VALUE, repeated, or `all`; a name that nothing reads and a value that is not taken are refused."""
    found: dict[str, Setting] = {}
    for text in texts:
        if text.strip() == ALL:
            for row in tables.runtime_settings:
                if row.suggested:
                    found.setdefault(row.name, Setting(row.name, row.suggested))
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        row = _row(tables, name, text)
        if not equals or not value:
            example = row.suggested or "VALUE"
            raise BadInput(f"--tuning {_shown(text)}: accepted is {name}={example} ({row.accepted}), or --tuning all.")
        if not any(re.fullmatch(pattern, value) for pattern in row.accepts):
            raise BadInput(
                f"--tuning {_shown(text)}: {name} takes {row.accepted}, not {_shown(value)} (source: {row.source})."
            )
        found[name] = Setting(name, value)
    return tuple(found.values())


def _row(tables: Tables, name: str, text: str) -> RuntimeSetting:
    if re.fullmatch(r"torch\.[\w.]+", name):
        raise BadInput(
            f"--tuning {_shown(text)}: that is a line of Python, not a variable; put `{name} = ...` into the program."
        )
    row = tables.runtime_setting(name)
    if row is None:
        raise BadInput(
            f"--tuning {_shown(text)}: torch, NCCL and CUDA are not known to read {_shown(name)}. "
            + _nearest(tables, name)
        )
    if row.read_by in _UNREAD:
        raise BadInput(
            f"--tuning {_shown(text)}: {_refusal(row)} {_instead(tables, row)} (source: {row.source})".rstrip() + "."
        )
    return row


def _refusal(row: RuntimeSetting) -> str:
    if row.read_by is SettingReader.BUILD:
        return f"nothing reads {row.name} when a program runs. {row.does}"
    return f"torch and NCCL do not read {row.name}. {row.does}"


def _instead(tables: Tables, row: RuntimeSetting) -> str:
    if not row.instead:
        return "Leave it out."
    meant = tables.runtime_setting(row.instead)
    return f"The nearest that is read is {row.instead}" + (f": {meant.does}" if meant is not None else "")


def _nearest(tables: Tables, name: str) -> str:
    read = [row.name for row in tables.runtime_settings if row.read_by not in _UNREAD]
    near = nearest(name, read)
    if not near:
        return "Give one that `firstlight tables runtime_settings` lists."
    row = tables.runtime_setting(near[0])
    assert row is not None, near
    return f"The nearest that is read is {row.name}: {row.does}"


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def tuning_steps(at: At) -> Iterator[Step]:
    """One optional step that writes the settings into a file of their own, each with what it does and who reads it."""
    settings = at.extras.settings
    if not settings:
        return
    path = f"{state_of(at)}/tuning.sh"
    change = FileChange(path, at.extras.text_of(path) or "", _file(at.tables, settings, path))
    yield replace(
        blank(at),
        id="write-runtime-settings",
        kind=StepKind.TUNING,
        because="--tuning",
        title=f"write {len(settings)} runtime setting{'s' if len(settings) > 1 else ''} to a file of their own",
        files=(change,),
        done_when=(written(change),),
        optional=True,
        note=f"Takes effect in shells that read it: . {shlex.quote(path)}",
    )


def _file(tables: Tables, settings: tuple[Setting, ...], path: str) -> str:
    lines = [_HEAD.format(path=shlex.quote(path))]
    for setting in settings:
        row = tables.runtime_setting(setting.name)
        assert row is not None, setting
        since = f" since {row.since}" if row.since else ""
        lines.append(f"# {row.does} Read by {_READERS[row.read_by]}{since} ({row.confidence.value}).\n")
        if row.note:
            lines.append(f"# {row.note}\n")
        lines.append(f"export {setting.name}={shlex.quote(setting.value)}\n")
    return "".join(lines)
