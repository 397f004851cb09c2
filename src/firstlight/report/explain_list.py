"""What `firstlight explain --list` prints: the products whose errors are known, and the errors of one product."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Any

from firstlight.diagnosis.signatures import Signature
from firstlight.errors import BadInput
from firstlight.numerals import counted
from firstlight.report.explain_text import document, known_json
from firstlight.report.layout import labelled

GENERAL = "general"  # CUDA's, torch's and the system's own words belong to no product
ALL = "all"
_GAP = 2


def chosen(signatures: tuple[Signature, ...], wanted: str) -> tuple[Signature, ...]:
    """The errors of one product, e.g. vllm, of `general` or of `all`; most basic first."""
    name = wanted.strip().lower().replace(" ", "-").replace("_", "-")
    found = tuple(each for each in signatures if name in (ALL, product_of(each)))
    if found:
        return found
    products = sorted({product_of(each) for each in signatures})
    inside = [each for each in products if len(name) > 1 and (name in each or each in name)]
    near = difflib.get_close_matches(name, products, n=3, cutoff=0.7) or inside[:3]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise BadInput(
        f"no product is called {wanted[:60]!a}; accepted: all, or one of the {len(products)} that "
        f"`firstlight explain --list` prints.{hint}"
    )


def products_text(signatures: tuple[Signature, ...], *, width: int) -> str:
    """Every product with how many of its errors are known, in columns."""
    counts = Counter(product_of(each) for each in signatures)
    general = counts.pop(GENERAL, 0)
    cells = [f"{count:>3} {name}" for name, count in sorted(counts.items())]
    widest = max(map(len, cells)) + _GAP
    columns = max(1, min(width, 100) // widest)
    height = -(-len(cells) // columns)
    grid = ["".join(cell.ljust(widest) for cell in cells[row::height]).rstrip() for row in range(height)]
    head = (
        f"{len(signatures)} errors are known: {general} of CUDA, torch and the system ({GENERAL}), and those of "
        f"{counted(len(counts), 'product')}:"
    )
    return "\n".join(
        [
            labelled("", (head,), label_width=0),
            *grid,
            "",
            "The errors of one product:    firstlight explain --list vllm",
            f"Of CUDA, torch, the system:   firstlight explain --list {GENERAL}",
            f"All, with their sources:      firstlight explain --list {ALL} --json",
            "",
        ]
    )


def errors_text(signatures: tuple[Signature, ...]) -> str:
    """The errors by product: code and title, most basic first; false alarms say so."""
    blocks = []
    for product in sorted({product_of(each) for each in signatures}):
        mine = [each for each in signatures if product_of(each) == product]
        widest = max(len(each.code) for each in mine)
        rows = [
            labelled(f"  {each.code}", (f"{each.title}{_alarm(each)}",), label_width=widest + 2 * _GAP) for each in mine
        ]
        blocks.append("".join([f"{product}: {counted(len(mine), 'error')}, the most basic first\n", *rows]))
    return "\n".join(blocks)


def errors_json(signatures: tuple[Signature, ...]) -> str:
    """The same with forms and sources as one JSON document; `products` has the counts."""
    counts = Counter(product_of(each) for each in signatures)
    products: list[dict[str, Any]] = [{"product": name, "count": count} for name, count in sorted(counts.items())]
    return document({"products": products, "signatures": [known_json(each) for each in signatures]})


def product_of(signature: Signature) -> str:
    """Whose error it is, e.g. vllm; general where it is CUDA's, torch's or the system's."""
    return signature.product or GENERAL


def _alarm(signature: Signature) -> str:
    return " (not a fault)" if signature.not_a_fault else ""
