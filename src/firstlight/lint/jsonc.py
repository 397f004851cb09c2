"""JSON with comments and trailing commas, as devcontainer.json is written: blanked out, so that lines stay."""

from __future__ import annotations

import json
import re

from firstlight.errors import BadInput

_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*[}\]])|\t', re.DOTALL
)


def plain_json(text: str, file: str, kind: str) -> str:
    """The text as JSON of the same lines, which is YAML too; what does not parse is bad input that names the line."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    plain = _TOKEN.sub(blank, text)
    try:
        value = json.loads(plain)
    except json.JSONDecodeError as error:
        raise BadInput(f"{file}:{error.lineno}: not JSON: {error.msg}. Give one that parses.") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{file}: nested too deeply to be a {kind}, or with a number too long. Give another.") from None
    if not isinstance(value, dict):
        raise BadInput(f"{file}: not an object in braces; accepted: a {kind}. Give one.")
    return plain
