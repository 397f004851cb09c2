"""Held-out questions of benchmarks/regret.py as calls: products and attention, one backend each time.

A question is a dictionary of the files that --products and --attention name; their README says what each field means.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from firstlight.kernels import BlockMask, BlockSparseMatrix, attention, linear, matmul

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ALIGNMENTS = {"top-left": "upper_left", "bottom-right": "lower_right"}
DEVICE = "cuda"
Question = dict[str, Any]
Call = Callable[[], object]


def patterns_beside(path: Path) -> ModuleType:
    """The patterns.py that lies beside the questions."""
    spec = importlib.util.spec_from_file_location("patterns", path.parent / "patterns.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_once(question: Question, make: Callable[[Question], Any]) -> Tensor:
    """Blocks by patterns.py; kept in a file, as some take seconds and two processes ask.

    The file is named by the whole question: ids repeat from one draw to the next.
    """
    asked = hashlib.sha256(json.dumps([make.__name__, question], sort_keys=True).encode()).hexdigest()
    path = Path(tempfile.gettempdir()) / f"regret-{asked[:32]}.pt"
    if not path.exists():
        scratch = path.with_name(f"{path.name}.{os.getpid()}")
        torch.save(torch.from_numpy(make(question)), scratch)
        scratch.replace(path)
    found: Tensor = torch.load(path)
    return found


class Product:
    """One product question, its tensors made once; call(backend) is what is timed."""

    def __init__(self, question: Question, patterns: ModuleType) -> None:
        self.question = question
        self.tf32 = bool(question["tf32"])
        dtype = DTYPES[question["dtype"]]
        kept = made_once(question, patterns.blocks_of).to(DEVICE)
        rows, cols, block = question["rows"], question["columns"], question["block"]
        generator = torch.Generator(device=DEVICE).manual_seed(question["pattern"]["seed"])
        dense = torch.randn(rows, cols, dtype=dtype, device=DEVICE, generator=generator)
        self.w = BlockSparseMatrix.from_mask(kept, block=block, values=dense)
        del dense
        if question["dense_copy_kept"]:
            self.w.keep_dense()
        self.tokens = question["layout"] == "linear"
        shape = (question["tokens"], cols) if self.tokens else (cols, question["tokens"])
        self.x = torch.randn(shape, dtype=dtype, device=DEVICE, generator=generator)
        result = (question["tokens"], rows) if self.tokens else (rows, question["tokens"])
        self.grad = torch.randn(result, dtype=dtype, device=DEVICE, generator=generator)
        self.bias = torch.randn(rows, dtype=dtype, device=DEVICE) if question["bias"] else None
        direction = question["direction"]
        if direction in ("dw", "training"):
            self.w.values.requires_grad_()
        if direction in ("dx", "training"):
            self.x.requires_grad_()

    def forward(self, backend: str) -> Tensor:
        activation = None if self.question["activation"] == "none" else self.question["activation"]
        if self.tokens:
            return linear(self.x, self.w, self.bias, activation=activation, backend=backend)
        return matmul(self.w, self.x, bias=self.bias, activation=activation, backend=backend)

    def call(self, backend: str) -> Call:
        direction = self.question["direction"]
        if direction == "forward":
            return lambda: self.forward(backend)
        leaves = [one for one in (self.x, self.w.values) if one.requires_grad]
        if direction == "training":
            return lambda: torch.autograd.grad(self.forward(backend), leaves, self.grad)
        out = self.forward(backend)
        return lambda: torch.autograd.grad(out, leaves, self.grad, retain_graph=True)


class Attended:
    """One attention question."""

    def __init__(self, question: Question, patterns: ModuleType) -> None:
        self.question = question
        self.tf32 = False
        dtype = DTYPES[question["dtype"]]
        batch, dim = question["batch"], question["head_dim"]
        generator = torch.Generator(device=DEVICE).manual_seed(question["mask"]["seed"])

        def made(heads: int, length: int) -> Tensor:
            return torch.randn(batch, heads, length, dim, dtype=dtype, device=DEVICE, generator=generator)

        self.q = made(question["heads"], question["q_len"])
        self.k, self.v = (made(question["kv_heads"], question["kv_len"]) for _ in range(2))
        self.grad = made(question["heads"], question["q_len"])
        if question["direction"] == "backward":
            for one in (self.q, self.k, self.v):
                one.requires_grad_()
        self.mask = mask_of(question, patterns)
        kind, alignment = question["mask"]["kind"], question["mask"].get("alignment", "top-left")
        self.causal: str | bool = ALIGNMENTS[alignment] if kind == "causal" else False

    def forward(self, backend: str) -> Tensor:
        return attention(self.q, self.k, self.v, self.mask, causal=self.causal, backend=backend)

    def call(self, backend: str) -> Call:
        if self.question["direction"] == "forward":
            return lambda: self.forward(backend)
        out = self.forward(backend)
        return lambda: torch.autograd.grad(out, (self.q, self.k, self.v), self.grad, retain_graph=True)


def mask_of(question: Question, patterns: ModuleType) -> BlockMask | None:
    """The mask of a question; None for full and causal."""
    given = question["mask"]
    kind = given["kind"]
    lengths, block = (question["q_len"], question["kv_len"]), question["block"]
    place: dict[str, Any] = {"block": block, "device": DEVICE}
    alignment = ALIGNMENTS[given.get("alignment", "top-left")]
    if kind in ("full", "causal"):
        return None
    if kind == "window":
        made = BlockMask.window(*lengths, left=given["left"], right=given["right"], alignment=alignment, **place)
        if given.get("sink"):
            made = made | BlockMask.sink(*lengths, keys=given["sink"], **place)
            if given["right"] == 0:
                made = made & BlockMask.causal(*lengths, alignment=alignment, **place)
        return made
    if kind == "strided":
        made = BlockMask.strided(*lengths, stride=given["stride"], **place)
        made = made | BlockMask.window(*lengths, left=given["window"], alignment=alignment, **place)
        return made & BlockMask.causal(*lengths, alignment=alignment, **place)
    if kind == "documents":
        made = BlockMask.document(torch.from_numpy(patterns.document_ids(question)).to(DEVICE), block=block)
        return made & BlockMask.causal(*lengths, **place) if given["causal"] else made
    listed = made_once(question, patterns.block_mask).to(DEVICE)
    made = BlockMask.from_bool(listed, block_level=True, q_len=lengths[0], k_len=lengths[1], block=block)
    if given.get("causal"):
        made = made & BlockMask.causal(*lengths, alignment="lower_right", **place)
    return made
