"""What a host answered: data of others, read within limits and against its schema, never carried out."""

from __future__ import annotations

import json

from firstlight.errors import BadFactsFile, CouldNotLook
from firstlight.machine.evidence import Evidence, from_document, marks

REPLY_LIMIT = 8 << 20  # bytes
LOOK_S = 60.0


def between_marks(printed: bytes, token: str) -> bytes | None:
    """The answer in what a host printed; None where it did not get to the end of one."""
    begin, end = marks(token)
    _, found, rest = printed.partition(f"{begin}\n".encode())
    answer, closed, _ = rest.partition(f"\n{end}\n".encode())
    return answer if found and closed else None


def read_evidence(answer: bytes, where: str) -> Evidence:
    """The recording that a host sent; CouldNotLook where it is none, with the reason in a few words."""
    try:
        document = json.loads(answer.decode("utf-8"))
    except UnicodeDecodeError:
        raise CouldNotLook("its answer is not text") from None
    except (ValueError, RecursionError):  # brackets ten thousand deep are no recording either
        raise CouldNotLook("its answer is not JSON") from None
    try:
        return from_document(document, where)
    except BadFactsFile as error:
        raise CouldNotLook(f"its answer is not a recorded machine: {error}") from None
