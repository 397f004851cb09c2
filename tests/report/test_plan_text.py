"""A plan on the screen: every condition has words, a file is a line, `--diff` shows it whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.facts.known import Known
from firstlight.report.plan_text import Files, steps_text
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind

STEP = Step(
    id="01-x", kind=StepKind.FILE, title="take it out", because="compat-stale", commands=(("ldconfig",),),
    files=(FileChange("/root/.bashrc", "a\nexport B=1\nc\n", "a\nc\n"),), needs_root=False, done_when=(), back=(),
    seconds=Known(0.0, ""), bytes=Known(0, ""),
)  # fmt: skip


@pytest.mark.parametrize("kind", CheckKind)
def test_every_condition_has_words(kind: CheckKind) -> None:
    condition = Condition(kind, "TARGET", "EXPECTED", ("nvidia-smi", "-L"))
    done = steps_text((replace(STEP, done_when=(condition,)),)).partition("   done    ")[2]
    assert "nvidia-smi -L\n" in done if kind is CheckKind.COMMAND else "TARGET" in done


def test_a_file_is_a_line_and_its_diff_is_asked_for() -> None:
    folded, whole = (steps_text((STEP,), files=files) for files in (Files.FOLDED, Files.DIFF))
    assert "\n   file: /root/.bashrc, 1 line removed\n   ldconfig\n" in folded
    assert "export B" not in folded
    assert "\n   -export B=1\n" in whole
    assert "file:" not in whole
