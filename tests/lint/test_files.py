"""Whole files as people write them, and what is said of each line on a machine."""

from __future__ import annotations

import pytest

from firstlight.lint.judge import Given, lint
from tests.lint.linting import FILES, H100_550, H100_580, found, machine

B200 = "B200, driver 580"
SAID = {
    ("compat-first.Dockerfile", H100_550): {
        ("compat-baked-in", 5, "degrades"),
        ("torch-needs-newer-driver", 13, "degrades"),
    },
    ("compat-first.Dockerfile", "h200"): {("compat-baked-in", 5, "blocks")},
    ("compat-first.Dockerfile", "RTX 4090, driver 570"): {
        ("image-refused-by-driver", 2, "blocks"),
        ("compat-baked-in", 5, "blocks"),
        ("torch-needs-newer-driver", 13, "blocks"),
    },
    ("finetune.Dockerfile", H100_550): {
        ("arch-list-without-gpu", 4, "blocks"),
        ("torch-overwritten-later", 13, "blocks"),
        ("torch-needs-newer-driver", 13, "blocks"),
    },
    ("multi-stage.Dockerfile", H100_550): {
        ("arch-list-beyond-toolkit", 14, "blocks"),
        ("no-python-in-image", 17, "blocks"),  # the copied environment links to a Python that uv put elsewhere
        ("user-without-access", 19, "degrades"),
    },
    ("multi-stage.Dockerfile", B200): {
        ("arch-list-beyond-toolkit", 14, "blocks"),
        ("no-python-in-image", 17, "blocks"),  # the copied environment links to a Python that uv put elsewhere
        ("torch-has-no-code-for-gpu", 13, "blocks"),
        ("user-without-access", 19, "degrades"),
    },
    ("slim-notebook.Dockerfile", H100_550): {
        ("driver-inside-image", 3, "degrades"),
        ("gpu-during-build", 6, "blocks"),
    },
    ("ubuntu-24.Dockerfile", H100_580): {("pip-refused-by-system", 3, "blocks"), ("compute-left-out", 4, "blocks")},
    ("good.Dockerfile", H100_550): set(),
    ("good.Dockerfile", H100_580): set(),
    ("good.Dockerfile", B200): set(),
}


@pytest.mark.parametrize(("name", "on"), list(SAID))
def test_a_whole_file_gives_exactly_these_findings(name: str, on: str) -> None:
    findings = found((FILES / name).read_text(), on, file=name)
    assert {(each.code, each.line, each.severity.value) for each in findings} == SAID[name, on]


def test_a_stack_is_judged_service_by_service_with_the_dockerfile_it_builds() -> None:
    beside = {"finetune.Dockerfile": (FILES / "finetune.Dockerfile").read_text()}
    findings = found((FILES / "stack.yml").read_text(), H100_550, file="stack.yml", beside=beside)
    assert {(each.file, each.target, each.code, each.line) for each in findings} == {
        ("stack.yml", "api", "service-without-gpu", 18),
        ("stack.yml", "api", "small-shared-memory", 18),
        ("stack.yml", "api", "compat-baked-in", 23),
        ("stack.yml", "notebook", "base-not-pinned", 25),
        ("finetune.Dockerfile", "trainer", "arch-list-without-gpu", 4),
        ("finetune.Dockerfile", "trainer", "torch-overwritten-later", 13),
        ("finetune.Dockerfile", "trainer", "torch-needs-newer-driver", 13),
    }


def test_requirements_beside_the_dockerfile_are_read() -> None:
    text = "FROM python:3.12-slim\nCOPY requirements.txt /tmp/\nRUN pip install -r /tmp/requirements.txt\n"
    index = "--extra-index-url https://download.pytorch.org/whl/cu130  # the index"
    pinned = f"{index}\ntorch == 2.11.0 ; python_version > '3.8'\n"
    assert "torch-needs-newer-driver" not in {each.code for each in found(text, H100_550)}
    for beside in (
        {"requirements.txt": pinned},
        {"app/requirements.txt": pinned},
        {"requirements.txt": f"-r x\n{pinned}"},
    ):
        (path,) = beside
        file = path.replace("requirements.txt", "Dockerfile")
        hits = [
            each for each in found(text, H100_550, file=file, beside=beside) if each.code == "torch-needs-newer-driver"
        ]
        assert [hit.line for hit in hits] == [3]


def test_requirements_one_folder_above_the_dockerfile_are_read() -> None:
    text = "FROM python:3.12-slim\nCOPY . .\nRUN pip install -r requirements.txt\n"
    beside = {"requirements.txt": "torch==2.11.0\n"}
    assert "torch-needs-newer-driver" in {
        each.code for each in found(text, H100_550, file="docker/Dockerfile", beside=beside)
    }


def test_what_could_not_be_read_is_said() -> None:
    first = "ARG TAG\nFROM nvcr.io/nvidia/pytorch:25.04-py3 AS a\n"
    text = first + "FROM team/base:$TAG\nCOPY --from=a /x /x\nRUN pip install -r r.txt\n"
    assert lint(Given("Dockerfile", text), machine(H100_550), read=lambda _: None).not_judged == (
        "Dockerfile:3: team/base:$TAG: give the value with --build-arg",
        "Dockerfile:5: r.txt was not found beside it, or could not be read",
        "Dockerfile:2: the name nvcr.io/nvidia/pytorch:25.04-py3 does not tell what is inside",
    )


def test_a_file_that_is_read_in_full_leaves_nothing_unjudged() -> None:
    text = (FILES / "good.Dockerfile").read_text()
    assert lint(Given("Dockerfile", text), machine(H100_550), read=lambda _: None).not_judged == ()
