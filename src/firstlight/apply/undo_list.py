"""Packages of before from the folder that a step installed from: what was listed then, by its digest, and no other."""

from __future__ import annotations

from firstlight.apply.executor import Acting
from firstlight.apply.package_sets import Difference
from firstlight.apply.surroundings import is_from_list
from firstlight.errors import CouldNotAct
from firstlight.ways.listed import listed_in
from firstlight.ways.offline import PIP_FLAGS, UV_FLAGS
from firstlight.ways.step import Step, StepKind


def was_from_list(step: Step) -> bool:
    """Whether the step installed from a list of wheels with digests."""
    return any(is_from_list(argv) for argv in step.commands)


def sources_from_list(acting: Acting, step: Step, gap: Difference) -> tuple[str, ...]:
    """What pip or uv is told, with a file of what has to come back; refused where the list lacks one of them."""
    listed = {name: line for change in step.files for name, line in listed_in(change.after).items()}
    if lacking := [each for each in gap.back if each not in listed]:
        raise CouldNotAct(
            f"{', '.join(lacking)} was there before, and no wheel of it was in {_folder(step)}. Install it by hand, "
            "then run undo again."
        )
    path = f"{acting.folder}/way-back.txt"
    acting.disk.write(path, "".join(f"{listed[each]}\n" for each in gap.back).encode(), mode=0o600)
    flags = UV_FLAGS if step.kind is StepKind.UV else PIP_FLAGS
    return (*(flag for flag in flags if flag != "--no-deps"), _folder(step), "-r", path)


def _folder(step: Step) -> str:
    [argv] = [argv for argv in step.commands if is_from_list(argv)][:1]
    return argv[argv.index("--find-links") + 1]
