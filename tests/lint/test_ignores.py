"""A comment with a code and a reason silences a finding on its line or the next; one that does nothing is said."""

from __future__ import annotations

import pytest

from firstlight.errors import BadInput
from firstlight.lint.judge import Given, lint
from firstlight.lint.rule import LintReport
from firstlight.ways.kinds import AskPerson, Why
from tests.lint.linting import machine

TORCH = "torch==2.12.0"
CODE = "torch-needs-newer-driver"


def _report(text: str, file: str = "requirements.txt", **beside: str) -> LintReport:
    return lint(Given(file, text), machine("H100, driver 550"), read=lambda path: beside.get(path))


@pytest.mark.parametrize(
    "text",
    [
        f"{TORCH}  # firstlight: ignore[{CODE}] because the driver comes next week\n",
        f"# firstlight: ignore[{CODE}] because the driver comes next week\n{TORCH}\n",
        f"# firstlight: ignore[{CODE}] because x\n# firstlight: ignore[torch-is-cpu-only] because y\n{TORCH}\n",
        f"#firstlight:ignore[ torch-is-cpu-only , {CODE} ], because: x\n{TORCH}\n",
    ],
)
def test_a_comment_with_a_reason_silences_its_line(text: str) -> None:
    report = _report(text)
    assert not report.blocked
    assert [each.finding.code for each in report.ignored] == [CODE]
    assert report.ignored[0].reason.startswith(("the driver", "x"))


@pytest.mark.parametrize(
    ("text", "saw"),
    [
        (f"{TORCH}  # firstlight: ignore[{CODE}]\n", "gives no reason, so it silences nothing"),
        (f"{TORCH}  # firstlight: ignore because x\n", "it names no code"),
        (f"{TORCH}  # firstlight: ignore[torch-needs-new-driver] because x\n", f"did you mean {CODE}?"),
        (f"# firstlight: ignore[{CODE}] because x\n\n{TORCH}\n", f"line 2 has no {CODE} on this machine"),
        (f"{TORCH}  # firstlight: ignore[torch-is-cpu-only] because x\n", "line 1 has no torch-is-cpu-only"),
    ],
)
def test_a_comment_that_does_nothing_is_said_and_silences_nothing(text: str, saw: str) -> None:
    report = _report(text)
    assert report.blocked
    assert not report.ignored
    assert [saw in each.saw for each in report.findings if each.code == "ignore-comment"] == [True]


def test_a_comment_in_the_dockerfile_of_a_compose_file_counts_there() -> None:
    compose = "services:\n  a:\n    build: .\n    gpus: all\n"
    dockerfile = f"FROM python:3.12\n# firstlight: ignore[{CODE}] because x\nRUN pip install torch==2.12.0\n"
    report = _report(compose, "compose.yml", Dockerfile=dockerfile)
    assert [(each.finding.code, each.finding.file) for each in report.ignored] == [(CODE, "Dockerfile")]
    assert CODE not in {each.code for each in report.findings}


def test_json_with_comments_takes_its_own_sign() -> None:
    comment = f"// firstlight: ignore[{CODE}] because x"
    text = f'{{"image": "python:3.12",\n{comment}\n"postCreateCommand": "pip install {TORCH}"}}\n'
    assert [each.finding.line for each in _report(text, "devcontainer.json").ignored] == [3]


@pytest.mark.parametrize("line", ["USER 1000", "COPY a /root/b", "ARG X=1", "workdir /root"])
def test_behind_most_instructions_of_a_dockerfile_there_is_no_comment(line: str) -> None:
    text = f"FROM python:3.12\n{line} # firstlight: ignore[user-without-access] because x\n"
    report = _report(text, "Dockerfile")
    assert not report.ignored
    (remark,) = (each for each in report.findings if each.code == "ignore-comment")
    assert remark.answers[0].ways[0] == AskPerson(
        "edit-by-hand", Why.DECISION, of=("put it on a line of its own above this one",)
    )


@pytest.mark.parametrize(
    "text",
    [
        "FROM python:3.12 # firstlight: ignore[gpus-not-asked-for] because x\n",
        "FROM python:3.12 AS a #x\n",
        "FROM python:3.12\nENV A=1 # why\n",
    ],
)
def test_a_comment_on_which_the_build_ends_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"a comment behind (FROM|ENV), on which the build ends"):
        _report(text, "Dockerfile")


@pytest.mark.parametrize("line", ["ENV A='# 1'", "ENV A # 1", "ENV A=#1", "RUN true # x", "LABEL a=b"])
def test_a_hash_that_is_no_comment_is_let_be(line: str) -> None:
    assert not _report(f"FROM python:3.12\n{line}\n", "Dockerfile").blocked


def test_a_comment_behind_run_silences_there() -> None:
    text = f"FROM python:3.12\nRUN pip install {TORCH} # firstlight: ignore[{CODE}] because x\n"
    assert [each.finding.code for each in _report(text, "Dockerfile").ignored] == [CODE]


def test_a_comment_that_another_machine_may_need_is_not_to_be_written_again() -> None:
    (remark,) = _report(f"# firstlight: ignore[{CODE}] because x\ntorch==2.5.1\n").findings
    assert remark.answers[0].ways[0] == AskPerson(
        "edit-by-hand", Why.DECISION, of=("leave it if another machine needs it, else take it out",)
    )
