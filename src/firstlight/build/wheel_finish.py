"""The finished wheel: the backend's own with a local version and a file that says what it was built from."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zipfile

from firstlight.build.backend import BY_NINJA
from firstlight.build.engines import wheel_engine
from firstlight.build.keys import ABOUT, digest_of_file, done_record, mark_done, raw_wheel
from firstlight.build.ninja_output import first_error
from firstlight.build.progress import Progress, read_peaks
from firstlight.build.running import run_engine, say
from firstlight.build.spec import BuildSpec, Setting, Stage
from firstlight.errors import CouldNotAct
from firstlight.secrets import masked

_TIME = (1980, 1, 1, 0, 0, 0)  # the same inputs give the same archive


def make_wheel(spec: BuildSpec) -> None:
    """Let the backend pack what is compiled, then finish its wheel."""
    os.makedirs(spec.raw, exist_ok=True)
    if spec.backend in BY_NINJA:
        for name in os.listdir(spec.raw):
            os.unlink(os.path.join(spec.raw, name))
        ended = run_engine(spec, wheel_engine(spec, spec.jobs), Progress(spec, Stage.WHEEL))
        if ended.status != 0:
            raise CouldNotAct(f"the wheel could not be made: {first_error(ended.lines)}")
    raw = raw_wheel(spec)
    if not raw:
        raise CouldNotAct(f"{spec.raw}: the backend left no wheel.")
    os.makedirs(spec.wheels, exist_ok=True)
    path = finish_wheel(raw, spec)
    mark_done(spec, Stage.WHEEL, {"file": os.path.basename(path), "sha256": digest_of_file(path)})
    say(f"wheel: {path}")


def about_build(spec: BuildSpec, raw: str) -> dict[str, object]:
    """What a wheel says of its making: no names of people, no folders of theirs."""
    compiled = done_record(spec, Stage.COMPILE)
    return {
        "schema": "firstlight.built/1",
        "source": spec.source.release or spec.source.url or os.path.basename(spec.source.archive or spec.source.folder),
        "wheel_sha256": digest_of_file(raw),  # of the wheel as the backend made it
        "commit": spec.commit,
        "dirty": bool(spec.edits),  # other than that commit: patched or edited
        "patches": [os.path.basename(each) for each in spec.source.patches],
        "flags": {each.name: each.value for each in (*spec.settings, *spec.defines) if _may_leave(each)},
        "compiler": spec.compiler,
        "toolkit": spec.toolkit_version,
        "archs": list(spec.archs),
        "minutes": compiled.get("minutes", 0),
        "worst_unit_bytes": max((each.bytes for each in read_peaks(spec.folder)), default=0),
    }


def _may_leave(setting: Setting) -> bool:
    """Whether a flag may go into a wheel: folders are the machine's own, and secrets are nobody else's."""
    text = f"{setting.name}={setting.value}"
    return "/" not in setting.value and setting.name != "PATH" and masked(text) == text


def finish_wheel(raw: str, spec: BuildSpec) -> str:
    """Write the wheel under its local version; the path of the new file."""
    name, version, *tags = os.path.basename(raw).removesuffix(".whl").split("-")
    local = with_local(version, spec.local)
    old, new = f"{name}-{version}", f"{name}-{local}"
    path = os.path.join(spec.wheels, "-".join((name, local, *tags)) + ".whl")
    records: list[str] = []
    with zipfile.ZipFile(raw) as source, zipfile.ZipFile(f"{path}.new", "w", zipfile.ZIP_DEFLATED) as wheel:
        info = f"{new}.dist-info"
        for member in sorted(source.infolist(), key=lambda each: each.filename):
            if member.is_dir() or member.filename == f"{old}.dist-info/RECORD":
                continue
            data, target = source.read(member), _renamed(member.filename, old, new)
            if target == f"{info}/METADATA":
                data = _with_version(data, version, local)
            _put(wheel, target, data, records, mode=member.external_attr >> 16)
        _put(wheel, f"{info}/{ABOUT}", json.dumps(about_build(spec, raw), indent=1).encode(), records, mode=0o644)
        listed = "".join(f"{line}\n" for line in (*records, f"{info}/RECORD,,"))
        wheel.writestr(_entry(f"{info}/RECORD", 0o644), listed)
    os.replace(f"{path}.new", path)
    return path


def with_local(version: str, local: str) -> str:
    """2.1.2+fl.cu130.sm90; behind a local part that is there already."""
    if not local:
        return version
    return f"{version}.{local}" if "+" in version else f"{version}+{local}"


def _renamed(name: str, old: str, new: str) -> str:
    for ending in (".dist-info/", ".data/"):
        if name.startswith(old + ending):
            return new + name[len(old) :]
    return name


def _with_version(data: bytes, version: str, local: str) -> bytes:
    return data.replace(f"\nVersion: {version}\n".encode(), f"\nVersion: {local}\n".encode(), 1)


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (mode or 0o644) << 16
    return entry


def _put(wheel: zipfile.ZipFile, name: str, data: bytes, records: list[str], *, mode: int) -> None:
    wheel.writestr(_entry(name, mode), data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    records.append(f'"{name}",sha256={digest},{len(data)}' if "," in name else f"{name},sha256={digest},{len(data)}")
