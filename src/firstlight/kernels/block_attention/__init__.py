"""Block-sparse attention: blocks of keys that a block of queries may not see cost nothing.

    from firstlight.kernels import BlockMask, attention
    mask = BlockMask.causal(4096) & (BlockMask.window(4096, left=512) | BlockMask.sink(4096, keys=64))
    o, lse = attention(q, k, v, mask, return_lse=True)

mask.py is the mask, construct.py the ways to make one, combine.py `&` and `|`, lists.py what kernels read of it;
reference.py says in plain torch what attention under a mask means.
"""

from __future__ import annotations
