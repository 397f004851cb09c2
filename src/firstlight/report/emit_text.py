"""What was emitted, in lines for a person: what is inside, whom it lets in, and what to do with it."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.emit.document import Emitted
from firstlight.emit.subject import Subject
from firstlight.facts.known import Known


def emit_text(subject: Subject, emitted: Emitted) -> str:
    """The summary that goes to stderr, beside the file itself."""
    return "".join(f"{line}\n" for line in _lines(subject, emitted))


def _lines(subject: Subject, emitted: Emitted) -> Iterator[str]:
    gates = emitted.gates
    yield f"{emitted.kind} for {subject.made_for}: {emitted.what or subject.what}"
    if subject.instead_of and not emitted.what:
        why = (
            "NVIDIA's package works with more drivers than the archive, and root, which it needs, is there"
            if subject.compat
            else "a file can carry it"
        )
        yield f"  not      {subject.instead_of}, which doctor names first here: {why}"
    yield f"  inside   {', '.join((*subject.requirements, subject.numpy))} ({subject.target.words})"
    if isinstance(gates.min_driver_alone, Known) and isinstance(gates.min_cuda, Known):
        older = ", ".join(str(branch) for branch in gates.compat_branches)
        with_compat = f"; {older} with a compat library, decided at each start" if older else ""
        yield f"  driver   {gates.min_driver_alone.value} or newer{with_compat}"
        if isinstance(gates.min_l4t, Known):
            yield f"  Jetson   Jetson Linux {gates.min_l4t.value} or newer, whatever the driver's number"
        yield f"  CUDA     {gates.cuda_words}, as nvidia-smi counts it"
        held = " ".join(str(each) for each in gates.capabilities) or "not known for this build, so not checked"
        yield f"  GPUs     capability {held}"
    else:
        yield "  driver   none is needed: this torch is built without CUDA"
    yield f"  plan     {emitted.digest[:12]}"
    if (wheel := emitted.wheel) is not None:
        yield f"  wheel    {wheel.name} ({len(wheel.data) / 1e6:.1f} MB, SHA-256 {wheel.sha256[:12]}...)"
    for each in subject.left_out:
        yield f"  left out {each}"
    for note in emitted.notes:
        yield f"  {note}"
    for command in emitted.to_run:  # alone on its line, to be pasted
        yield f"  {command.says}:"
        yield f"    {command.line}"
