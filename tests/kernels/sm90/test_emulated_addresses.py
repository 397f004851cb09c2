"""No kernel reads or writes past what it was given: AddressSanitizer over the emulated kernels, in a child."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.sm90.emulator.build import CHECKED, needs_compiler

pytestmark = needs_compiler
# torch's own libraries are left alone: these are checks that their destructors and operators do not stand
OPTIONS = (
    "detect_leaks=0,alloc_dealloc_mismatch=0,new_delete_type_mismatch=0,detect_odr_violation=0,"
    "detect_container_overflow=0,detect_stack_use_after_return=0"
)
ROOT = Path(__file__).parents[3]


def library(name: str) -> str:
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def checked(*arguments: str) -> subprocess.CompletedProcess[str]:
    asan = library("libasan.so")
    if not Path(asan).is_absolute():
        pytest.skip("gcc has no libasan here")
    environ = {
        **os.environ, CHECKED: "1", "LD_PRELOAD": f"{asan}:{library('libstdc++.so')}", "ASAN_OPTIONS": OPTIONS,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.kernels.sm90.emulator.addresses", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environ, timeout=300)


@pytest.mark.parametrize(("what", "every"), [("multiply,sample,turn", "7"), ("attention,gradient", "4")])
def test_the_kernels_stay_inside_of_what_they_were_given(what: str, every: str) -> None:
    found = checked(what, every)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[:4000]
    assert found.stdout.count(": ok") >= 5


def test_a_list_read_past_its_end_is_seen_at_its_line() -> None:
    found = checked("gradient", "9", "gradient.cu", "entry + 1 < end ? entry + 1 : entry;", "entry + 64;")
    assert found.returncode != 0
    assert "ERROR: AddressSanitizer: heap-" in found.stderr  # past its end, or in what was freed there
    assert "load_list" in found.stderr
