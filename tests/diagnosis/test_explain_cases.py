"""An answer goes by what its text shows: the case, the GPU, the program and the lines that belong to it."""

from __future__ import annotations

import json
import pkgutil
import re
import signal
from typing import Any

import pytest

from firstlight.diagnosis.explain import Explanation, explain_text
from firstlight.diagnosis.explain_case import CASES
from firstlight.diagnosis.explain_lookup import LOOKUPS
from firstlight.diagnosis.explain_shown import SCOPES, in_scope
from firstlight.diagnosis.signatures import Sure, signatures
from firstlight.report.explain_text import explained_json, explained_text

OF_CODE = {row.code: row for row in signatures()}


def _rows(name: str) -> list[dict[str, Any]]:
    text = pkgutil.get_data("firstlight.diagnosis", name)
    assert text is not None
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def _first(text: str) -> Explanation:
    return explain_text(text).explanations[0]


@pytest.mark.parametrize("case", _rows(CASES), ids=lambda case: f"{case['of'][0]}: {case['shown_by'][:30]}")
def test_a_case_is_of_rows_that_are_there_and_asks_only_for_what_they_read(case: dict[str, Any]) -> None:
    re.compile(case["shown_by"])
    assert case["source"]
    texts = [case["cause"], *(line for way in case["ways_out"] for line in (way["say"], *way["run"]))]
    texts += case.get("prove", {}).get("run", [])
    for code in case["of"]:
        row = OF_CODE[code]
        known = {each.name for each in row.captures} | set(LOOKUPS[row.lookup][0] if row.lookup else ())
        for text in texts:
            assert set(re.findall(r"(?<![${])\{([a-z_]+)\}", text)) <= known, (code, text)


# A line, what stands around it, and what is told then: of the line alone, and with what the text shows.
SHOWN = {
    "the linker, not the loader": (
        "/usr/bin/ld: cannot find -lcuda: No such file or directory",
        "",
        "The linker finds no libcuda.so",
    ),
    "the library is found, its plain name is not": (
        "OSError: libcuda.so: cannot open shared object file: No such file or directory",
        ">>> cdll.LoadLibrary('libcuda.so.1')\n<CDLL 'libcuda.so.1', handle 562f22ae4160>",
        "The name libcuda.so is not found; libcuda.so.1 is",
    ),
    "a CPU build": (
        "xFormers can't load C++/CUDA extensions. xFormers was built for:",
        "    PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.1.2+cpu)",
        "torch is a build without CUDA",
    ),
    "another torch": (
        "xFormers can't load C++/CUDA extensions. xFormers was built for:",
        "    PyTorch 2.6.0+cu124 with CUDA 1204 (you have 2.5.1+cu121)",
        "xFormers was built for another torch",
    ),
    "two MIG instances": (
        "RuntimeError: CUDA error: invalid device ordinal",
        "CUDA_VISIBLE_DEVICES=MIG-89c850dc-38e3-57df-85c7-690c186b68e9,MIG-f2b5fbbd-850e python a.py",
        "A process has one MIG instance at most (error 101)",
    ),
    "a build in isolation": (
        "ModuleNotFoundError: No module named 'torch'",
        "  x Failed to build `auto-gptq==0.7.1`",
        "A package's build finds no torch (build isolation)",
    ),
    "a build without isolation": (
        "ModuleNotFoundError: No module named 'torch'",
        "$ pip install --no-build-isolation auto-gptq\n  x Failed to build `auto-gptq==0.7.1`",
        "torch is not in the environment that builds",
    ),
    "jaxlib's loader": (
        "W external/org_tensorflow/tensorflow/stream_executor/platform/default/dso_loader.cc:59] Could not load "
        "dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file",
        "",
        "jaxlib does not find a CUDA library that it was built for",
    ),
    "a worker that was forked": (
        "RuntimeError: cuda runtime error (3) : initialization error",
        "  File 'loader.py', in _worker_loop: multiprocessing",
        "CUDA is used in a forked process (error 3)",
    ),
}


@pytest.mark.parametrize(("line", "around", "title"), SHOWN.values(), ids=SHOWN)
def test_what_the_text_shows_settles_which_cause_it_is(line: str, around: str, title: str) -> None:
    told = _first(f"{line}\n{around}\n").signature
    assert told.title == title
    if around:
        assert _first(line).signature.title != title


def test_a_hint_that_names_an_option_does_not_show_that_it_was_used() -> None:
    text = "ModuleNotFoundError: No module named 'torch'\nbuild_wheel: re-run with `--no-build-isolation`\n"
    assert _first(text).signature.title == "A package's build finds no torch (build isolation)"


def test_a_restart_that_was_tried_is_not_advised() -> None:
    text = (
        "reboot\n\nnvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.1"
    )
    said = [way.say for way in _first(text).signature.ways_out]
    assert "Reboot." not in said
    assert "Reboot." in [way.say for way in _first(text.removeprefix("reboot\n")).signature.ways_out]


