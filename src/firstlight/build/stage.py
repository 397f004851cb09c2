"""One stage of a build, as a process of its own: python -m firstlight.build.stage FOLDER STAGE DIGEST.

`apply` runs it like every other command: written down before it starts, its output in a log, waited for if its parent
was killed. Exit code 0: done; 1, 2 or 4: failed, as the error has it, and the last line says why; 130: interrupted,
everything kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from firstlight.build.running import say
from firstlight.build.spec import BuildSpec, SourceSpec, Stage, digest_of, read_source_spec, require_same
from firstlight.build.standing import forget_failure, write_failure
from firstlight.errors import CouldNotAct, FirstlightError

OF_THE_SOURCE = (Stage.FETCH, Stage.SUBMODULES, Stage.PATCH)


def _work_on_source(stage: Stage) -> Callable[[SourceSpec], None]:
    from firstlight.build import fetching

    return {
        Stage.FETCH: fetching.fetch, Stage.SUBMODULES: fetching.submodules, Stage.PATCH: fetching.patch_tree
    }[stage]  # fmt: skip


def _work_on_build(stage: Stage) -> Callable[[BuildSpec], None]:
    """What a stage does; the others are not imported, since each stage is a process that has to start."""
    if stage in (Stage.CONFIGURE, Stage.COMPILE):
        from firstlight.build.compiling import compile_all, configure

        return configure if stage is Stage.CONFIGURE else compile_all
    if stage is Stage.WHEEL:
        from firstlight.build.wheel_finish import make_wheel

        return make_wheel
    if stage is Stage.INSTALL:
        from firstlight.build.into_prefix import install_into_prefix

        return install_into_prefix
    from firstlight.build.proving import prove

    return prove


def run_stage(folder: str, stage: Stage, digest: str) -> None:
    """Carry one stage out; CouldNotAct where the folder holds another build than the one agreed to."""
    if stage in OF_THE_SOURCE:
        source = read_source_spec(folder)
        if source is None or digest_of(source) != digest:
            raise CouldNotAct(
                f"{folder}: its source.json is not the one that was agreed to. Run `firstlight build` again."
            )
        _work_on_source(stage)(source)
        return
    _work_on_build(stage)(require_same(folder, digest))


def main(words: list[str]) -> int:
    folder, name, digest = words
    try:
        forget_failure(folder)
        run_stage(folder, Stage(name), digest)
    except FirstlightError as error:
        say(f"firstlight: {error}")
        write_failure(folder, Stage(name), error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        failure = CouldNotAct(f"{name}: {error.strerror}: {error.filename or os.path.basename(folder)}")
        say(f"firstlight: {failure}")
        with suppress(OSError):  # a full disk takes no more files
            write_failure(folder, Stage(name), failure)
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
