"""Every kernel that a product can ask for is compiled and read; the slowest test here, so what it built is kept.

Under pytest's own cache folder, keyed by source and compiler: after an edit only what it touches is compiled again.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firstlight.errors import FirstlightError
from firstlight.kernels.sm90.cache import built
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.variants import all_variants
from tests.kernels.sm90.cases import needs_compiler
from tests.kernels.sm90.gate import Sass, problems, read_sass

VARIANTS = all_variants()
PLAIN = ("turn", "pitch", "lists", "mask_lists")  # without products


@pytest.fixture(scope="module")
def found(pytestconfig: pytest.Config) -> dict[Variant, tuple[str, ...]]:
    """The problems of each variant, several compiled at a time: NVRTC and nvcc leave Python alone meanwhile."""
    assert pytestconfig.cache is not None
    kept = pytestconfig.cache.mkdir("sm90")
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(os.cpu_count()) as pool:
        patch.setenv("FIRSTLIGHT_CACHE_DIR", str(kept))
        return dict(zip(VARIANTS, pool.map(lambda variant: _problems(variant, kept), VARIANTS), strict=True))


def _problems(variant: Variant, kept: Path) -> tuple[str, ...]:
    try:
        compiled = built(variant)
        return problems(variant, compiled, _sass(compiled.cubin, kept))
    except FirstlightError as error:
        return (f"{variant}: {error}",)


def _sass(cubin: bytes, kept: Path) -> Sass:
    file = kept / f"sass-{hashlib.sha256(cubin).hexdigest()}.json"
    if not file.exists():
        sass = read_sass(cubin)
        file.write_text(json.dumps([getattr(sass, name) for name in Sass.__match_args__]))
    shapes, *rest = json.loads(file.read_text())
    return Sass(tuple((str(shape), int(count)) for shape, count in shapes), *rest)


@needs_compiler
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_kernel_has_no_spills_no_local_memory_no_serialised_wgmma_and_as_many_as_wanted(
    variant: Variant, found: dict[Variant, tuple[str, ...]]
) -> None:
    assert found[variant] == ()


def test_the_list_names_each_kernel_once() -> None:
    assert len(set(VARIANTS)) == len(VARIANTS)
    assert {variant.source for variant in VARIANTS} == {"multiply", "sample", *PLAIN}
    assert all(variant.hgmma > 0 for variant in VARIANTS if variant.source not in PLAIN)
