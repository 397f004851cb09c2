"""Pack the facts into one file: `scp` it to a bare host and run it with any Python from 3.10 on."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import firstlight
from firstlight.errors import BadInput

_ROOMS = ("machine", "elf", "facts", "examples")
_FILES = (
    "__init__.py", "ahead.py", "errors.py", "frozen.py", "numerals.py", "opening.py", "records.py", "secrets.py",
    "visible.py", "versions.py", "report/__init__.py", "report/layout.py", "report/facts_lines.py",
    "report/facts_text.py", "report/fleet_lines.py", "cli/__init__.py", "cli/printing.py", "cli/standalone.py",
    "cli/streams.py",
)  # fmt: skip
# Parsed by any Python, so that an old one says what is wrong instead of showing a traceback.
_MAIN = """import sys

if sys.version_info < (3, 10):
    sys.stderr.write("firstlight: this is Python %d.%d; accepted: 3.10 or newer. " % sys.version_info[:2])
    sys.stderr.write("Try: python3.12 %s\\n" % sys.argv[0])
    sys.exit(2)
from firstlight.cli.standalone import main

sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same sources give the same bytes


def write_zipapp(path: str) -> str:
    """Write the file; returns a sentence that says what was written."""
    from firstlight.bench.saving import PROGRAM, writable

    writable(path, PROGRAM, option="--write-zipapp")
    members = dict(sorted(_members()))
    try:
        with open(path, "wb") as file:
            file.write(_packed(members))
        os.chmod(path, 0o755)  # noqa: S103 a program, meant to be run by anybody
    except OSError as error:
        raise BadInput(f"--write-zipapp {path}: {error.strerror}; give a file you can write") from None
    size = os.path.getsize(path)
    carried = "with" if "pynvml.py" in members else "without"
    return f"wrote {path} ({size / 1000:.0f} kB, {carried} NVML bindings); run it with: python3 {path} --json"


def zipapp_bytes() -> bytes:
    """The same file as bytes, for a host that is asked over ssh."""
    return _packed(dict(sorted(_members())))


def _packed(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO(b"#!/usr/bin/env python3\n")
    packed.seek(0, os.SEEK_END)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _members() -> Iterator[tuple[str, bytes]]:
    package = Path(firstlight.__file__).parent
    yield "__main__.py", _MAIN.encode()
    for name in _FILES:
        yield f"firstlight/{name}", (package / name).read_bytes()
    for room in _ROOMS:
        for source in sorted((package / room).rglob("*")):
            if source.suffix in (".py", ".json"):
                yield f"firstlight/{source.relative_to(package).as_posix()}", source.read_bytes()
    spec = find_spec("pynvml")
    if spec is not None and spec.origin is not None and spec.origin.endswith("pynvml.py"):
        yield "pynvml.py", Path(spec.origin).read_bytes()
