"""Whether a stage is done: python -m firstlight.build.done FOLDER STAGE DIGEST; exit code 0 or 1, changes nothing."""

from __future__ import annotations

import sys

from firstlight.build.fetching import source_holds
from firstlight.build.keys import holds
from firstlight.build.spec import Stage, digest_of, read_source_spec, read_spec
from firstlight.build.stage import OF_THE_SOURCE
from firstlight.errors import FirstlightError

MODULE = "firstlight.build.done"


def is_stage_done(folder: str, stage: Stage, digest: str) -> bool:
    """Whether the folder holds this build, and the stage is done in it."""
    if stage in OF_THE_SOURCE:
        source = read_source_spec(folder)
        return source is not None and digest_of(source) == digest and source_holds(source, stage)
    spec = read_spec(folder)
    return spec is not None and digest_of(spec) == digest and holds(spec, stage)


def main(words: list[str]) -> int:
    folder, name, digest = words
    try:
        return 0 if is_stage_done(folder, Stage(name), digest) else 1
    except (FirstlightError, OSError):
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
