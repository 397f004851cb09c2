"""The ways out of `explain` are made of the ways that `doctor` answers with."""

from __future__ import annotations

import json
import pkgutil

import pytest

from firstlight.diagnosis.explain import explain_given
from firstlight.diagnosis.finding import Rule
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.signatures import DATA, Signature, found_by, signature_of, signatures
from firstlight.report.explain_text import explained_json
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson
from firstlight.ways.way import Way, type_name

OF_CODE = {rule.code: rule for rule in RULES}

# What stands on a line to run, and the way that is then among those named.
SHOWN_BY: tuple[tuple[str, tuple[type[Way], ...]], ...] = (
    ("uv cache clean", (kinds.ClearCache,)),
    ("apt-get install", (kinds.InstallPackages, kinds.InstallDriver)),
    ("apt-get remove", (kinds.RemovePackages,)),
    ("apt-mark hold", (kinds.HoldPackages,)),
    ("conda install", (kinds.InstallConda,)),
    ("pip install", (kinds.InstallWheels, kinds.BuildFromSource, kinds.MakeEnvironment)),
    ("pip uninstall", (kinds.RemoveDistributions,)),
    ("firstlight libs --fix", (kinds.CloseLibraries,)),
    ("uv venv", (kinds.MakeEnvironment,)),
    ("docker run", (kinds.StartContainer, kinds.UseImage)),
    ("unset LD_LIBRARY_PATH", (kinds.Unwire,)),
    ("unset CUDA", (kinds.UnsetVariables,)),
    ("export LD_LIBRARY_PATH=$(printf", (kinds.Unwire,)),
    ("export CUDA", (kinds.SetVariables,)),
    ("export TORCH", (kinds.SetVariables,)),
    ("sudo reboot", (kinds.Restart,)),
    ("--gpu-reset", (kinds.ResetGpu,)),
    ("sudo rmmod", (kinds.ReloadModules,)),
    ("ln -s", (kinds.LinkFile,)),
    ("ENV ", (kinds.ChangeImage,)),
    ("RUN ", (kinds.ChangeImage,)),
)


# A product's row may go with one of several causes ("vLLM finds no GPU"): with --here doctor's way comes first.
APART = found_by()


def related_rules(signature: Signature) -> list[Rule]:
    return [OF_CODE[code] for code in signature.related if code not in APART.get(signature.code, ())]


@pytest.mark.parametrize("signature", signatures(), ids=lambda signature: signature.code)
def test_a_way_out_is_a_way_of_each_rule_that_judges_the_same_cause(signature: Signature) -> None:
    named = {kind for way in signature.ways_out for kind in way.ways}
    for rule in related_rules(signature):
        if rule.ways:  # a rule that only notes has none
            assert named & set(rule.ways), (rule.code, sorted(map(type_name, rule.ways)))


@pytest.mark.parametrize("signature", signatures(), ids=lambda signature: signature.code)
def test_a_command_stands_under_the_way_that_gives_it(signature: Signature) -> None:
    for way in signature.ways_out:
        for line in way.run:
            for words, wanted in SHOWN_BY:
                if words in line:
                    assert set(way.ways) & set(wanted), (line, way.ways)


def test_a_way_out_without_a_way_has_nothing_to_run() -> None:
    without = [way for signature in signatures() for way in signature.ways_out if not way.ways]
    assert {way.say for way in without} >= {"Ignore it."}
    assert not any(way.run for way in without)


def test_a_kind_of_way_that_there_is_not_is_refused_when_the_rows_are_read() -> None:
    text = pkgutil.get_data("firstlight.diagnosis", DATA)
    assert text is not None
    row = json.loads(text)["rows"][0]
    assert signature_of(row).ways_out[0].ways == (AskPerson,)
    row["ways_out"][0]["ways"] = ["ask-nobody"]
    with pytest.raises(ValueError, match=f"{row['code']}: 'ask-nobody' is not a kind of way"):
        signature_of(row)


def test_the_ways_stay_when_the_texts_are_filled_in() -> None:
    [explanation] = explain_given("nvcc fatal   : Unsupported gpu architecture 'compute_120'").explanations
    first = explanation.signature.ways_out[0]
    assert "cuda-12.8" in first.run[0]
    assert first.ways == (kinds.SetVariables,)


def test_json_names_the_types_of_each_way_out() -> None:
    [explanation] = json.loads(explained_json(explain_given("OSError: [Errno 28] No space left on device")))[
        "explanations"
    ]
    assert explanation["ways_out"][0]["ways"] == ["clear-cache"]
