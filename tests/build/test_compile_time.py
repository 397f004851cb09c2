"""What compiling took counts over all of the runs of a build: a kill loses what came after the last look alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from firstlight.build.compile_time import NAME, CompileTime, compiled_before
from firstlight.build.keys import mark_done
from firstlight.build.progress import Progress
from firstlight.build.spec import BuildSpec, Stage, read_document, write_document
from tests.build.test_build_sources import spec_in


def kept_seconds(spec: BuildSpec, seconds: float) -> None:
    """What a run that was killed after so long has left."""
    Path(spec.folder).mkdir(exist_ok=True)
    CompileTime(spec).keep()
    found = read_document(f"{spec.folder}/{NAME}")
    assert isinstance(found, dict)
    write_document(spec.folder, NAME, {**found, "seconds": seconds})


def test_a_build_that_was_killed_twice_counts_both_runs(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b")
    assert compiled_before(spec) == 0
    kept_seconds(spec, 600.0)
    assert compiled_before(spec) == 600
    second = Progress(spec, Stage.COMPILE)
    time.sleep(0.2)
    second.write()
    assert 600.1 <= compiled_before(spec) < 660
    third = CompileTime(spec)
    assert 600.1 <= third.seconds() < 660


def test_other_stages_do_not_count_as_compiling(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b")
    kept_seconds(spec, 600.0)
    configuring = Progress(spec, Stage.CONFIGURE)
    time.sleep(0.2)
    configuring.write()
    assert compiled_before(spec) == 600


def test_what_was_compiled_from_other_inputs_does_not_count(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b")
    kept_seconds(spec, 600.0)
    other = replace(spec, archs=("8.0",))
    assert compiled_before(other) == 0
    assert CompileTime(other).seconds() < 60


def test_a_stage_that_ended_is_counted_once_and_a_later_one_begins_at_nothing(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b")
    kept_seconds(spec, 600.0)
    mark_done(spec, Stage.COMPILE, {"minutes": 11.0, "units": 6})
    assert compiled_before(spec) == 660, "the wheel was not made yet, so this build is gone on with"
    assert CompileTime(spec).seconds() < 60, "compiled again after it was done: that is another time"
    mark_done(spec, Stage.PROVE, {"of": "x", "proofs": []})
    assert compiled_before(spec) == 0
