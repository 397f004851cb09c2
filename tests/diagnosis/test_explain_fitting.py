"""An answer fits the text: words of any program count in a GPU program alone, ways out go by what the text names."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.signatures import Signature

FRAME = '  File "/opt/env/lib/python3.12/site-packages/{}/layers.py", line 7, in forward\n'
ANY_PROGRAM = (
    "TypeError: forward() got an unexpected keyword argument 'use_cache'",
    "ModuleNotFoundError: No module named 'einops'",
    "AttributeError: 'Cache' object has no attribute 'seen_tokens'",
    "ValueError: kernel size 7 is not supported",
)


def _first(text: str) -> Signature:
    return explain_text(text).explanations[0].signature


@pytest.mark.parametrize("line", ANY_PROGRAM)
def test_words_of_any_program_are_explained_only_in_one_that_uses_a_gpu(line: str) -> None:
    assert explain_text(f"{FRAME.format('django')}{line}\n").explanations == ()
    assert len(explain_text(f"{FRAME.format('transformers')}{line}\n").explanations) == 1


def test_a_frame_that_is_far_away_does_not_count() -> None:
    between = "a line of a log that says nothing\n" * 100
    assert explain_text(f"{FRAME.format('torch')}{between}{ANY_PROGRAM[0]}\n").explanations == ()


def test_ways_out_of_a_cuda_error_are_those_of_its_code() -> None:
    kernel = _first("CUDA error: an illegal memory access was encountered").ways_out
    assert kernel[0].run == ("compute-sanitizer YOUR_COMMAND",)
    value = _first("RuntimeError: CUDA error: invalid argument").ways_out
    assert value[0].run == ("CUDA_LAUNCH_BLOCKING=1 YOUR_COMMAND",)
    assert all("compute-sanitizer" not in line for way in value for line in way.run)


@pytest.mark.parametrize(
    ("gpu", "says", "silent"), [("sm_120", "RTX 50", "V100"), ("sm_70", "V100", "RTX 50"), ("sm_35", "Kepler", "V100")]
)
def test_ways_out_of_a_missing_architecture_are_those_of_the_gpu(gpu: str, says: str, silent: str) -> None:
    text = f"UserWarning: X with CUDA capability {gpu} is not compatible with the current PyTorch installation."
    ways = [way.say for way in _first(text).ways_out]
    assert says in ways[0]
    assert not any(say.startswith(silent) for say in ways)


def test_commands_take_the_package_module_and_gpu_that_the_text_names() -> None:
    told = _first("ERROR: Failed building wheel for flash-attn")
    assert told.prove.run[0].startswith("pip install -v flash-attn ")
    lacks = _first("ImportError: cannot import name 'a_name' from 'transformers.utils' (/opt/transformers/utils.py)")
    assert lacks.prove.run[1].startswith("python -c 'import transformers.utils;")
    gpu = _first("with CUDA capability sm_90 is not compatible with the current PyTorch installation")
    assert any(line.startswith("TORCH_CUDA_ARCH_LIST=9.0 ") for way in gpu.ways_out for line in way.run)


def test_a_context_that_fits_is_asked_for() -> None:
    text = (
        "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in "
        "KV cache (2400). Try increasing `gpu_memory_utilization`"
    )
    assert _first(text).ways_out[0].run == ("vllm serve MODEL --max-model-len 2400",)


def test_a_wrapper_does_not_keep_the_line_under_it_from_being_read() -> None:
    text = "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nNameError: name 's4' is not defined\n"
    assert _first(text).code == "torch-inductor-failed"
    assert "NameError: name 's4'" in _first(text).cause
