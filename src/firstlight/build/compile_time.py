"""How long a build has compiled, over all of the runs that it took: a kill leaves what was counted until then."""

from __future__ import annotations

import time

from firstlight.build.keys import done_record, key_of
from firstlight.build.spec import BuildSpec, Stage, read_document, write_document

NAME = "compile-time.json"


class CompileTime:
    """The clock of the stage compile: this run, and what earlier runs of the same build left in its file."""

    def __init__(self, spec: BuildSpec) -> None:
        self._spec = spec
        self._before = 0.0 if done_record(spec, Stage.COMPILE) else _kept(spec)
        self._begun = time.monotonic()

    def seconds(self) -> float:
        return self._before + time.monotonic() - self._begun

    def keep(self) -> None:
        """Write down what was counted so far."""
        kept = {"key": key_of(self._spec, Stage.COMPILE), "seconds": round(self.seconds(), 1)}
        write_document(self._spec.folder, NAME, kept)


def compiled_before(spec: BuildSpec) -> float:
    """Seconds that earlier runs compiled of a build which is gone on with; 0 where it begins, or is done already."""
    compiled = done_record(spec, Stage.COMPILE)
    if not compiled:
        return _kept(spec)
    minutes = compiled.get("minutes")
    ended = spec.only or done_record(spec, Stage.PROVE)
    return 0.0 if ended or not isinstance(minutes, (int, float)) else minutes * 60


def _kept(spec: BuildSpec) -> float:
    """Seconds in the file of a build; 0 where it was compiled from other inputs."""
    found = read_document(f"{spec.folder}/{NAME}")
    seconds = found.get("seconds") if isinstance(found, dict) and found.get("key") == key_of(spec, Stage.COMPILE) else 0
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0
