"""No file, however odd, makes lint crash or hang; every finding it gives fits the schema."""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.cli.lint import command
from firstlight.errors import BadInput
from firstlight.lint.judge import Given, lint
from firstlight.lint.model import Syntax
from firstlight.report.lint_github import github_text
from firstlight.report.lint_json import lint_document
from firstlight.report.lint_sarif import sarif_document
from firstlight.report.lint_text import lint_text
from tests.lint.linting import H100_550, machine
from tests.lint.test_lint_rules import CASES

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/lint-3.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
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
    VALIDATOR.validate(lint_document((report,), machine(on)))
    assert lint_text((report,), machine(on)).endswith("\n")


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


PIECES = (
    *"{}[]:,-#|>&*!%@\"'\\/$=;()\n\t \0\x1b",
    *("\n  ", "\n    - ", "- ", "---\n", "<<: *a", "&a ", "${{ matrix.x }}", "$(x)", "<<'EOF'\n", "EOF\n", "//", "/* "),
    *("torch==2.9.0", "torch", "[cuda12]", "; python_version < '3'", "--index-url https://u:p@h/x", "-r f", " */"),
    *("--hash=sha256:aa", "[project]\n", "[[package]]\n", "dependencies = [", "name = ", "version = ", '"2.5.1"'),
    *("[tool.uv.sources]\n", "dependencies:", "pip:", "apiVersion: v1\n", "kind: Pod\n", "containers:", "image: "),
    *("nvidia/cuda:12.8.1-base-ubuntu22.04", "resources: ", "limits: ", "nvidia.com/gpu: ", "on: push\n", "jobs:"),
    *("runs-on: ", "steps:", "run: |\n", "matrix:", "include:", "#SBATCH --gres=gpu:", "#SBATCH -N ", "srun "),
    *("apptainer exec docker://", "pip install ", "bash -c ", '"image": ', '"build": ', '"runArgs": ', "1e999", "null"),
    *(
        "# firstlight: ignore[",
        "] because ",
        "9" * 900,
        "²",
        "shm_size: ",
        "gpus: all\n",
        "CUDA_VISIBLE_DEVICES=",
        "~",
        "\ud83d",
    ),
)
HEADS = {
    Syntax.DOCKERFILE: ("", "FROM a\n"),
    Syntax.COMPOSE: ("", "services:\n  a:\n    "),
    Syntax.KUBERNETES: ("", "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: a\n    "),
    Syntax.DEVCONTAINER: ("", '{"image": "a", '),
    Syntax.WORKFLOW: ("", "on: push\njobs:\n  a:\n    steps:\n    - run: |\n        "),
    Syntax.SHELL: ("", "#SBATCH --gpus=1\n"),
    Syntax.REQUIREMENTS: ("",),
    Syntax.PYPROJECT: (
        "",
        "[project]\ndependencies = ",
        "[tool.poetry.dependencies]\ntorch = ",
        "[tool.pixi.dependencies]\n",
    ),
    Syntax.LOCK: ("", '[[package]]\nname = "torch"\n'),
    Syntax.CONDA: ("", "dependencies:\n- "),
    Syntax.PIXI: ("", "[dependencies]\ntorch = ", "[feature.a]\n"),
}


@pytest.mark.parametrize("kind", list(Syntax), ids=lambda kind: kind.name.lower())
@settings(max_examples=60, deadline=None)
@given(data=st.data(), pieces=st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_text_is_read_or_refused_as_any_kind(kind: Syntax, data: st.DataObject, pieces: list[str]) -> None:
    text = data.draw(st.sampled_from(HEADS[kind])) + "".join(pieces)
    try:
        report = lint(Given("f", text, kind=kind), machine(H100_550), read=lambda _: text)
    except BadInput:
        return
    assert report.syntax is kind
    VALIDATOR.validate(lint_document((report,), machine(H100_550)))
    json.dumps(sarif_document((report,), machine(H100_550)))
    assert all(line.startswith("::") for line in github_text((report,)).splitlines())
    lint_text((report,), machine(H100_550))


@settings(max_examples=40, deadline=None)
@given(
    st.binary(max_size=200), st.sampled_from(("Dockerfile", "a.yml", "requirements.txt", "pyproject.toml", "x", "j.sh"))
)
def test_any_bytes_end_with_a_code_of_the_table(content: bytes, name: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        assert _exit_code(str(Path(folder) / name)) in (0, 1, 2)


def _exit_code(path: str) -> int:
    try:
        return int(command.main([path, "--for", H100_550], standalone_mode=False) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except BadInput as error:
        return error.exit_code


ALIASES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 15))
LONG = {
    Syntax.KUBERNETES: f"apiVersion: v1\nkind: Pod\n{ALIASES}",
    Syntax.CONDA: f"{ALIASES}dependencies: *a14\n",
    Syntax.WORKFLOW: f"on: push\n{ALIASES}jobs: {{a: {{steps: *a14, strategy: {{matrix: {{b: *a14, c: *a14}}}}}}}}\n",
    Syntax.COMPOSE: f"{ALIASES}services: {{a: {{image: b, volumes: *a14}}}}\n",
    Syntax.REQUIREMENTS: "numpy==1.26; python_version > '3' --hash=sha256:aa\n" * 2000 + "\\\n" * 2000,
    Syntax.LOCK: '[[package]]\nname = "a"\nversion = "1"\n' * 2000,
    Syntax.DEVCONTAINER: '{"image": "a", "runArgs": [' + '"a", // ]\n' * 4000 + "]}",
    Syntax.SHELL: "srun " * 2000 + "\n" + "bash -c 'bash -c ls'\n" * 200,
    Syntax.PYPROJECT: "[project]\ndependencies = [\n" + '"a",\n' * 2000 + "]\n",
}


@pytest.mark.parametrize("kind", LONG, ids=lambda kind: kind.name.lower())
def test_what_is_long_or_stands_for_very_much_is_read_in_time(kind: Syntax) -> None:
    start = time.monotonic()
    try:
        lint(Given("f", LONG[kind], kind=kind), machine(H100_550), read=lambda _: None)
    except BadInput:
        pass
    assert time.monotonic() - start < 30  # for ever, were aliases followed one by one


NINES = "9" * 900
MANY_DIGITS = (
    f"ARG A={NINES}\nFROM vllm/vllm-openai:v$A$A$A$A$A.1.0\n",
    f"FROM python:3.12\nENV A={NINES}\nRUN pip install torch==$A$A$A$A$A.0\nENV CUDA_VISIBLE_DEVICES=$A$A$A$A$A\n",
    f"FROM nvidia/cuda:{'9' * 5000}.1-base-ubuntu22.04\n",
)


@pytest.mark.parametrize("text", MANY_DIGITS, ids=("image", "variables", "refused"))
def test_a_number_that_python_does_not_take_breaks_nothing(text: str) -> None:
    try:
        lint(Given("Dockerfile", text), machine(H100_550), read=lambda _: None)
    except BadInput as error:
        refused = str(error)
        assert "more than 1000 digits" in refused
