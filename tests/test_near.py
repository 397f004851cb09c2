"""What is proposed for a name that nobody knows: what a person would have meant, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.cli import main
from firstlight.cli.main import VERBS
from firstlight.diagnosis.rules import RULES
from firstlight.near import nearest
from firstlight.tables import load
from firstlight.tables.subjects import GROUPS, SUBJECTS
from firstlight.verify.require_file import _READERS

NAMES = {
    "verb": tuple(VERBS),
    "rule": tuple(rule.code for rule in RULES),
    "table": (*GROUPS, *(subject.name for subject in SUBJECTS)),
    "requirement": tuple(_READERS),
    "gpu": tuple(row.gpu for row in load().gpu_peaks),
}
MEANT = [
    ("verb", "docter", "doctor"), ("verb", "verfy", "verify"), ("verb", "aply", "apply"), ("verb", "plane", "plan"),
    ("verb", "benchmark", "bench"), ("verb", "Doctor", "doctor"),
    ("rule", "drivr-too-old-for-wheel", "driver-too-old-for-wheel"),
    ("rule", "torch-cpu", "torch-cpu-only"), ("rule", "disk-full", "disk-nearly-full"),
    ("rule", "nouveau", "nouveau-loaded"),
    ("table", "gpus_peaks", "gpu_peaks"), ("table", "xid", "xids"), ("table", "torches", "torch"),
    ("requirement", "gpu", "gpus"), ("requirement", "driver", "min_driver"),
    ("gpu", "rtx5090", "rtx-5090"), ("gpu", "rtx-4900", "rtx-4090"), ("gpu", "gb-200", "gb200"),
    ("gpu", "h100sxm", "h100-sxm"),
    ("gpu", "l40-s", "l40s"), ("gpu", "h10", "h100-sxm"), ("gpu", "a6000", "rtx-a6000"),
]  # fmt: skip
NOT_MEANT = [
    ("verb", "repair"), ("verb", "test"), ("verb", "clean"), ("verb", "version"), ("verb", "list"), ("verb", "init"),
    ("verb", "export"), ("verb", "install"), ("table", "price"), ("table", "amd"), ("requirement", "name_of_the_rose"),
    ("gpu", "mi300x"), ("gpu", "gtx-1080"), ("gpu", "rtx-2080"), ("gpu", "rtx-6090"), ("gpu", "p100"), ("gpu", "k80"),
    ("gpu", "arc-b580"), ("gpu", "h300"), ("gpu", "tpu-v5"), ("gpu", "h800"), ("rule", "xyz"),
    ("verb", ""), ("verb", "x" * 5000),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "word", "name"), MEANT)
def test_a_slip_and_a_part_of_a_name_find_it(kind: str, word: str, name: str) -> None:
    assert nearest(word, NAMES[kind])[0] == name


@pytest.mark.parametrize(("kind", "word"), NOT_MEANT)
def test_another_word_is_not_taken_for_one_of_ours(kind: str, word: str) -> None:
    assert nearest(word, NAMES[kind]) == ()


@given(st.text(max_size=90), st.lists(st.text(max_size=90), max_size=5))
def test_no_text_breaks_it_and_a_name_finds_itself(word: str, names: list[str]) -> None:
    assert set(nearest(word, names, 3)) <= set(names)
    assert nearest("doctor", [*names, "doctor"])[0] == "doctor"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["facts", "--jsn"], "No such option '--jsn'. Did you mean --json? See"),
        (["bench", "--efort", "quick"], "Did you mean --effort?"),
        (["bench", "--zzz"], "No such option '--zzz'. See"),
    ],
)
def test_an_option_that_is_not_there_is_answered_by_one_that_was_meant(
    call: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(call) == 2
    assert said in capsys.readouterr().err
