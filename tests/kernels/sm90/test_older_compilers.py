"""The kernels built by the NVRTC of CUDA 12, as torch's wheels for it bring it: the same gate holds."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from firstlight.kernels.sm90.attention_variants import attention_builds, gradient_builds, once_builds
from firstlight.kernels.sm90.compile import Variant, compile_variant, find_compiler
from firstlight.kernels.sm90.gradient_once import OLDEST_COMPILER, built_well
from firstlight.kernels.sm90.variants import NARROW, PAIR, WIDE, Build, multiply_variant, sample_variant
from tests.kernels.sm90.attention_gate import loop_faults
from tests.kernels.sm90.gate import counted, disassembled, problems

RELEASES = ("12.4", "12.6", "12.8", "12.9")
# Two gradient kernels lose two registers to that compiler: slower by next to nothing, and right.
KNOWN = {
    "12.6": re.compile(
        r"gradient KEYSIDE=1 HEAD=64 .*: (8 bytes are spilled|[12] loads from and [12] stores to local memory)"
    )
}
PRODUCTS = [
    multiply_variant(Build(block, bf16=False, tokens=tokens, turned=False), tile)
    for block in (128, 64, 32, 16) for tokens in (True, False)
    for tile in ((WIDE, PAIR, NARROW) if block >= 64 else (WIDE, NARROW))
]  # fmt: skip
SAMPLED = sample_variant(128, bf16=0, by_token=1)


@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
def test_the_gate_holds_with_the_compiler_of_an_older_cuda(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = f"nvidia-cuda-nvrtc-cu12=={release}.*"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*download, "--dest", str(tmp_path), wanted], check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert find_compiler().identity.startswith(f"nvrtc {release},")
    found = [fault for variant in (*PRODUCTS, SAMPLED) for fault in faults(variant)]
    found += [fault for build in attention_builds() for fault in (*faults(build.variant), *loop(build.variant))]
    found += [fault for build in gradient_builds() for fault in faults(build.variant)]
    once = [
        fault
        for build in once_builds()
        for fault in (*faults(build.variant), *loop(build.variant), *faults(build.rows))
    ]
    built_well.cache_clear()
    assert built_well() == (tuple(map(int, release.split("."))) >= OLDEST_COMPILER) == (once == [])
    built_well.cache_clear()
    known = KNOWN.get(release)
    assert [fault for fault in found if known is None or not known.search(fault)] == []


def faults(variant: Variant) -> tuple[str, ...]:
    compiled = compile_variant(variant)
    return problems(variant, compiled, counted(disassembled(compiled.cubin)))


def loop(variant: Variant) -> tuple[str, ...]:
    return loop_faults(disassembled(compile_variant(variant).cubin))
