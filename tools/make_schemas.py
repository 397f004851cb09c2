"""Every schema under src/firstlight/schemas, from the type of its document."""

from __future__ import annotations

from pathlib import Path

from firstlight.bench.results import SCHEMA as BENCH
from firstlight.bench.results import RunResult
from firstlight.facts.collect import Facts
from firstlight.facts.document import SCHEMA as FACTS
from firstlight.lock.stack import LockedClass
from firstlight.lock.writing import SCHEMA as LOCK
from firstlight.report.check import SCHEMA as CHECK
from firstlight.report.check import Check
from firstlight.report.documents.measuring import ClaimDocument, CompareDocument
from firstlight.report.handover import SCHEMA as HANDOVER
from firstlight.report.handover import Handover
from firstlight.report.lock_hold_text import HoldShown
from tools.generate import SCHEMAS, as_json
from tools.schemas import Document, schema_of_document

_MADE = {"made_by": str}
DOCUMENTS = (
    Document(FACTS, "What a GPU machine is, as seen by firstlight", Facts, before=_MADE),
    Document(BENCH, "One run of firstlight bench", RunResult, is_open=True),
    Document("firstlight.claim/1", "Whether a claimed number can be true", ClaimDocument, is_open=True),
    Document("firstlight.compare/1", "Two runs of firstlight bench, compared", CompareDocument, is_open=True),
    Document(HANDOVER, "What is handed over with a machine", Handover, before={**_MADE, "file": str}),
    Document(LOCK, "What was locked of a machine", LockedClass, before={**_MADE, "file": str, "digest": str},
             after={"hold": HoldShown}),
    Document(CHECK, "What has changed since the lock", Check, before=_MADE),
)  # fmt: skip


def made() -> dict[Path, str]:
    """Each schema with its place."""
    return {SCHEMAS / f"{each.file}.json": as_json(schema_of_document(each)) for each in DOCUMENTS}
