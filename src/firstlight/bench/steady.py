"""Whether a figure is steady enough to be judged: what disagrees with itself says nothing about a change."""

from __future__ import annotations

from firstlight.bench.results import CaseResult, Figure

NOT_STEADY = "not_steady"  # flag of a case: its warm-up had not come to rest when timing began
PUT_OFF = "put_off_its_cores"  # flag of a case: other processes held a core in more than half of its samples
# Passes of one process on one machine. Of 108 figures of an H200 the widest, an eager model, lie 15 % apart
# (results/bench-h200-standard.json), on a processor with nothing else to do up to 30 %, on a busy one up to a
# hundredfold. What lies below enters the interval of the comparison as noise.
PASSES_APART = 0.5


def unsteady(case: CaseResult, figure: Figure) -> str:
    """Why no verdict may rest on a figure, e.g. 'its passes lie 94 % apart'; '' where one may."""
    medians = [each.median for each in figure.passes]
    apart = max(medians) / min(medians) - 1
    if PUT_OFF in case.flags:
        return "other processes held its cores"
    if apart > PASSES_APART:
        return f"its passes lie {100 * apart:.0f} % apart" if apart < 10 else f"its slowest pass took {_times(apart)}"
    return "its times had not settled when timing began" if NOT_STEADY in case.flags else ""


def is_unsteady(case: CaseResult) -> bool:
    """Whether the figure that a case is known by is not steady; False for a case without one."""
    return case.shown is not None and bool(unsteady(case, case.shown))


def _times(apart: float) -> str:
    return f"{1 + apart:.0f} times as long as its fastest" if apart < 1e6 else "over a million times as long"
