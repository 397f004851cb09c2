"""What the tables add to an explanation: the name of an error code, the wheel of a library, the toolkit of a GPU."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from firstlight.diagnosis.explain_owners import code_causes, header_owner, symbol_owner

if TYPE_CHECKING:
    from firstlight.tables import Tables
    from firstlight.tables.error_rows import ErrorCode

# A text that is a code and nothing else: 46, error 46, CUDA error code: 46, cuInit(0) gives 802, cudaErrorNoDevice.
_CODE_ALONE = re.compile(
    r"(?:the\s+)?(?:(?:cuda|cu[A-Z]\w*(?:\(\w*\))?)\s+)?(?:driver\s+|runtime\s+|api\s+)?"
    r"(?:gives|gave|gets|got|returns|returned|fails?(?:\s+with)?|failed(?:\s+with)?|failure|says)?\s*"
    r"(?:cuda\s+)?(?:error|err|status)?\s*(?:code|number)?\s*[:#=]?\s*(?P<number>\d{1,3})\s*\.?",
    re.IGNORECASE,
)
_XID_ALONE = re.compile(r"(?:nvrm:\s*)?xid\s*(?:error|code)?\s*[:#=]?\s*(?P<number>\d{1,3})\s*\.?", re.IGNORECASE)
_NAME_ALONE = re.compile(r"(?:\w*Error:\s*)?(?P<name>CUDA_ERROR_[A-Z_]+|cudaError[A-Z]\w+)(?:\s*\(\d+\))?[.:]?")


_NO_CAUSES = "Of its causes we have no list."


def code_alone(text: str) -> tuple[str, ...]:
    """The messages CUDA prints for a text that is only a code: 'error 46' -> 'CUDA Error 46: CUDA-capable ...'."""
    given = " ".join(text.split())
    if match := _XID_ALONE.fullmatch(given):
        return (f"NVRM: Xid (PCI): {match['number']}",)
    if match := _CODE_ALONE.fullmatch(given):
        row = _tables().error(int(match["number"]))
    elif match := _NAME_ALONE.fullmatch(given):
        row = _named(match["name"])
    else:
        row = None
    return () if row is None else messages_of(row)


def known_error(values: dict[str, str]) -> ErrorCode | None:
    """The error behind what a log says of it: its number, its name or its words."""
    if number := values.get("number"):
        return _tables().error(int(number))
    if name := values.get("name"):
        return _named(name)
    return next(iter(_tables().errors_in(values.get("words", ""))), None)


def messages_of(row: ErrorCode) -> tuple[str, ...]:
    """The forms in which CUDA and programs print an error, the one with its own words first."""
    names = tuple(f"{name}: {row.text}" for name in (row.name, row.runtime_name) if name)
    return (f"CUDA Error {row.code}: {row.text}", *names)


def looked_up(lookup: str, values: dict[str, str]) -> dict[str, str]:
    """What a table says of captured values, e.g. {'arch': '107'} -> {'toolkit': '13.4'}; '' looks nothing up."""
    return LOOKUPS[lookup][1](values) if lookup else {}


def _cuda_error(values: dict[str, str]) -> dict[str, str]:
    row = known_error(values)
    if row is None:
        return {"number": "...", "name": "not in the text", "words": "see the line", "meaning": ""}
    names = " or ".join(name for name in (row.name, row.runtime_name) if name)
    words, meaning = (
        row.text or "no words of its own",
        " ".join(filter(None, (row.meaning, code_causes(row.code) or _NO_CAUSES))),
    )
    return {"number": str(row.code), "name": names, "words": words, "meaning": meaning}


def _xids(values: dict[str, str]) -> dict[str, str]:
    """What the driver's own catalogue says of each number that was seen: '32: Commands arrived broken ...'."""
    rows = {code: _tables().xid(int(code)) for code in values.get("xids", "").split(", ") if code}
    said = (f"{code}: {'not in our catalogue.' if row is None else row.meaning}" for code, row in rows.items())
    return {"meanings": " ".join(said)}


def _missing_library(values: dict[str, str]) -> dict[str, str]:
    library = values.get("library", "")
    machine = os.uname().machine
    wheels = _tables().wheels_with(library, machine=machine if machine == "aarch64" else "x86_64")
    newest = {row.project: row for row in wheels}  # the last run of releases of each project
    # torch 2.7.1 was the last built for CUDA 11: its wheels are named only where there are no others
    newest = {name: row for name, row in newest.items() if not name.endswith("-cu11")} or newest
    if newest:
        which = " (take the one of your torch's CUDA major: cu12 for 12.x, cu13 for 13.x)" if len(newest) > 1 else ""
        return {
            "provider": f"Not installed: these wheels ship {library}{which}; other releases may ship another name.",
            "provider_commands": "\n".join(f"pip install '{row.requirement}'" for row in newest.values()),
        }
    if package := _tables().debian_package_with(library):
        return {
            "provider": f"Not installed: the Debian package {package.package} has it (Ubuntu's name may differ).",
            "provider_commands": f"sudo apt-get install {package.package}",
        }
    return {
        "provider": "Not installed: install the package that ships it; our tables do not know which.",
        "provider_commands": "",
    }


def _toolkit_for_arch(values: dict[str, str]) -> dict[str, str]:
    wanted = f"sm_{values.get('arch', '')}"
    first = next((str(row.toolkit.release) for row in _tables().toolkit_targets if wanted in row.targets), "")
    return {"toolkit": first or "MAJOR.MINOR"}


def _gcc_limit(values: dict[str, str]) -> dict[str, str]:
    from firstlight.errors import BadVersion
    from firstlight.versions import CudaVersion

    if values.get("limit", "LIMIT") != "LIMIT":
        return {}
    try:
        row = _tables().gcc_limit(CudaVersion.parse(values.get("cuda", "")))
    except BadVersion:
        return {}
    return {} if row is None else {"limit": str(row.newest_major)}


# name in a row's `lookup` -> the placeholders it fills beside the row's captures, and how
LOOKUPS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, str]], dict[str, str]]]] = {
    "cuda-error": (("meaning",), _cuda_error),
    "xid": (("meanings",), _xids),
    "missing-library": (("provider", "provider_commands"), _missing_library),
    "toolkit-for-arch": (("toolkit",), _toolkit_for_arch),
    "gcc-limit": ((), _gcc_limit),
    "header-owner": (("whose",), lambda values: {"whose": header_owner(values.get("header", ""))}),
    "symbol-owner": (("whose",), lambda values: {"whose": symbol_owner(values.get("symbol", ""))}),
}


def _named(name: str) -> ErrorCode | None:
    rows = (row for row in _tables().error_codes if row.api.value == "cuda")
    return next((row for row in rows if name in (row.name, row.runtime_name)), None)


@functools.cache
def _tables() -> Tables:
    from firstlight.tables import load

    return load()
