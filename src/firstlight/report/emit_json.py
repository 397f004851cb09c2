"""What was emitted as a JSON document (schema firstlight.emit/1)."""

from __future__ import annotations

import hashlib
from typing import Any

from firstlight.emit.document import Emitted, EmittedFile, EmittedWheel, made_by
from firstlight.emit.gates import Gates
from firstlight.emit.subject import Subject
from firstlight.facts.known import Fact, Known
from firstlight.report.documents.acting import (
    EmitDocument,
    EmittedCompat,
    EmittedGates,
    EmittedName,
    EmittedPackages,
    EmittedTarget,
    EmittedText,
)
from firstlight.report.documents.making import shown

SCHEMA = "firstlight.emit/1"


def emit_document(subject: Subject, emitted: Emitted) -> EmitDocument:
    """The document, schema first: for whom, from which plan, the gates, and every file with its text."""
    return shown(
        EmitDocument,
        subject,
        schema=SCHEMA,
        made_by=made_by(),
        kind=emitted.kind,
        option=subject.plan.option.id,
        digest=emitted.digest,
        target=shown(EmittedTarget, subject.target),
        packages=[shown(EmittedPackages, part) for part in subject.parts],
        compat=[shown(EmittedCompat, part) for part in (subject.compat if emitted.compat is None else emitted.compat)],
        gates=_gates(emitted.gates),
        files=[
            shown(
                EmittedText,
                file,
                mode=f"{file.mode:04o}",
                sha256=hashlib.sha256(file.text.encode()).hexdigest(),
            )
            for file in emitted.files
        ],
        sources=[_named(file) for file in emitted.sources],
        wheel=_wheel(emitted.wheel),
        notes=[*(f"{each.says}: {each.line}" for each in emitted.to_run), *emitted.notes],
    )


def _named(file: EmittedFile) -> EmittedName:
    """A source of this package without its text, which is in every installation of firstlight."""
    data = file.text.encode()
    return {"name": file.name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _wheel(wheel: EmittedWheel | None) -> EmittedName | None:
    """firstlight's own wheel without its bytes; null: nothing installs firstlight, or an index is to have it."""
    return None if wheel is None else {"name": wheel.name, "sha256": wheel.sha256, "bytes": len(wheel.data)}


def _gates(gates: Gates) -> EmittedGates:
    asked = {name: _said(getattr(gates, name)) for name in ("wheel_cuda", "min_driver", "min_driver_alone", "min_cuda")}
    return shown(EmittedGates, gates, min_jetson_linux=_said(gates.min_l4t), **asked)


def _said(fact: Fact[Any]) -> str | None:
    """The value as text; null: it is not asked."""
    return str(fact.value) if isinstance(fact, Known) else None
