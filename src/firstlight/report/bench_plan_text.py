"""What a run would do, before it does it: the list of cases, or about how long each family takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firstlight.bench.case import Case


def list_text(cases: Sequence[Case]) -> str:
    """One id per line; a case that cannot run here has its reason beside it."""
    width = max((len(case.id) for case in cases), default=0)
    return "".join(f"{case.id:<{width}}  skipped: {case.needs}\n" if case.needs else f"{case.id}\n" for case in cases)


def estimate_text(cases: Sequence[Case], seconds: Mapping[str, float], *, total_s: float, model: str) -> str:
    """Seconds by family, then the sum with soak and idle check; set-up and compiling are not in it."""
    lines = []
    for family in dict.fromkeys(case.family for case in cases):
        inside = [case for case in cases if case.family == family]
        run = [case for case in inside if not case.needs]
        skipped = f", {len(inside) - len(run)} skipped" if len(run) < len(inside) else ""
        spent = sum(seconds[case.id] for case in run)
        lines.append(f"{family:<12}{len(run):>4} cases{spent:>8.1f} s{skipped}")
    compiled = " So does compiling, which takes minutes." if any("compile" in c.flags for c in cases) else ""
    lines.append(
        f"about {total_s:.0f} s in all on {model}, with the warm-up. Making the buffers and checking the results "
        f"comes on top.{compiled}"
    )
    return "\n".join(lines) + "\n"
