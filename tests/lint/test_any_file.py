"""No file, however odd, makes lint crash or hang; every finding it gives fits the schema."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.errors import BadInput
from firstlight.lint.judge import Given, lint
from firstlight.report.lint_json import lint_document
from firstlight.report.lint_text import lint_text
from tests.lint.linting import H100_550, machine
from tests.lint.test_lint_rules import CASES

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/lint-1.json").read_text())
LINES = sorted({line for case in CASES for line in (case.fires + case.near_miss).splitlines() if line[0] != " "})
ON = (
    "gpu-less",
    "h200",
    "gke-libcuda-out-of-reach",
    "orin-torch-pypi",
    "wsl2-healthy",
    H100_550,
    "RTX 5090, driver 580",
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12), st.sampled_from(ON))
def test_lines_of_all_cases_in_any_order_on_any_machine(lines: list[str], on: str) -> None:
    given_ = Given("Dockerfile", "FROM python:3.12\n" + "\n".join(lines) + "\n")
    report = lint(given_, machine(on), read=lambda _: "torch==2.11.0\n")
    jsonschema.validate(lint_document(report, machine(on)), SCHEMA)
    assert lint_text(report, machine(on)).endswith("\n")


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="abc:-[]{}&*<>|\n '\"$", max_size=60))
def test_any_yaml_is_read_or_refused(text: str) -> None:
    for whole in (text, f"services:\n  a:\n    image: b\n    environment: {text}"):
        try:
            lint(Given("c.yml", whole), machine(H100_550), read=lambda _: None)
        except BadInput:
            pass


def test_a_long_file_and_a_doubling_variable_are_read_in_time() -> None:
    start = time.monotonic()
    doubling = "ENV A=xxxxxxxx\n" + "ENV A=$A$A\n" * 80
    heredoc = "RUN <<EOF\n" + "pip install numpy && echo done\n" * 2000 + "EOF\n"
    continued = "RUN " + "echo a && \\\n    " * 2000 + "echo b\n"
    lint(Given("Dockerfile", f"FROM a\n{doubling}{heredoc}{continued}"), machine(H100_550), read=lambda _: None)
    assert time.monotonic() - start < 60  # minutes or the end of the memory, were it quadratic or doubling
