"""The product with parts of it left out, for timing: what is left out is not in the machine code."""

from __future__ import annotations

import pytest
from benchmarks.matmul.sm90.without import DENSITIES, PARTS, trial_of, variants

from firstlight.kernels.sm90.cache import built
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.variants import all_variants
from tests.kernels.sm90.cases import needs_compiler
from tests.kernels.sm90.gate import disassembled


def test_every_product_of_the_run_is_compiled_with_every_part_left_out() -> None:
    made = set(variants())
    whole = {variant for variant in made if "WITHOUT" not in dict(variant.defines)}
    assert whole <= set(all_variants())
    assert len(made) == len(whole) * len(PARTS)
    assert {dict(variant.defines)["BLOCK"] for variant in made} == set(DENSITIES)


@needs_compiler
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("block", [32, 128])
def test_what_is_left_out_is_not_in_the_machine_code(part: str, block: int) -> None:
    base = next(each for each in variants() if dict(each.defines)["BLOCK"] == block)
    code = disassembled(built(Variant(base.source, (*base.defines, *trial_of(part).macros), base.hgmma)).cubin)
    assert ("HGMMA.64x256x16" in code) == (
        "products" in part or part == "whole"
    )  # ptxas fills an empty group with a tiny one
    assert ("UTMASTG" in code) == ("stores" in part or part == "whole")
    x_is_loaded = "UTMALDG.4D" in code
    assert x_is_loaded == ("loads" in part or part == "whole")
