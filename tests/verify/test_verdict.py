"""What a run says at its end, as text, JSON and JUnit, and with which exit code."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from junitparser import JUnitXml

from firstlight.report.verify_json import verify_document
from firstlight.report.verify_junit import verify_junit
from firstlight.report.verify_text import Detail, verify_text
from firstlight.tables.feature_lookups import features
from firstlight.verify.check import CheckOutcome, Evidence, FeatureState, Met, Report, RequirementResult, Result
from firstlight.verify.children.feature_probes import PROBES
from firstlight.verify.features import feature_table
from firstlight.verify.verdict import exit_code, summary
from tests.verify.standing_in import said

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/verify-1.json").read_text())
OK = Result("import", "torch imports", CheckOutcome.OK, "torch 2.11.0+cu130", seconds=2.5)
CPU = Result("cpu", "the processor computes", CheckOutcome.OK, "matches", evidence=(Evidence("max error", 4e-7),))
GPUS = Result("gpus", "every GPU computes", CheckOutcome.OK, "1 of 1 GPU computes what float64 computes")
NO_GPU = Result("gpus", "every GPU computes", CheckOutcome.NOT_HERE, "no NVIDIA GPU")
SKIPPED = Result("ssh", "over ssh", CheckOutcome.SKIPPED, "no ssh server answers")
FAILED = Result(
    "cudnn",
    "cuDNN convolves",
    CheckOutcome.FAILED,
    "the float32 convolution is off by 0.5",
    ("Look at `libraries`.",),
    (Evidence("float32 convolution, max error", float("nan")),),
    ("python3", "run.py"),
    3.0,
    "Traceback\x1b[31m\nRuntimeError",
)


def report(*results: Result, **changes: object) -> Report:
    plain = Report(
        "H200", "Ubuntu", "/usr/bin/python3", "2026-11-15T02:38:25Z", 41.2, results, (), (), "", (), has_gpu=True
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def row(met: Met) -> RequirementResult:
    return RequirementResult("torch", ">=2.9,<3", "2.8.0", met, 3)


@pytest.mark.parametrize(
    ("made", "code", "told"),
    [
        (report(OK, CPU, GPUS), 0, "proved on this machine: 3 checks, in 41 s"),
        (report(OK, CPU, GPUS, SKIPPED), 0, "proved on this machine: 3 checks; 1 check skipped, in 41 s"),
        (report(OK, CPU, NO_GPU, has_gpu=False), 0, "the CPU part is proved; there is no GPU here, and that is all"),
        (report(OK, NO_GPU, has_gpu=False), 0, "what was asked for is proved; there is no GPU here"),
        (report(OK, NO_GPU, has_gpu=False, asked=("import", "gpus")), 1, "NOT PROVED: gpus, asked for by name"),
        (report(OK, SKIPPED, asked=("ssh",)), 1, "NOT PROVED: ssh, asked for by name"),
        (report(OK, GPUS, FAILED), 1, "NOT PROVED: 1 check failed, 2 proved"),
        (report(SKIPPED), 1, "nothing was proved"),
        (report(requirements=(row(Met.YES),), require_file="t.toml"), 0, "1 of 1 requirements of t.toml are met"),
        (report(OK, requirements=(row(Met.NO),), require_file="t.toml"), 1, "0 of 1 requirements"),
        (report(OK, requirements=(row(Met.NOT_KNOWN),), require_file="t.toml"), 1, "0 of 1 requirements"),
    ],
)
def test_the_last_lines_and_the_exit_code_say_what_was_proved(made: Report, code: int, told: str) -> None:
    assert exit_code(made) == code
    assert told in "\n".join(summary(made))


def test_skipped_and_absent_checks_never_stand_among_the_proved() -> None:
    text = verify_text(report(OK, SKIPPED, NO_GPU), Detail.LINE)
    assert "  skipped   ssh" in text
    assert "  not here  gpus" in text
    assert "\nproved: import\n" in text
    assert "\nskipped, not proved: ssh\n" in text


def test_a_failure_shows_what_was_seen_said_and_what_to_do() -> None:
    text = verify_text(report(OK, FAILED), Detail.LINE)
    after = text.partition("  FAILED    cudnn")[2]
    for told in ("off by 0.5", "max error: nan", "RuntimeError", "Look at `libraries`."):
        assert told in after
    assert max(map(len, text.splitlines())) <= 110
    everything = verify_text(report(CPU, FAILED), Detail.ALL)
    assert "max error: 4e-07" in everything
    assert "python3 run.py" in everything


def test_the_document_fits_its_schema() -> None:
    made = report(
        *(OK, CPU, SKIPPED, NO_GPU, FAILED),
        features=feature_table(None),
        requirements=(row(Met.NO),),
        require_file="t.toml",
    )
    document = verify_document(made)
    assert next(iter(document)) == "schema"
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document, allow_nan=False)))
    assert document["exit_code"] == 1


def test_junit_counts_failures_and_skips_and_can_be_parsed() -> None:
    text = verify_junit(report(OK, SKIPPED, NO_GPU, FAILED, requirements=(row(Met.NO),)))
    root = ET.fromstring(text)
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "5", "2")
    checks, required = root.findall("testsuite")
    assert (checks.get("tests"), checks.get("failures"), checks.get("skipped"), checks.get("errors")) == (
        "4",
        "1",
        "2",
        "0",
    )
    assert checks.get("time") == "5.500"
    assert checks.get("timestamp") == "2026-11-15T02:38:25"
    assert (required.get("tests"), required.get("failures")) == ("1", "1")
    cases = {case.get("name"): case for case in checks.findall("testcase")}
    failure = cases["cudnn"].find("failure")
    assert failure is not None
    assert failure.get("message") == FAILED.says
    assert "do: Look at `libraries`." in str(failure.text)
    assert cases["import"].find("failure") is None
    assert cases["import"].get("classname") == "firstlight.verify"
    skipped = cases["gpus"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "not here: no NVIDIA GPU"


def test_in_junit_a_check_asked_for_by_name_and_not_proved_is_a_failure() -> None:
    root = ET.fromstring(verify_junit(report(OK, NO_GPU, asked=("gpus",))))
    assert [(suite.get("failures"), suite.get("skipped")) for suite in root] == [("1", "0")]


def test_junit_has_only_the_attributes_of_the_schema_that_jenkins_checks_files_with() -> None:
    """junit-10.xsd of jenkinsci/xunit-plugin; `skipped` on <testsuites> is not in it, and the file is refused."""
    allowed = {
        "testsuites": {"name", "time", "tests", "failures", "errors"},
        "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "id"},
        "testcase": {"name", "time", "classname", "group"},
        "failure": {"type", "message"},
        "skipped": {"type", "message"},
        "system-out": set(),
    }
    root = ET.fromstring(verify_junit(report(OK, SKIPPED, NO_GPU, FAILED, requirements=(row(Met.NO),))))
    for element in root.iter():
        assert set(element.attrib) <= allowed[element.tag], element.tag


def test_junitparser_reads_the_same_counts() -> None:
    read = JUnitXml.fromstring(verify_junit(report(OK, SKIPPED, NO_GPU, FAILED, requirements=(row(Met.NO),))).encode())
    assert (read.tests, read.failures, read.errors) == (5, 2, 0)
    assert [(suite.name, suite.skipped) for suite in read] == [("firstlight.verify", 2), ("firstlight.require", 0)]


def test_every_feature_that_exists_has_a_way_to_be_looked_at() -> None:
    there = {each.feature for each in features() if each.exists}
    assert there <= PROBES.keys()
    assert PROBES.keys() <= {each.feature for each in features()}


def test_every_feature_of_field_report_004_has_a_row() -> None:
    claims = " ".join(f"{each.title} {each.claim}" for each in features()).lower()
    for word in (
        "fbgemm", "tensorexpr", "cudnn", "cudnn frontend", "nccl", "flash attention", "memory efficient attention",
        "tf32", "fp8", "mxfp8", "mslk", "lazy module loading", "expandable segments", "torchrec", "fp4", "tma",
        "sm_100", "sm_120", "use_tensorexpr", "use_cudnn_frontend", "cudnn_allow_tf32_cublas_override", "32 mib",
        "nccl_net_gdr_level",
    ):  # fmt: skip
        assert word in claims, word


def test_a_feature_is_what_was_seen_of_it_not_what_was_claimed() -> None:
    found = {
        "fp8": ["works", "max error 0.01"],
        "mxfp8": ["built", "there"],
        "cudnn": ["broken", "RuntimeError: CUDNN_STATUS_NOT_INITIALIZED"],
        "torchrec": ["absent", "not installed"],
        "nccl": ["not built", "no NCCL"],
        "cudnn-tf32-override": ["not built", "libtorch_cpu.so does not hold the name"],
    }
    table = {each.feature: each for each in feature_table(said(features=found, capability=[9, 0]))}
    assert table["fp8"].state is FeatureState.WORKS
    assert table["mxfp8"].state is FeatureState.NOT_ON_GPU
    assert "needs capability 10.0, this GPU has 9.0" in table["mxfp8"].saw
    assert table["cudnn"].state is FeatureState.BROKEN
    assert table["torchrec"].state is FeatureState.NOT_INSTALLED
    assert table["nccl"].state is FeatureState.NOT_BUILT
    assert table["cudnn-tf32-override"].state is FeatureState.NO_SUCH_THING
    assert table["use-tensorexpr"].state is FeatureState.NO_SUCH_THING
    assert table["tf32"].state is FeatureState.NOT_LOOKED_AT


def test_without_an_answer_the_table_claims_nothing() -> None:
    states = {each.state for each in feature_table(said(CheckOutcome.FAILED))}
    assert states == {FeatureState.NOT_LOOKED_AT, FeatureState.NO_SUCH_THING}
