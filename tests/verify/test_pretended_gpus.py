"""The GPU checks as they run on a GPU, on a torch that pretends one; each finds the fault planted for it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from firstlight.verify.check import CheckOutcome
from firstlight.verify.children.witness import Fault, Witness
from firstlight.verify.needs import lacking
from tests.verify.pretend_gpu import pretended
from tests.verify.standing_in import ROOT, case_of, check_named, facts_of, prove, said, stand_in

PRETENDING = f"""
import os, sys
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != here]
del sys.modules["torch"]
import torch
sys.path.append({str(ROOT)!r})
from tests.verify.pretend_gpu import pretended
torch.kept_alive = pretended(os.environ["PRETEND_FAULT"], gpus=2)
torch.kept_alive.__enter__()
sys.modules["torch"] = torch
"""


def child(name: str, **question: object) -> tuple[str, Witness]:
    """What a child script says when it is called here."""
    witness = Witness()
    module = importlib.import_module(f"firstlight.verify.children.{check_named(name).script}")
    return str(module.prove(question, witness)), witness


def test_every_gpu_is_proved_by_its_own_product() -> None:
    with pretended(gpus=2):
        says, witness = child("gpus", gpus=2)
    assert says.startswith("2 of 2 GPUs computes what float64 computes")
    assert [what for what, _ in witness.evidence if what.startswith("gpu ")] == ["gpu 0", "gpu 1"]
    assert witness.more["capabilities"] == [[9, 0], [9, 0]]


@pytest.mark.parametrize(
    ("name", "fault", "told"),
    [
        ("gpus", "second-gpu", "1 of 2 GPUs failed: GPU 1 computes a wrong product"),
        ("gpus", "lost", "GPU 1: CUDA error: uncorrectable ECC error encountered"),
        ("gpus", "cpu-build", "is not built for CUDA, while this machine has 2 NVIDIA GPU"),
        ("gpus", "unseen", "this machine has 2 NVIDIA GPU(s), torch sees none"),
        ("kernels", "no-kernel", "no kernel image is available"),
        ("cublas", "float16", "a float16 product is wrong"),
        ("cublas", "int8", "an int8 product is wrong"),
        ("cudnn", "cudnn", "the float32 convolution is off by"),
        ("sdpa", "flash", "flash: No available kernel. Aborting execution. (works: mem-efficient, cudnn, math)"),
        ("sdpa", "mem-efficient", "mem-efficient is off by"),
    ],
)
def test_a_planted_fault_is_found(name: str, fault: str, told: str) -> None:
    with pretended(fault, gpus=2), pytest.raises(Fault) as found:
        child(name, gpus=2)
    assert told in found.value.says
    assert found.value.do


def test_fewer_gpus_in_torch_than_in_the_machine_is_a_fault_unless_they_are_hidden() -> None:
    with pretended(gpus=1):
        with pytest.raises(Fault, match="has 2 NVIDIA GPUs, torch sees 1"):
            child("gpus", gpus=2)
        assert child("gpus", gpus=2, visible_devices="1")[0].startswith("1 of 1 GPU")
        assert child("gpus", gpus=2, sliced=True)[0].startswith("1 of 1 GPU")


def test_a_hidden_gpu_is_told_with_the_variable_that_hides_it() -> None:
    with pretended("unseen"), pytest.raises(Fault, match="CUDA_VISIBLE_DEVICES is '-1'"):
        child("gpus", gpus=1, visible_devices="-1")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cublas", "9 formats match float64"),
        ("cudnn", "match float64 in float32, float16, bfloat16"),
        ("sdpa", "flash, mem-efficient, cudnn, math match float64"),
        ("kernels", "6 kernels of torch's own match on 1 GPU"),
    ],
)
def test_a_good_gpu_is_proved(name: str, told: str) -> None:
    with pretended():
        assert told in child(name)[0]


def test_eight_bit_floats_are_not_asked_of_an_ampere() -> None:
    with pretended("older"):
        _, witness = child("cublas")
    assert ["float8_e4m3fn", "not on capability 8.6; needs 8.9"] in witness.evidence


def test_a_fault_of_a_gpu_comes_through_the_child_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", stand_in(tmp_path / "stand-in", PRETENDING))
    monkeypatch.setenv("PRETEND_FAULT", "second-gpu")
    result = prove(check_named("gpus"), case_of(tmp_path / "work", facts_of("b200-driver-610")))
    assert result.outcome is CheckOutcome.FAILED
    assert "1 of 2 GPUs failed: GPU 1 computes a wrong product" in result.says
    assert any(each.what == "gpu 0" for each in result.evidence)


def test_machine_code_and_ptx_are_told_apart(tmp_path: Path) -> None:
    from firstlight.verify.judges import judge_own_kernels

    for archs, capability, told in (
        (["sm_80", "sm_90"], [9, 0], "GPU 0: machine code for sm_90"),
        (["sm_80", "compute_80"], [9, 0], "GPU 0: PTX, compiled by the driver at first use"),
    ):
        answer = said(arch_list=archs, capabilities=[capability])
        result = judge_own_kernels(check_named("kernels"), answer, case_of(tmp_path, facts_of("h200")), {})
        assert told in result.says


def test_without_a_gpu_nothing_of_it_is_proved_or_failed(tmp_path: Path) -> None:
    for name in ("gpus", "kernels", "cublas", "cudnn", "sdpa", "nccl", "cuda-extension"):
        result = prove(check_named(name), case_of(tmp_path, facts_of("gpu-less")))
        assert result.outcome is CheckOutcome.NOT_HERE, name
        assert result.says == "no NVIDIA GPU"


def test_nccl_needs_a_second_gpu(tmp_path: Path) -> None:
    result = prove(check_named("nccl"), case_of(tmp_path, facts_of("h200")))
    assert result.outcome is CheckOutcome.NOT_HERE
    assert "1 GPU: nothing to communicate with" in result.says


TORCH_WITH_A_GROUP = """
import os, types
class Tensor:
    def __init__(self, value): self.value = value
    def __ne__(self, other): return Tensor(float(self.value != other))
    def sum(self): return self.value * (1 << 20)
