"""Several causes in one log: what only follows from another, or saw it happen, is never told first."""

from __future__ import annotations

import json
import pkgutil

import pytest

from firstlight.cli.main import run
from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.signatures import CONSEQUENCES, signatures
from tests.diagnosis.rule_case import MACHINES

TOO_OLD = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12040)."
NO_GPUS = "RuntimeError: No CUDA GPUs are available"
SMI = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
NOT_BUILT = "Error! Bad return status for module build on kernel: 6.8.0-45-generic (x86_64)"
WATCHDOG = (
    "[rank0]:[E1118 10:00:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600032 "
    "milliseconds before timing out."
)
BUS_ERROR = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
BUS_ERROR += "workers are out of shared memory. Please try to raise your shared memory limit."

# the lines of a log, in order, and what is told, in order
LOGS: tuple[tuple[tuple[str, ...], list[str]], ...] = (
    ((TOO_OLD, NO_GPUS), ["driver-too-old"]),
    ((NO_GPUS, TOO_OLD), ["driver-too-old"]),
    ((NOT_BUILT, SMI), ["dkms-build-failed"]),
    ((NOT_BUILT, SMI, NO_GPUS), ["dkms-build-failed"]),
    ((NOT_BUILT, NO_GPUS), ["dkms-build-failed"]),
    (("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", WATCHDOG),
     ["gpu-out-of-memory", "pytorch-collective-timed-out"]),
    (("RuntimeError: CUDA error: device-side assert triggered", WATCHDOG),
     ["cuda-error-code", "pytorch-collective-timed-out"]),
    (("CudaAPIError: [218] Call to cuLinkAddData results in UNKNOWN_CUDA_ERROR",
      "ptxas application ptx input, line 9; fatal   : Unsupported .version 6.3; current version is '6.1'"),
     ["ptx-version-newer-than-driver"]),
    ((BUS_ERROR, WATCHDOG), ["shared-memory-too-small", "pytorch-collective-timed-out"]),
    (("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",
      WATCHDOG), ["slurm-oom-kill", "pytorch-collective-timed-out"]),
    (("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", WATCHDOG),
     ["ray-node-out-of-memory", "pytorch-collective-timed-out"]),
    ((WATCHDOG,), ["pytorch-collective-timed-out"]),
)  # fmt: skip


@pytest.mark.parametrize(("lines", "told"), LOGS, ids=lambda value: value[0][:30])
def test_the_cause_is_told_before_what_follows_from_it(lines: tuple[str, ...], told: list[str]) -> None:
    assert [each.signature.code for each in explain_text("\n".join(lines)).explanations] == told


def test_the_machine_and_the_text_name_the_same_cause(capsys: pytest.CaptureFixture[str]) -> None:
    run(["explain", "--here", "--facts", str(MACHINES / "h100-driver-570"), f"{TOO_OLD}\n{NO_GPUS}"])
    out = capsys.readouterr().out
    assert "it is so on this machine: driver-too-old-for-wheel: " in out
    assert "no-cuda-device-100" not in out


def test_a_note_that_harms_nothing_comes_after_every_cause() -> None:
    note = next(each for each in signatures() if each.code == "whisperx-old-model-note")
    assert note.not_a_fault
    text = (
        "Lightning automatically upgraded your loaded checkpoint from v1.5.4 to v2.0.9. To apply the upgrade to your "
        "files permanently, run `python -m pytorch_lightning.utilities.upgrade_checkpoint`\n"
        "Model was trained with torch 1.10.0+cu102, yours is 2.0.1+cu118. Bad things might happen unless you revert "
        "torch to 1.x.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    told = [each.signature.code for each in explain_text(text).explanations]
    assert told == ["gpu-out-of-memory", "whisperx-old-model-note"]


def test_nothing_follows_from_itself_and_every_name_is_a_row() -> None:
    known = {each.code for each in signatures()}
    data = pkgutil.get_data("firstlight.diagnosis", CONSEQUENCES)
    assert data is not None
    named = {code for group in json.loads(data)["rows"] for code in (*group["of"], *group["follow"])}
    assert named <= known
    assert all(each.follows <= known for each in signatures())
    assert [each.code for each in signatures() if each.code in each.follows] == []


def test_a_row_that_says_that_it_is_the_witness_is_marked_as_one() -> None:
    saying = [each for each in signatures() if "witness" in f"{each.cause} {each.means}"]
    assert saying
    assert all(each.witness for each in saying)


def test_a_module_that_is_not_there_is_not_to_be_loaded() -> None:
    text = "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-45-generic"
    [found] = explain_text(text).explanations
    assert found.signature.code == "dkms-module-not-built"
    assert "nvidia for the kernel 6.8.0-45-generic" in found.signature.cause
    assert not any("modprobe nvidia" in line for way in found.signature.ways_out for line in way.run)


def test_a_code_with_known_causes_is_not_said_to_have_none() -> None:
    [explained] = explain_text("RuntimeError: CUDA error: device-side assert triggered").explanations
    assert "no row" not in explained.signature.means
    assert "Of its causes" not in explained.signature.cause
