"""Block-sparse matrices and their products: the blocks that are not stored cost nothing.

    from firstlight.kernels import BlockSparseMatrix, matmul, linear, sampled_matmul
    W = BlockSparseMatrix.from_dense(w, block=128)
    Y = matmul(W, X)

matrix.py is the matrix, functions.py its products, nn.py a layer; reference.py says in plain torch what they mean.
"""

from __future__ import annotations

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import CopiedInput
from firstlight.kernels.functions import explain_choice, linear, matmul, sampled_matmul
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.pattern import Pattern

__all__ = [
    "BlockSparseMatrix",
    "CopiedInput",
    "Pattern",
    "UnsupportedInput",
    "explain_choice",
    "linear",
    "matmul",
    "sampled_matmul",
]
