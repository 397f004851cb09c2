"""What `emit --build` wrote: for people, and as a document (schema firstlight.emit-build/1)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from firstlight.emit.build_files import BuildOrder, EmittedBuild
from firstlight.emit.document import made_by
from firstlight.report.layout import labelled

if TYPE_CHECKING:
    from firstlight.report.documents.acting import EmitBuildDocument

SCHEMA = "firstlight.emit-build/1"


def emit_build_text(emitted: EmittedBuild, order: BuildOrder) -> str:
    """What is built, and what to do with the files; commands alone on their line."""
    out = f"{emitted.kind}: build {order.target} {' '.join(order.options)}".rstrip() + "\n"
    for each in emitted.notes:
        out += labelled("  note", (each,), label_width=11)
    for step in emitted.to_run:
        out += f"  {step.says}:\n    {step.line}\n"
    return out


def emit_build_document(emitted: EmittedBuild, order: BuildOrder) -> EmitBuildDocument:
    """The files with their texts; wheel and sdist by their digests."""
    sdist = emitted.sdist
    return {
        "schema": SCHEMA,
        "made_by": made_by(),
        "kind": emitted.kind,
        "target": order.target,
        "options": list(order.options),
        "files": [
            {
                "name": each.name,
                "mode": f"{each.mode:04o}",
                "sha256": hashlib.sha256(each.text.encode()).hexdigest(),
                "text": each.text,
            }
            for each in emitted.files
        ],
        "wheel": {"name": emitted.wheel.name, "sha256": emitted.wheel.sha256, "bytes": len(emitted.wheel.data)},
        "sdist": None if sdist is None else {"name": sdist.name, "sha256": sdist.sha256, "bytes": len(sdist.data)},
        "notes": [*(f"{each.says}: {each.line}" for each in emitted.to_run), *emitted.notes],
    }
