"""What NVIDIA's health-validation said of a node: its NodeVerdict, shown beside ours and never mixed with it.

Its form: https://docs.nvidia.com/health-validation/reference/verdict-schema (read 2026-11-18). One field is read,
`overall_severity`, which the same pages tell programs to go by.
"""

from __future__ import annotations

import json

from firstlight.errors import BadInput
from firstlight.opening import open_given

_LIMIT = 8 << 20
SEVERITIES = ("PASS", "INFO", "WARNING", "CRITICAL", "UNKNOWN")


def read_node_verdict(path: str) -> str:
    """The severity in a file that health-validation's output was kept in, e.g. "CRITICAL"."""
    accepted = "accepted: the JSON that NVIDIA's health-validation prints (health-validation > FILE)"
    try:
        with open_given(path) as file:
            data = file.read(_LIMIT + 1)
    except OSError as error:
        raise BadInput(f"--node-verdict {path!a}: {(error.strerror or 'cannot be read').lower()}; {accepted}") from None
    if len(data) > _LIMIT:
        raise BadInput(f"--node-verdict {path!a}: larger than {_LIMIT >> 20} MiB; {accepted}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise BadInput(f"--node-verdict {path!a}: not JSON; {accepted}") from None
    said = document.get("overall_severity") if isinstance(document, dict) else None
    if not isinstance(said, str) or said.upper() not in SEVERITIES:
        shown = "missing" if said is None else f"{ascii(said)[:60]}"
        raise BadInput(f"--node-verdict {path!a}: overall_severity is {shown}; accepted: {', '.join(SEVERITIES)}")
    return said.upper()
