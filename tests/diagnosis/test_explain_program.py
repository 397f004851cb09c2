"""What many programs print is answered with the ways of the program that stands nearest to the line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from firstlight.diagnosis.explain import Explanation, explain_text
from firstlight.diagnosis.explain_program import rows
from firstlight.diagnosis.signatures import signatures, way_types

NO_CODE = "CUDA error: no kernel image is available for execution on the device"
ANSWERS = [(row["program"], answer) for row in rows() for answer in row["answers"]]
OF_CODE = {row.code: row for row in signatures()}


def _first(text: str) -> Explanation:
    return explain_text(text).explanations[0]


def _commands(text: str) -> str:
    return " ".join(line for way in _first(text).signature.ways_out for line in way.run)


@pytest.mark.parametrize(("program", "answer"), ANSWERS, ids=[f"{name}: {each['of'][0]}" for name, each in ANSWERS])
def test_an_answer_is_of_rows_that_are_there_and_says_when_each_way_helps(program: str, answer: dict[str, Any]) -> None:
    assert set(answer["of"]) <= OF_CODE.keys(), program
    assert answer["ways_out"]
    for way in answer["ways_out"]:
        assert way["when"], way
        assert set(way["ways"]) <= way_types().keys()
        assert not re.findall(r"\{[a-z_]+\}", " ".join((way["say"], *way["run"])))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{NO_CODE}\n  current device: 0, in function ggml_cuda_compute_forward at ggml-cuda.cu:2761", "GGML_CUDA=ON"),
        (
            f"cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_NO_BINARY_FOR_GPU: {NO_CODE[12:]}",
            "cupy-cuda12x",
        ),
        ("OSError: (External) CUDA error(209), " + NO_CODE[12:] + " paddle", "paddlepaddle"),
        (f"thrust::system::system_error\n  what(): parallel_for failed: {NO_CODE[12:]}", "CMAKE_CUDA_ARCHITECTURES"),
        ("jaxlib\nCUDA_ERROR_OUT_OF_MEMORY: out of memory", "XLA_PYTHON_CLIENT_PREALLOCATE"),
    ],
)
def test_the_ways_are_those_of_the_program_of_the_text(text: str, words: str) -> None:
    found = _first(text)
    assert words in _commands(text)
    assert "torch" not in _commands(text)
    assert found.signature.one_of


def test_of_two_programs_the_nearer_one_is_told() -> None:
    far = "\n".join(("import cupy", *["step"] * 50))
    assert "cupy-cuda12x" not in _commands(f"{far}\nRuntimeError: {NO_CODE} of torch")
    assert "cupy-cuda12x" in _commands(f"import torch\n{far}\n{NO_CODE}\nimport cupy")


def test_without_a_program_and_a_card_the_proof_comes_before_any_way() -> None:
    bare = _first(f"RuntimeError: {NO_CODE}").signature
    assert bare.one_of
    assert all(way.when for way in bare.ways_out)
    assert not _first(f"RuntimeError: {NO_CODE}\nNVIDIA GeForce RTX 5090").signature.one_of


COMPILED = f"FATAL device_lambda.cuh:54 : Check failed: [error == cudaSuccess]  {NO_CODE}"


def test_a_compiled_program_is_shown_by_its_own_file_where_no_other_program_is() -> None:
    assert "CMAKE_CUDA_ARCHITECTURES" in _commands(COMPILED)
    assert "pip" not in _commands(COMPILED)
    beside = f'File "/opt/conda/lib/python3.10/site-packages/torch/cuda.py", line 3\n{COMPILED}'
    assert "CMAKE_CUDA_ARCHITECTURES" not in _commands(beside)
