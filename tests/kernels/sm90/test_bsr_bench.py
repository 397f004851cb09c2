"""The kernels as a program of their own: it builds with nvcc alone, refuses politely, and walks the library's lists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from firstlight.kernels.pattern import Pattern
from firstlight.kernels.schedule import split_rows
from firstlight.kernels.sm90.lists import WHOLE, Work, portion_limit, step_width, steps_of
from tests.kernels.sm90.cases import HERE, ROOT, needs_nvcc

FOLDER = ROOT / "benchmarks" / "bsr_bench"
SOURCES = ROOT / "src" / "firstlight" / "kernels" / "sm90" / "bsr_bench"
ONE_KERNEL = "BUILDS=128-0-256-0"  # all 32 take two minutes of a processor
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bsr-bench")
    done = subprocess.run(
        ["make", "-j2", "-C", str(FOLDER), f"OUT={out}", ONE_KERNEL],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "warning" not in done.stderr, done.stderr[-3000:]
    return out / "sparse_bsr_gemm_h100"


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # no device is visible, so that a machine with a GPU says the same
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False, env=environ)


@needs_nvcc
@needs_make
def test_without_a_gpu_it_says_so_and_ends_with_4(program: Path) -> None:
    done = run(program)
    assert (done.returncode, done.stdout) == (4, "")
    assert "no GPU can be used here (" in done.stderr
    assert "compute capability 9.0 is needed (H100, H200)" in done.stderr
    assert done.stderr.count("\n") == 1


@needs_nvcc
@needs_make
def test_help_needs_no_gpu_and_names_every_option(program: Path) -> None:
    done = run(program, "--help")
    assert done.returncode == 0
    taken = set(re.findall(r'name == "(--[a-z]+)"', (SOURCES / "options.h").read_text()))
    assert {"--block", "--density", "--m", "--n", "--k", "--dtype", "--json", "--help"} <= taken
    assert all(re.search(rf"^  .*{option}\b", done.stdout, re.MULTILINE) for option in taken)
    assert "Example: " in done.stdout


@needs_nvcc
@needs_make
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--block", "48"], "--block is '48'; accepted: 16, 32, 64, 128."),
        (["--block", "8"], "--block is '8'; accepted: a whole number from 16 to 128."),
        (["--density", "1.5"], "--density is '1.5'; accepted: a number from 0 to 1."),
        (["--density=nan"], "--density is 'nan'; accepted: a number from 0 to 1."),
        (["--m", "0"], "--m is '0'; accepted: a whole number from 1 to 1048576."),
        (["--k", "12x"], "--k is '12x'; accepted: a whole number from 1 to 1048576."),
        (["--n"], "--n is ''; accepted: a whole number from 1 to 1048576."),
        (["--n", "99999999999999999999"], "--n is '99999999999999999999'; accepted: "),
        (["--n", "9"], "--n is 9; matmul at block 128 takes multiples of 8"),
        (["--call", "linear", "--k", "100"], "--k is 100; linear at block 128 takes multiples of 8"),
        (["--dtype", "fp8"], "--dtype is 'fp8'; accepted: fp16, bf16."),
        (["--tokens", "9"], "'--tokens' is no option of this program."),
        (["8192"], "'8192' is no option of this program."),
        (["--m=1048576", "--k=1048576", "--block=16"], "W has 4294967296 places for blocks; up to 268435456"),
        (["--block", "64"], "this program was built without the kernel for --block 64 --dtype fp16 --call matmul"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_what_was_given_and_what_is_accepted(
    program: Path, words: Sequence[str], complaint: str
) -> None:
    done = run(program, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


@needs_make
def test_the_whole_program_has_every_block_type_tile_and_call(tmp_path: Path) -> None:
    said = subprocess.run(
        ["make", "-n", "-C", str(FOLDER), f"OUT={tmp_path}", "NVCC=nvcc"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    made = set(re.findall(r"-o \S*/kernel-(\S+)\.o", said.stdout))
    wanted = {
        f"{block}-{bf16}-{tokens}-{call}"
        for block in (16, 32, 64, 128) for bf16 in (0, 1) for tokens in (64, 256) for call in (0, 1)
    }  # fmt: skip
    assert made == wanted


@needs_make
def test_without_nvcc_make_says_what_to_install(tmp_path: Path) -> None:
    command = ["make", "-C", str(FOLDER), f"OUT={tmp_path}", "NVCC="]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "no nvcc in PATH or /usr/local/cuda/bin; install a CUDA toolkit, 12.0 or newer" in done.stderr


@pytest.fixture(scope="module")
def printer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lists") / "print_lists"
    source = HERE / "print_lists.cpp"
    subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-Werror", f"-I{SOURCES}", "-o", made, source], check=True, timeout=120
    )
    return made


@needs_gxx
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize(("rows", "cols", "density"), [(19, 23, 0.2), (8, 40, 0.7), (33, 5, 0.05), (3, 3, 0.0)])
def test_its_lists_are_the_librarys(printer: Path, block: int, rows: int, cols: int, density: float) -> None:
    limit = 3
    found = printed(printer, rows, cols, density, block, limit, 32, 256)
    crow, col = (torch.tensor(each, dtype=torch.int32) for each in found[:2])
    assert len(found[1]) == int(density * rows * cols + 0.5)
    index = Pattern(crow, col, (rows * block, cols * block), block).forward
    steps = steps_of(index, width=step_width(block), grouped=False)
    count = int(steps.starts[-1])
    assert found[2] == steps.starts.tolist()
    assert found[3] == steps.columns[: count * step_width(block)].tolist()
    assert found[4] == steps.members.reshape(-1)[: count * step_width(block) * (128 // block)].tolist()
    segments = split_rows(steps.starts, steps.bound, limit=limit)
    items = [item for item in segments.items.tolist() if item[0] >= 0]
    assert found[5] == [number for item in items for number in item]
    split = segments.slot_counts > 0
    assert found[7] == segments.slot_counts.tolist()
    assert torch.tensor(found[6])[split].tolist() == segments.first_slot[split].tolist()


@needs_gxx
@pytest.mark.parametrize("block", [16, 64, 128])
@pytest.mark.parametrize(("tiles", "tokens"), [(1, 64), (1, 256), (32, 256), (4, 256)])
def test_its_portions_are_about_as_long_as_the_librarys(printer: Path, block: int, tiles: int, tokens: int) -> None:
    rows, cols = 4096 // block, 4096 // block
    found = printed(printer, rows, cols, 0.3, block, 1 << 20, tiles, tokens)
    groups, steps, [limit] = len(found[2]) - 1, found[2][-1], found[8]
    work = Work(
        groups=groups, steps=steps, most=-(-cols // step_width(block)), tiles=tiles, part_bytes=128 * tokens * 4,
        stages_per_step=2 if block == 128 else 1, multiprocessors=132, block=block,
    )  # fmt: skip
    theirs = portion_limit(work)
    longest = max(end - begin for begin, end in zip(found[2], found[2][1:], strict=False))
    if theirs == WHOLE or theirs >= longest:
        assert limit >= longest
    else:  # the library rounds up to four binary digits and takes bounds where the program knows the lists
        assert limit <= theirs <= limit * 1.6


def printed(printer: Path, *words: object) -> list[list[int]]:
    """The lists that the program made, one for each line."""
    done = subprocess.run([printer, *map(str, words)], capture_output=True, text=True, timeout=60, check=True)
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


SMALL = ("--m=1128", "--k=1000", "--n=520", "--density=0.3", "--repeats=3", "--sustained=0", "--json")


@pytest.mark.gpu
@needs_nvcc
@needs_make
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_product_is_right_and_timed(program: Path) -> None:
    done = subprocess.run([program, *SMALL], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["check"]["good"]
    assert found["check"]["elements"] == 1128 * 520
    assert len(found["burst"]["samples_ms"]) == 3
    assert found["sustained"] is None


@pytest.mark.gpu
@needs_nvcc
@needs_make
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_one_wrong_element_is_found_and_nothing_is_timed(program: Path) -> None:
    done = subprocess.run([program, *SMALL, "--spoil"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["check"]["wrong"] == 1
    assert found["burst"] is None