def test_a_gpu_that_the_text_names_chooses_the_ways_out() -> None:
    line = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    assert _first(line + "GPU 0: NVIDIA GeForce RTX 5090").signature.ways_out[0].say.startswith("RTX 50")
    assert "(12.0)" in _first(line + "GPU 0: NVIDIA GeForce RTX 5090").signature.cause
    both = _first(line + "GPU 0: NVIDIA GeForce RTX 5090\nGPU 1: Tesla V100-SXM2-16GB").signature
    assert "(see the proof)" in both.cause


def test_ways_of_torch_are_left_out_where_the_text_is_of_another_program() -> None:
    line = "CUDNN_STATUS_EXECUTION_FAILED"
    of_torch = [way for way in _first(f"{line}\n").signature.ways_out if "torch" in " ".join(way.run)]
    of_caffe = [way for way in _first(f"caffe::Net cudnn_conv_layer.cu:28] {line}\n").signature.ways_out
                if "torch" in " ".join(way.run)]  # fmt: skip
    assert of_torch
    assert not of_caffe


def test_every_row_keeps_a_way_out_and_a_proof_out_of_scope() -> None:
    for row in signatures():
        told = in_scope(row, b"caffe::Net")
        assert told.ways_out, row.code
        assert told.prove.run, row.code
    for scope in _rows(SCOPES):
        assert all(re.compile(scope[name]) for name in ("installs", "asks"))
        assert all(word == word.lower() for name in ("signs", "others", "others_in") for word in scope[name])


def test_a_value_does_not_take_the_next_line_where_a_longer_line_shows_that_none_was_cut() -> None:
    cut = "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all"
    longer = f"{'a line that is longer than that one ' * 4}\n{cut}\nIf I go to the node\n"
    assert dict(_first(longer).sightings[0].values)["device"] == "nvidia.com/gpu=all"
    nothing_is_longer = f"{cut[:66]}\n{cut[66:]}\n"
    assert dict(_first(nothing_is_longer).sightings[0].values)["device"] == "nvidia.com/gpu=all"


def test_the_words_of_any_program_are_no_answer_beside_a_cause() -> None:
    alone = "site-packages/torch/__init__.py\nModuleNotFoundError: No module named 'common_ops'\n"
    assert [each.signature.code for each in explain_text(alone).explanations] == ["module-not-installed"]
    beside = f"[sgl_kernel] CRITICAL: Could not load any common_ops library!\n{alone}"
    assert [each.signature.code for each in explain_text(beside).explanations] == ["sglang-kernel-did-not-load"]


def test_where_the_text_leaves_several_causes_what_tells_them_apart_comes_first() -> None:
    said = explained_text(explain_text("RuntimeError: CUDA error: initialization error"))
    assert "ways out:" not in said
    assert (
        said.index("possible cause: ")
        < said.index("first see which it is:")
        < said.index("then, depending on which it is:")
    )
    assert "- If the kernel and driver are of those named, and it fails in every process: turn HMM" in " ".join(
        said.split()
    )


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12040).", Sure.CAUSE),
        ("ImportError: libcuda.so.1: cannot open shared object file", Sure.ONE_OF),
        ("a/torch/b.py\nModuleNotFoundError: No module named 'common_ops'", Sure.READS_LIKE),
    ],
)
def test_an_answer_says_how_sure_it_is(text: str, sure: Sure) -> None:
    explained = explain_text(text)
    assert explained.explanations[0].signature.sure is sure
    assert json.loads(explained_json(explained))["explanations"][0]["sure"] == sure.value
    assert ("(reads like): " in explained_text(explained)) is (sure is Sure.READS_LIKE)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0. CUDA kernels "
            "will be jit-compiled from PTX, which could take 30 minutes or longer.",
            "12.0. The driver",
        ),
        (
            "You are using ptxas 10.1.243, which is older than 11.1. ptxas before 11.1 is known to miscompile",
            "wants 11.1 or newer",
        ),
    ],
)
def test_a_value_ends_before_the_full_stop_of_its_sentence(text: str, cause: str) -> None:
    [found] = explain_text(text).explanations
    assert cause in found.signature.cause
    assert "0.." not in found.signature.cause
    assert not [word for line in found.signature.prove.run for word in line.split() if word.endswith("..")]


@pytest.mark.parametrize(
    "text",
    [
        "a/" * 4000 + " manifest unknown: manifest unknown",
        ":" * 4000 + " /bin/nvcc: not found: /bin/nvcc: not foun",
        "a" * 4000 + " is not installable because there is not",
        "a" * 4000 + " has no wheels with a matching Python tag",
        "a" * 4000 + "fwd(): incompatible function argument",
    ],
)
def test_a_line_of_one_letter_is_read_to_its_end(text: str) -> None:
    """By patterns that try every way to cut it, the first takes hours."""

    def stop(*_: object) -> None:
        raise TimeoutError(text[:9])

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    try:
        explain_text(text)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
