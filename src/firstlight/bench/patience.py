"""How long the stopwatch looks: passes, warm-up, samples and time of each effort."""

from __future__ import annotations

from firstlight.bench.case import Effort
from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """What one effort allows, e.g. standard: 3 passes and 0.8 s of samples per case over all of them."""

    passes: int
    sustained_passes: int  # of big kernels, which cost the most time: a figure of one pass is shown, but not judged
    budget_s: float  # of samples per case, over all passes
    warm_up_s: float  # at least this long, in every pass
    warm_up_limit_s: float  # then it is as steady as it gets
    settle_s: float  # back to back before a sustained figure of a big kernel is taken
    sustain_s: float  # of samples where the power limit holds the clock down: the limit is regulated in swings of 1 s
    block: int  # samples between two looks at the stopping rule
    least_samples: int  # per pass, however slow the case is
    precise_from: int  # samples from which the interval of the median is believed
    most_samples: int  # per pass
    half_width: float  # of the interval of the median, relative
    host_samples: int  # per pass
    soak_s: float
    run_limit_s: float  # for the whole run, set-up and compiled cases not counted

    @property
    def pass_budget_s(self) -> float:
        """The share of one pass in the budget of a case, e.g. 0.267 s."""
        return self.budget_s / self.passes


PATIENCE: dict[Effort, Patience] = {
    Effort.QUICK: Patience(
        passes=3, sustained_passes=1, budget_s=0.25, warm_up_s=0.03, warm_up_limit_s=0.15, settle_s=0.3,
        sustain_s=0.4, block=3, least_samples=3, precise_from=6, most_samples=30, half_width=0.01, host_samples=5,
        soak_s=3.0, run_limit_s=45.0,
    ),
    Effort.STANDARD: Patience(
        passes=3, sustained_passes=3, budget_s=0.8, warm_up_s=0.05, warm_up_limit_s=0.3, settle_s=0.5,
        sustain_s=1.0, block=5,
        least_samples=5, precise_from=11, most_samples=67, half_width=0.005, host_samples=10,
        soak_s=5.0, run_limit_s=180.0,
    ),
    Effort.RIGOROUS: Patience(
        passes=5, sustained_passes=5, budget_s=2.0, warm_up_s=0.05, warm_up_limit_s=0.3, settle_s=1.0,
        sustain_s=2.0, block=5,
        least_samples=6, precise_from=11, most_samples=100, half_width=0.005, host_samples=10,
        soak_s=30.0, run_limit_s=600.0,
    ),
}  # fmt: skip
