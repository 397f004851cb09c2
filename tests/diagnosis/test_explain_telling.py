"""Where no row knows an error: the line that tells most, what it reads like, and no answer from a wrapper."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.explain import explain_given, explain_text
from firstlight.diagnosis.explain_owners import demangled, header_owner, symbol_owner
from firstlight.diagnosis.explain_telling import kind_of

PIP = (
    "  error: subprocess-exited-with-error\n"
    "  x setup.py did not run successfully.\n"
    "      frob.cpp:12:3: error: 'frobnicate' was not declared in this scope\n"
    "      frob.cpp:19:1: error: expected ';'\n"
    "  note: This error originates from a subprocess, and is likely not a problem with pip.\n"
    "ERROR: Failed building wheel for frob\n"
)
TELLING = {
    "the first error of a build, not pip's note": (PIP, 3),
    "the last exception, not the launcher": (
        "Traceback (most recent call last):\nKeyError: 'a'\nTraceback (most recent call last):\nKeyError: 'b'\n"
        "srun: error: task 0: Exited with exit code 1\n",
        4,
    ),
    "an error of a log far above its end": ("x\n" * 50 + "ERROR: no such frob: 12\n" + "y\n" * 50, 51),
    "a log over several blocks": ("x" * 99 + "\n", 0),
}


@pytest.mark.parametrize(("text", "line"), TELLING.values(), ids=TELLING)
def test_the_line_that_tells_most_is_shown(text: str, line: int) -> None:
    assert [each.line for each in explain_text(text).last_error] == ([line] if line else [])


def test_the_line_is_the_same_however_long_the_log_is() -> None:
    filler = "step 1 loss 0.5\n" * 200_000
    assert [each.line for each in explain_text("KeyError: 'a'\n" + filler).last_error] == [1]
    assert [each.line for each in explain_text(filler + "KeyError: 'a'\n").last_error] == [200_001]
    assert [each.line for each in explain_text(filler + PIP + filler).last_error] == [200_003]


def test_a_wrapper_is_no_answer_to_an_error_that_nobody_knows() -> None:
    explained = explain_text(PIP)
    assert explained.explanations == ()
    assert "frobnicate" in explained.last_error[0].text
    [alone] = explain_text("  error: subprocess-exited-with-error\n").explanations
    assert alone.signature.wraps


ENGINE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
UNDER_VLLM = (
    "(EngineCore_0 pid=7) ERROR 11-18 10:00:00 [core.py:700] Traceback (most recent call last):\n"
    "(EngineCore_0 pid=7) ERROR 11-18 10:00:00 [core.py:700]   File 'm.py', line 3, in load\n"
    "(EngineCore_0 pid=7) ERROR 11-18 10:00:00 [core.py:700] KeyError: 'layers.0.frob'\n"
    "Traceback (most recent call last):\n"
    f"{ENGINE}\n"
)
WRAPPED = {
    "vLLM": (UNDER_VLLM, 3, "KeyError: 'layers.0.frob'"),
    "vLLM on many ranks": (UNDER_VLLM + f"{ENGINE}\n" * 12, 3, "KeyError: 'layers.0.frob'"),
    "torchrun": (
        "[rank1]: KeyError: 'frob'\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "Root Cause (first observed failure):\n  exitcode  : 1 (pid: 7)\n",
        1,
        "KeyError: 'frob'",
    ),
    "Ray": (
        "  frob.FrobError: cannot frob\nray.exceptions.RayTaskError(FrobError): \x1b[36mray::run()\x1b[39m (pid=7)\n",
        1,
        "FrobError: cannot frob",
    ),
}


@pytest.mark.parametrize(("text", "line", "said"), WRAPPED.values(), ids=WRAPPED)
def test_an_unknown_error_under_a_wrapper_is_the_line_that_is_shown(text: str, line: int, said: str) -> None:
    explained = explain_text(text)
    assert explained.explanations == ()
    [shown] = explained.last_error
    assert (shown.line, said in shown.text) == (line, True)


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("step 1\nKilled\n", 2, "program-killed"),
        ("Killed\nstep 2\n", 1, "program-killed"),
        ("step 1\nSegmentation fault (core dumped)\n\n", 2, "crash-in-compiled-code"),
        ("./run.sh: line 3:     7 Killed                  python x.py", 1, "program-killed"),
        ("KeyError: 'a'\nBus error", 2, "bus-error"),
        ("$ python a.py\nIllegal instruction (core dumped)", 2, "illegal-instruction"),
        ("[1]    1225 illegal hardware instruction (core dumped)  python a.py", 1, "illegal-instruction"),
        (
            "Shard process was signaled to shutdown with signal 4 rank=0\nError: ShardCannotStart",
            1,
            "tgi-shard-signal-4",
        ),
        ("Process finished with exit code 137 (interrupted by signal 9: SIGKILL)", 1, "program-killed"),
        ("Process finished with exit code -1073741819 (0xC0000005)", 1, "windows-access-violation"),
        ("failed (exitcode: -11) local_rank: 1 (pid: 7) of binary: python", 1, "crash-in-compiled-code"),
        ("terminated\nAborted (core dumped)", 2, "program-aborted"),
    ],
)
def test_a_signal_that_ended_the_program_is_known_with_its_proof_first(text: str, line: int, code: str) -> None:
    [found] = explain_text(text).explanations
    assert (found.first_line, found.signature.code) == (line, code)
    assert found.signature.wraps or (found.signature.one_of and found.signature.prove.run)


def test_a_signal_is_left_out_where_a_cause_is_known_and_where_another_error_stands_behind_it() -> None:
    [known] = explain_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\nKilled\n").explanations
    assert known.signature.code == "gpu-out-of-memory"
    assert explain_text("Segmentation fault\nKeyError: 'frob'\n").explanations == ()
    assert explain_text("KeyError: 'frob'\nAborted (core dumped)\n").explanations == ()


@pytest.mark.parametrize(
    "text",
    [
        "the job was Killed by its owner",
        "oom-kill: Killed process 123 (java)",
        "0 tests Aborted",
        "no Segmentation fault",
    ],
)
def test_words_for_a_signal_in_a_sentence_are_no_end_of_a_program(text: str) -> None:
    assert explain_text(text).explanations == ()


def test_an_xid_alone_is_known_by_its_number() -> None:
    assert [each.signature.code for each in explain_given("Xid 79").explanations] == ["gpu-off-the-bus"]
    [found] = explain_given("xid: 119").explanations
    assert "119: " in f"{found.signature.cause} {found.signature.means}"
    assert "{" not in found.signature.cause


def test_a_wrapper_alone_still_says_what_it_is() -> None:
    source = "    raise RuntimeError(f'Engine: {error}')\n"
    [alone] = explain_text(f"Traceback (most recent call last):\n{source}{ENGINE}\nError code: 1\n").explanations
    assert alone.signature.code == "vllm-engine-core-failed"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OSError: [Errno 28] No space left on device", "a full disk"),
        ("PermissionError: [Errno 13] Permission denied: 'x'", "a missing right"),
        ("ImportError: cannot import name 'x' from 'y'", "two versions that do not go together"),
        ("frob.cu(12): error: expected a ;", "a fault in the source that is compiled"),
        ("something happened", ""),
    ],
)
def test_an_unknown_error_is_said_to_read_like_a_kind(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    ("symbol", "plain"),
    [
        ("_ZN3c105ErrorC1ENS_14SourceLocationE", "c10::Error"),
        ("_ZNK2at6Tensor4itemIfEET_v", "at::Tensor::item"),
        ("_Z7frobberPKc", "frobber"),
        ("_ZN99c10", "_ZN99c10"),
        ("cudaMalloc", "cudaMalloc"),
    ],
)
def test_a_symbol_is_told_as_it_is_written_in_source(symbol: str, plain: str) -> None:
    assert demangled(symbol) == plain


def test_whose_a_symbol_or_header_is_goes_by_the_longest_beginning() -> None:
    assert "torch" in symbol_owner("_ZN3c105ErrorC1E")
    assert "Python itself" in symbol_owner("PyUnicode_AsUTF8")
    assert "libcuda" in symbol_owner("cuIpcOpenMemHandle_v2")
    assert "cuda-samples" in header_owner("helper_math.h")
    assert header_owner("frob.h") == symbol_owner("frob") == ""


def test_an_undefined_symbol_of_any_program_is_told_with_its_owner() -> None:
    [found] = explain_text("ImportError: /x/frob.so: undefined symbol: _ZN6google8protobuf7MessageD2Ev").explanations
    assert "google::protobuf::Message" in found.signature.cause
    assert "It belongs to protobuf." in found.signature.cause
