"""Block-sparse matrices and their products, block-sparse attention: the blocks that are not stored cost nothing.

    from firstlight.kernels import BlockSparseMatrix, matmul, linear, gated_linear, sampled_matmul
    W = BlockSparseMatrix.from_dense(w, block=128)
    Y = matmul(W, X)

    from firstlight.kernels import BlockMask, attention
    mask = BlockMask.causal(4096) & BlockMask.window(4096, left=512)
    o = attention(q, k, v, mask)

matrix.py is the matrix, functions.py and gated.py its products, nn.py its layers; reference.py says in plain torch what
they mean.
block_attention/ holds the masks and attention; it and the layers are imported when one of their names is first asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import CopiedInput
from firstlight.kernels.explain import explain_choice
from firstlight.kernels.functions import linear, matmul, sampled_matmul
from firstlight.kernels.gated import gated_linear
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.pattern import Pattern

if TYPE_CHECKING:
    from firstlight.kernels.block_attention.functions import attention, explain_attention
    from firstlight.kernels.block_attention.mask import BlockMask
    from firstlight.kernels.block_attention.merge import merge_attention
    from firstlight.kernels.choose import SlowerPath
    from firstlight.kernels.nn import BlockSparseLinear, GatedBlockSparseLinear
    from firstlight.kernels.ragged import ragged_attention

__all__ = [
    "BlockMask",
    "BlockSparseLinear",
    "BlockSparseMatrix",
    "CopiedInput",
    "GatedBlockSparseLinear",
    "Pattern",
    "SlowerPath",
    "UnsupportedInput",
    "attention",
    "explain_attention",
    "explain_choice",
    "gated_linear",
    "linear",
    "matmul",
    "merge_attention",
    "ragged_attention",
    "sampled_matmul",
]
_LATER = {
    "BlockMask": "block_attention.mask",
    "BlockSparseLinear": "nn",
    "GatedBlockSparseLinear": "nn",
    "SlowerPath": "choose",
    "attention": "block_attention.functions",
    "explain_attention": "block_attention.functions",
    "merge_attention": "block_attention.merge",
    "ragged_attention": "ragged",
}


if not TYPE_CHECKING:  # a type checker would take any name for one of the module's

    def __getattr__(name: str) -> Any:
        """Names imported at first use: attention's would double what `import firstlight.kernels` takes."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        found = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = found  # the next time there is nothing to look for
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
