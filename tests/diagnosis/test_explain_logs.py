"""Whole logs: real ones of known faults, real ones of everything else, and very long ones."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.explain_speed import answers
from benchmarks.quiet_logs import known_anywhere
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.diagnosis.explain import DIFFERENT_SIGHTINGS, Explained, explain_stream, explain_text
from firstlight.diagnosis.explain_scan import BLOCK_BYTES, LINE_CAP, without_prefix

LOGS = Path(__file__).parent / "logs"
KNOWN = sorted((LOGS / "known").glob("*.log"))
UNRELATED = sorted((LOGS / "unrelated").glob("*.log"))
TOO_OLD = b"RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please update\n"
FILLER = b"2026-11-15 02:38:25,123 INFO [rank0]: step 1 loss=2.31 lr=0.0003 tokens/s=12345 gpu_mem=43.2GB\n"


def explained(data: bytes) -> Explained:
    return explain_stream(io.BytesIO(data))


def codes(data: bytes) -> list[str]:
    return [explanation.signature.code for explanation in explained(data).explanations]


@pytest.mark.parametrize("log", KNOWN, ids=lambda log: log.stem)
def test_a_real_log_of_a_known_fault_is_recognised(log: Path) -> None:
    """Made with nvcc 13.0, CMake 3.25 and 4.4, gcc 12, the glibc loader, and torch 2.11, JAX and CuPy on an H200."""
    assert codes(log.read_bytes())[0] == log.name.partition(".")[0]


@pytest.mark.parametrize("log", UNRELATED, ids=lambda log: log.stem)
def test_a_log_of_something_else_gives_no_hit(log: Path) -> None:
    """Builds, installs, test runs, ELF listings, tracebacks, and a healthy H200: nothing here is a fault we know."""
    assert codes(log.read_bytes()) == []


def test_the_logs_of_something_else_are_many_and_do_speak_of_errors_and_cuda() -> None:
    text = b"".join(log.read_bytes() for log in UNRELATED)
    assert len(text) > 300_000
    assert text.count(b"rror") > 100
    assert text.lower().count(b"cuda") > 300


def test_several_causes_in_one_log_come_most_basic_first_with_their_first_lines() -> None:
    log = (
        b"ImportError: libfoo.so.1: cannot open shared object file: No such file or directory\n"
        b"step 1\n" + TOO_OLD + b"step 2\n" + TOO_OLD + b"nvcc fatal   : Unsupported gpu architecture 'sm_70'\n"
    )
    found = explained(log).explanations
    assert [(each.signature.code, each.first_line, each.count) for each in found] == [
        ("driver-too-old", 3, 2),
        ("shared-library-missing", 1, 1),
        ("gpu-arch-removed-from-nvcc", 6, 1),
    ]


def test_different_libraries_are_told_apart_and_the_number_kept_is_bounded() -> None:
    log = b"".join(b"libthing%d.so.1: cannot open shared object file\n" % (i % 40) for i in range(400))
    [found] = explained(log).explanations
    assert found.count == 400
    assert [sighting.line for sighting in found.sightings] == [1, 2, 3, 4, 5][:DIFFERENT_SIGHTINGS]
    assert all(sighting.count == 10 for sighting in found.sightings)


def test_a_specific_signature_wins_over_the_generic_one_on_its_line() -> None:
    log = b"libcudart.so.12: cannot open shared object file\nlibzzz.so.3: cannot open shared object file\n"
    assert codes(log) == ["cudart-other-major", "shared-library-missing"]


def test_the_source_line_in_a_traceback_is_not_counted_beside_the_message() -> None:
    log = (
        b'  File "cpp_extension.py", line 3182, in _join_cuda_home\n'
        b"    raise OSError('CUDA_HOME environment variable is not set. '\n"
        b"OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n"
    )
    [found] = explained(log).explanations
    assert (found.count, found.first_line) == (1, 3)


def test_the_lines_of_a_traceback_are_not_glued_to_the_message() -> None:
    message = b"RuntimeError: CUDA error: no kernel image is available for execution on the device"
    log = (
        b"Traceback (most recent call last):\n"
        b'  File "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", line 905, in cuda\n'
        b"    return self._apply(lambda t: t.cuda(device)) and something_long_that_goes_on_and_on(1)\n"
        + message
        + b"\n"
    )
    [found] = explained(log).explanations
    assert found.sightings[0].text == message.decode()


def test_a_source_line_alone_is_still_recognised() -> None:
    assert codes(b"    raise OSError('CUDA_HOME environment variable is not set. '\n") == ["cuda-home-not-set"]


def test_a_progress_bar_of_carriage_returns_is_read_piece_by_piece() -> None:
    log = b"\n" + b"".join(b"\r %3d%%|####      | 12/100" % i for i in range(100)) + b"\r" + TOO_OLD
    [found] = explained(log).explanations
    assert found.first_line == 2
    assert found.sightings[0].text.startswith("RuntimeError: The NVIDIA driver")


@pytest.mark.parametrize("junk", [b"", b"\x00" * 5000, bytes(range(256)) * 40, b"\xff\xfe" + "text".encode("utf-16")])
def test_binary_content_is_not_recognised_and_does_not_fail(junk: bytes) -> None:
    assert explained(junk).explanations == ()


def test_lines_and_bytes_are_counted_and_the_last_error_is_named_where_nothing_is_known() -> None:
    answer = explained(b"one\nValueError: a\nthree\nKeyError: b\nfive")
    assert (answer.lines, answer.size_bytes) == (5, 40)
    assert [(sighting.line, sighting.text) for sighting in answer.last_error] == [(4, "KeyError: b")]
    assert explained(TOO_OLD).last_error == ()


def test_a_very_long_line_is_shown_short_around_the_match() -> None:
    [found] = explained(b"x" * 30_000 + b" " + TOO_OLD.strip() + b" " + b"y" * 30_000).explanations
    assert "too old (found version 12040)" in found.sightings[0].text
    assert len(found.sightings[0].text) < 250


@settings(max_examples=60, deadline=None)
@given(st.integers(-200, 200), st.sampled_from([BLOCK_BYTES, BLOCK_BYTES - LINE_CAP, 2 * BLOCK_BYTES]))
def test_a_message_across_the_end_of_a_block_is_found_once_on_its_line(offset: int, border: int) -> None:
    """Blocks are an inner matter: wherever the message falls, the answer is the same."""
    head = FILLER * (border // len(FILLER) + 2)
    head = head[: border + offset].rpartition(b"\n")[0] + b"\n"
    head += b"." * (border + offset - len(head) - 60) + b"\n" if border + offset - len(head) > 61 else b""
    [found] = explained(head + TOO_OLD + FILLER).explanations
    assert (found.count, found.first_line) == (1, head.count(b"\n") + 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40))
def test_a_colour_code_across_the_end_of_a_block_does_not_hide_the_message(offset: int) -> None:
    head = b"." * (BLOCK_BYTES - 30 - offset) + b"\n"
    message = b"\x1b[01m\x1b[Kno kernel \x1b[31;1;4mimage is available\x1b[m\x1b[K for execution on the device\n"
    assert codes(head + message) == ["wheel-lacks-gpu-arch"]


def test_a_wrapped_message_across_the_end_of_a_block_is_found() -> None:
    message = (
        b"    Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.\n"
        b"    Minimum and Maximum cuda capability supported by this version of PyTorch is\n    (8.0) - (12.0)\n"
    )
    for border in (BLOCK_BYTES, BLOCK_BYTES - LINE_CAP):
        for cut in range(0, len(message), 7):
            head = b"." * (border - cut - 1) + b"\n"
            assert codes(head + message + FILLER * 3) == ["gb10-capability-warning"]


def test_a_log_without_line_ends_is_read_in_pieces() -> None:
    piece = b"no kernel image is available for execution on the device; "
    [found] = explained(piece * 20_000).explanations
    assert found.first_line == 1
    assert found.count >= 10


def test_memory_does_not_grow_with_the_log() -> None:
    """30 MB with a hit on every tenth line: the peak stays where a short log has it, give or take a few MB."""
    script = (
        "import io, re, sys\n"
        "from firstlight.diagnosis.explain import explain_stream, explain_text\n"
        "class Endless(io.RawIOBase):\n"
        "    def __init__(self, size): self.left, self.n = size, 0\n"
        "    def read(self, size=-1):\n"
        "        if self.left <= 0: return b''\n"
        "        self.left -= size; self.n += 1\n"
        "        row = b'libthing%d.so.1: cannot open shared object file\\n' % self.n + b'x' * 90 + b'\\n'\n"
        "        rows = row + (b'2026-11-15 INFO step loss=2.31 and a few more words to fill the line\\n') * 9\n"
        "        return (rows * (size // len(rows) + 1))[:size]\n"
        # Not ru_maxrss: that starts from the size of the process that forked this one.
        "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])\n"
        "explain_stream(Endless(3 << 20)); before = peak()\n"
        "answer = explain_stream(Endless(30 << 20))\n"
        "print(before, peak(), answer.size_bytes, answer.explanations[0].count)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    before, after, size, count = map(int, done.stdout.split())
    assert size == 30 << 20
    assert count > 30_000
    assert after - before < 8 * 1024  # in kB
    assert after < 80 * 1024


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-15 02:38:25,123 INFO [rank0]: ",
        "[2026-11-15T02:38:25Z] WARNING: ",
        "Nov 15 02:38:25 host-a kernel: NVRM: ",
        "[  123.456] NVRM: ",
        "worker-3   | ",
        "(EngineCore_0 pid=4711) ERROR 11-15 02:38:25 [core.py:700] ",
        "#12 34.56 ",
        "W1115 03:29:09.743000 1165 torch/utils/cpp_extension.py:140] ",
        "      ",
    ],
)
def test_log_prefixes_are_taken_off_before_lines_are_joined(prefix: str) -> None:
    assert without_prefix(prefix + "the message") == "the message"


def test_text_and_stream_give_the_same_answer() -> None:
    assert explain_text(TOO_OLD.decode()) == explained(TOO_OLD)


def test_two_megabytes_of_other_peoples_logs_give_no_answer() -> None:
    """Written before any row was read; `python -m benchmarks.explain_speed` has fifty of them."""
    said = answers(2)
    assert said.size_bytes > 2_000_000
    assert [(each.signature.code, each.sightings[0].text) for each in said.explanations] == []


def test_what_is_known_wherever_it_is_printed_is_known_in_them_too() -> None:
    found = [codes(line.encode()) for line in known_anywhere()]
    assert [len(each) for each in found] == [1] * 11
