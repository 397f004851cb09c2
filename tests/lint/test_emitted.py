"""The Dockerfiles that firstlight writes itself pass its own lint on the machines that they are for."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Goal, Severity
from firstlight.emit.kinds import emit
from firstlight.emit.subject import Asked, Choices, subject_of
from firstlight.lint.judge import Given, lint
from firstlight.plan.request import Request
from firstlight.plan.want import parse_want
from tests.lint.linting import machine, tables


@pytest.mark.parametrize(
    ("on", "want"),
    [
        ("H100, driver 550", "torch==2.9.0+cu130"),
        ("H100, driver 550", "torch==2.6.0"),
        ("H100, driver 580", "torch"),
        ("RTX 4090, driver 550", "torch==2.6.0"),
        ("B200, driver 580", "torch==2.9.0+cu130"),
    ],
)
def test_an_emitted_dockerfile_blocks_nothing_where_it_is_for(on: str, want: str) -> None:
    question = machine(on)
    asked = Asked(Request((parse_want(want),), Goal.INFER))
    subject = subject_of(question.facts, asked, made_for=on, tables=tables(), choices=Choices())
    files = {file.name: file.text for file in emit("dockerfile", subject).files}
    report = lint(Given("Dockerfile", files["Dockerfile"]), question, read=files.get)
    assert [finding for finding in report.findings if finding.severity is not Severity.NOTE] == []


def test_an_emitted_dockerfile_is_turned_away_by_a_driver_that_its_gate_does_not_list() -> None:
    question = machine("H100, driver 580")
    asked = Asked(Request((parse_want("torch==2.9.0+cu130"),), Goal.INFER))
    subject = subject_of(question.facts, asked, made_for="H100", tables=tables(), choices=Choices())
    text = next(file.text for file in emit("dockerfile", subject).files if file.name == "Dockerfile")
    report = lint(Given("Dockerfile", text), machine("RTX 4090, driver 550"), read=lambda _: None)
    assert {finding.code for finding in report.findings} >= {"image-refused-by-driver", "torch-needs-newer-driver"}
