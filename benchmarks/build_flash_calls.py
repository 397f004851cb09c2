"""Calls every forward unit of head size 64 of the flash-attn that is installed here, and holds each against torch.

python3 -m benchmarks.build_flash_calls RESULT
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import torch
from benchmarks.usage import print_usage
from flash_attn import flash_attn_func, flash_attn_with_kvcache

BOUND = {torch.float16: 5e-3, torch.bfloat16: 4e-2}
SPLITS = 4


def gap(dtype: torch.dtype, *, causal: bool, split: bool) -> float:
    """The largest difference from torch's attention in float32: with split, over keys that are read in parts."""
    torch.manual_seed(0)
    rows = 512
    q, k, v = (torch.randn(2, rows, 4, 64, device="cuda", dtype=dtype) for _ in range(3))
    wide = [each.transpose(1, 2).float() for each in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(wide[0], wide[1], wide[2], is_causal=causal)
    if split:
        found = flash_attn_with_kvcache(q, k, v, causal=causal, num_splits=SPLITS)
    else:
        found = flash_attn_func(q, k, v, causal=causal)
    return float((found.float() - expected.transpose(1, 2)).abs().max())


def main() -> None:
    calls = []
    for dtype, causal, split in product(BOUND, (False, True), (False, True)):
        found = gap(dtype, causal=causal, split=split)
        calls.append(
            {"dtype": str(dtype).removeprefix("torch."), "causal": causal, "split_over_keys": split, "gap": found,
             "bound": BOUND[dtype], "right": found < BOUND[dtype]}
        )  # fmt: skip
    Path(sys.argv[1]).write_text(json.dumps(calls, indent=1) + "\n")
    print(json.dumps(calls))
    sys.exit(0 if all(each["right"] for each in calls) else 1)


if __name__ == "__main__":
    print_usage(__doc__, least=1)
    main()
