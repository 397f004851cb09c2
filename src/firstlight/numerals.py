"""Numbers as people read them: four significant digits, percents, one GPU and two GPUs."""

from __future__ import annotations

DASH = "-"
SIGNIFICANT = 4


def counted(count: int, thing: str) -> str:
    """1 GPU, 2 GPUs."""
    return f"{count} {thing}" + ("" if count == 1 else "s")


def significant(value: float) -> str:
    """Four significant digits without an exponent: 1.364, 806.1, 12345."""
    if value == 0:
        return "0"
    digits = SIGNIFICANT - 1 - _magnitude(value)
    return f"{round(value, digits):.{max(0, digits)}f}"


def percent_text(share: float | None) -> str:
    """'87 %', '4.2 %'; '-' when the limit is not known."""
    if share is None:
        return DASH
    return f"{share:.0f} %" if share >= 10 else f"{share:.1f} %"


def _magnitude(value: float) -> int:
    """The power of ten of the first digit after rounding: 0 for 9.99, 1 for 9.9999."""
    return int(f"{abs(value):.{SIGNIFICANT - 1}e}".partition("e")[2])