cuda = types.SimpleNamespace(device_count=lambda: 2, set_device=lambda rank: None, synchronize=lambda: None,
                             nccl=types.SimpleNamespace(version=lambda: (2, 28, 9)))
full = lambda shape, value, device: Tensor(value)
ones = lambda count, device: Tensor(1.0)
"""
GROUP = """
import os
def init_process_group(kind, init_method, rank, world_size):
    global here
    here = rank
    if os.environ["PRETEND_FAULT"] == "no-start" and rank == 1: raise RuntimeError("NCCL error: unhandled system error")
def all_reduce(tensor):
    tensor.value = 3.0 + (1 if os.environ["PRETEND_FAULT"] == "wrong" and here == 1 else 0)
def destroy_process_group(): pass
"""


@pytest.mark.parametrize(
    ("fault", "outcome", "told"),
    [
        ("", CheckOutcome.OK, "all_reduce over 2 GPUs is right on every rank"),
        ("wrong", CheckOutcome.FAILED, "rank 1 got 1048576 wrong sums"),
        ("no-start", CheckOutcome.FAILED, "rank 1 ended with 1: RuntimeError: NCCL error: unhandled system error"),
    ],
)
def test_every_rank_of_a_collective_must_have_the_right_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, outcome: CheckOutcome, told: str
) -> None:
    """A stand-in for torch with a group of its own: two processes, one of them faulty."""
    folder = stand_in(tmp_path / "stand-in", TORCH_WITH_A_GROUP)
    (tmp_path / "stand-in/torch/distributed.py").write_text(GROUP)
    monkeypatch.setenv("PYTHONPATH", folder)
    monkeypatch.setenv("PRETEND_FAULT", fault)
    result = prove(check_named("nccl"), case_of(tmp_path / "work", facts_of("b200-driver-610")))
    assert result.outcome is outcome, result.says
    assert told in result.says


def test_a_failed_gpu_check_is_not_told_six_times(tmp_path: Path) -> None:
    done = {"import": said(), "gpus": said(CheckOutcome.FAILED, capabilities=[])}
    for name in ("kernels", "cublas", "cudnn", "sdpa"):
        lacks = lacking(check_named(name), case_of(tmp_path, facts_of("h200")), done)
        assert lacks == (CheckOutcome.SKIPPED, "torch computes on no GPU: see `gpus`")


def test_a_cuda_extension_needs_a_toolkit_of_torchs_major(tmp_path: Path) -> None:
    done = {"import": said(), "gpus": said(capabilities=[[9, 0]])}
    check = check_named("cuda-extension")
    assert lacking(check, case_of(tmp_path, facts_of("h200")), done) is None
    hybrid = lacking(check, case_of(tmp_path, facts_of("h100-nvcc-13-torch-cu128")), done)
    assert hybrid is not None
    assert hybrid[0] is CheckOutcome.SKIPPED
    assert "torch refuses another major" in hybrid[1]
    without = lacking(check, case_of(tmp_path, facts_of("no-toolkit")), done)
    assert without == (CheckOutcome.NOT_HERE, "no CUDA toolkit with nvcc")
