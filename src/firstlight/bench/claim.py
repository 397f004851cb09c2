"""Can a claimed number be true: recompute it from its own time and shape, and hold it against the silicon."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from firstlight.bench.claim_twice import LinkPeak, both_directions, sparse_figure
from firstlight.bench.formats import most_of_any_format, why_no_units
from firstlight.bench.limits import ALGORITHMIC, Achieved, Clocks, Timed, limit_of
from firstlight.bench.operator_counts import Work
from firstlight.bench.peaks import Peaks
from firstlight.bench.results import LimitResult
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

CLOSE = 0.005  # two numbers are the same when they agree this well beyond their rounding
SATURATED_PCT = 80.0  # links and memories in good order reach 80 to 90 % of their figure
# No GPU has more L2 than this. What is beyond it must move, and from four times that on all of it does.
MOST_L2 = 128 * 2**20
SURELY_IN_MEMORY = 4 * MOST_L2
CLOSE_TO_REASON = 0.1  # a reason for "twice" is given for 1.8 to 2.2 times, however few digits the time has
GIB = 2**30 / 1e9
NOT_JUDGED = ("no-peak", "no-link")  # the remarks that leave a claim open


class RemarkKind(enum.Enum):
    """What a remark on a claim means."""

    WRONG = "wrong"
    EXPLAINED = "explained"  # looks wrong, is not
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing found about a claim; factor 2.0 says by how much it is off, None where there is no such number."""

    kind: RemarkKind
    code: str
    text: str
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written, with half a unit of its last digit: 12.27 may stand for 12.265 to 12.275."""

    text: str
    value: float
    half: float


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody says: a case, the time and the rates as written, and the GPU or link it was on."""

    case: str
    shape: str
    dtype: str
    work: Work
    held_against: str
    flags: tuple[str, ...]
    peaks: Peaks
    ms: Number | None = None
    tflops: Number | None = None
    gbps: Number | None = None
    link: str = ""
    link_peak: LinkPeak | None = None
    saturates: str = ""  # 'yes' when the claim also says that the limit is reached

    @property
    def link_gbps(self) -> float | None:
        """GB/s each way of the link, where one was named."""
        return None if self.link_peak is None else self.link_peak.gbps


@dataclass(frozen=True, slots=True)
class ClaimJudgement:
    """The answer: can_be_true, the remarks, and what the time (or the rate, without one) means."""

    can_be_true: bool | None  # None: nothing is wrong with it, but a limit is not known and was not judged
    remarks: tuple[Remark, ...]
    time_s: float
    tflops: float
    gbps: float
    limit: LimitResult


def judge_claim(claim: Claim) -> ClaimJudgement:
    """Everything that is wrong or only looks wrong about a claim."""
    time_s = _time(claim)
    timed = Timed(claim.work, claim.held_against, time_s, flags=claim.flags, link_gbps=claim.link_gbps)
    limit = limit_of(timed, claim.peaks, clocks=Clocks(), achieved=Achieved())
    remarks = (
        *_tflops_against_time(claim),
        *_gbps_against_time(claim),
        *_compute_ceiling(claim, time_s),
        *_memory_ceiling(claim, time_s),
        *_link_ceiling(claim, time_s),
        *_saturation(claim, limit),
        *_rounding(claim),
    )
    return ClaimJudgement(
        can_be_true=_can_be_true(remarks),
        remarks=remarks,
        time_s=time_s,
        tflops=claim.work.flops / time_s / 1e12,
        gbps=claim.work.bytes / time_s / 1e9,
        limit=limit,
    )


def _can_be_true(remarks: tuple[Remark, ...]) -> bool | None:
    if any(remark.kind is RemarkKind.WRONG for remark in remarks):
        return False
    return None if any(remark.code in NOT_JUDGED for remark in remarks) else True


def number(text: str, what: str) -> Number:
    """A positive number as written, thousands commas allowed: 1,075 is 1075 give or take 0.5."""
    plain = text.strip().replace(",", "").replace("_", "")
    try:
        value = Decimal(plain)
    except InvalidOperation:
        value = Decimal(0)
    if not value.is_finite() or not Decimal("1e-12") < value < Decimal("1e12"):
        raise BadInput(f"{what} {text!a}: accepted: a number above 1e-12 and below 1e12, e.g. 12.27")
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), value
    return Number(plain, float(value), 0.5 * 10.0**exponent)


def _time(claim: Claim) -> float:
    if claim.ms is not None:
        return claim.ms.value / 1e3
    if claim.tflops is not None and claim.work.flops:
        return claim.work.flops / claim.tflops.value / 1e12
    if claim.gbps is not None and claim.work.bytes:
        return claim.work.bytes / claim.gbps.value / 1e9
    raise BadInput(f"{claim.case} does no arithmetic: give --ms or --gbps")


def _fits(said: Number, amount: float, ms: Number, unit: float) -> bool:
    """Whether amount / time gives the number that was said, within the rounding of both."""
    low = amount / ((ms.value + ms.half) / 1e3) / unit
    high = amount / ((ms.value - ms.half) / 1e3) / unit if ms.value > ms.half else float("inf")
    return low * (1 - CLOSE) <= said.value + said.half and said.value - said.half <= high * (1 + CLOSE)


def _tflops_against_time(claim: Claim) -> Iterator[Remark]:
    if claim.ms is None or claim.tflops is None or not claim.work.flops:
        return
    said, ms, work = claim.tflops, claim.ms, claim.work
    if _fits(said, work.flops, ms, 1e12):
        return
    true = work.flops / ms.value / 1e9
    factor = said.value / true
    yield Remark(
        RemarkKind.WRONG,
        "count",
        f"{said.text} TFLOPS is {_times(factor)} what the time gives: {_gflop(work.flops)} in {ms.text} ms are "
        f"{true:.1f} TFLOPS.{_why_count(claim, said, ms)}",
        factor,
    )


def _why_count(claim: Claim, said: Number, ms: Number) -> str:
    work = claim.work
    if work.dense_flops != work.flops and _fits(said, work.dense_flops, ms, 1e12):
        return f" {said.text} comes out when the mask is ignored ({_gflop(work.dense_flops)})."
    reasons = (
        (0.5, "half of it comes out when a multiply-add is counted as one operation; it is two."),
        (2.0, "twice of it comes out when the work is counted twice, or when the sparse rate is meant."),
        (3.0, "three times of it comes out when a backward pass is counted that the time does not hold."),
        (1e3, "the time is in microseconds; it is read as milliseconds."),
        (1e-3, "the time is in seconds; it is read as milliseconds."),
    )
    factor = said.value * ms.value * 1e9 / work.flops
    fitting = (
        f" Perhaps {text}"
        for times, text in reasons
        if abs(factor / times - 1) <= CLOSE_TO_REASON and _fits(said, work.flops * times, ms, 1e12)
    )
    return next(fitting, "")


def _gbps_against_time(claim: Claim) -> Iterator[Remark]:
    if claim.ms is None or claim.gbps is None:
        return
    said, ms, size = claim.gbps, claim.ms, claim.work.bytes
    if _fits(said, size, ms, 1e9):
        return
    true = size / ms.value / 1e6
    yield Remark(
        RemarkKind.WRONG,
        "bytes",
        f"{said.text} GB/s is {_times(said.value / true)} what the time gives: {size / 1e6:,.1f} MB in {ms.text} ms "
        f"are {true:.2f} GB/s.{_why_bytes(claim, said, ms)}",
        said.value / true,
    )


def _why_bytes(claim: Claim, said: Number, ms: Number) -> str:
    size = claim.work.bytes
    if _fits(said, size, ms, 2**30):
        return f" {said.text} is the figure in GiB/s, labelled GB/s; 1 GiB/s is {GIB:.3f} GB/s."
    for wide, word in ((2**30 / 1e9, "GiB"), (1000 * 2**20 / 1e9, "thousands of MiB")):
        for unit, name in ((1e9, "GB/s"), (float(2**30), "GiB/s")):
            if _fits(said, size * wide, ms, unit):
                rate = size * wide / ms.value / 1e6
                return f" It fits when the size is meant in {word} and the rate in {name}: that is {rate:.2f} GB/s."
    if claim.case == "copy" and _fits(said, size / 2, ms, 1e9):
        return " A copy reads and writes: both count."
    if claim.case == "link" and _fits(said, size * 2, ms, 1e9):
        return " Both directions together are twice one of them."
    return ""


def _compute_ceiling(claim: Claim, time_s: float) -> Iterator[Remark]:
    if claim.held_against in ("bandwidth", "link", "none") or not claim.work.flops:
        return
    peaks, dtype = claim.peaks, claim.held_against
    if why := why_no_units(dtype, peaks):
        yield Remark(RemarkKind.WRONG, "no-units", why)
        return
    highest, spec = peaks.max_tflops(dtype), peaks.spec_tflops(dtype)
    if highest is None:
        yield from _without_peak(claim, time_s)
        return
    for rate in _rates(claim, time_s):
        if rate.least > highest:
            yield _over_ceiling(claim, rate)
        elif spec is not None and rate.least > spec:
            needed = rate.value / highest * (peaks.max_clock_mhz or 0) / 1000
            yield Remark(
                RemarkKind.EXPLAINED,
                "above-datasheet",
                f"{rate.words} is {100 * rate.value / spec:.0f} % of the datasheet ({spec:.4g} TFLOPS at "
                f"{peaks.clock_mhz:.0f} MHz). That is not an error: the card boosts above that clock. It needs "
                f"{needed:.2f} GHz; the highest is {(peaks.max_clock_mhz or 0) / 1000:.2f} GHz.",
                rate.value / spec,
            )


def _without_peak(claim: Claim, time_s: float) -> Iterator[Remark]:
    """A format without a row: wrong above the fastest the GPU has, else open."""
    peaks, dtype = claim.peaks, claim.held_against
    most = most_of_any_format(dtype, peaks)
    over = (
        []
        if most is None or ALGORITHMIC in claim.flags
        else [rate for rate in _rates(claim, time_s) if rate.least > most]
    )
    if most is None or not over:
        yield Remark(RemarkKind.NOTE, "no-peak", f"No {dtype} peak is known for {peaks.name}: the rate is not judged.")
    for rate in over:
        assert most is not None, dtype
        text = f"No {dtype} peak is known for {peaks.name}, but {rate.words} is {100 * rate.value / most:.0f} % of the"
        text += f" fastest it does in any format, {most:,.1f} TFLOPS."
        yield Remark(RemarkKind.WRONG, "above-ceiling", text, rate.value / most)


@dataclass(frozen=True, slots=True)
class _Rate:
    """A rate in TFLOPS, the least it can stand for, and how to speak of it."""

    value: float
    least: float
    words: str


def _rates(claim: Claim, time_s: float) -> Iterator[_Rate]:
    """The rate as claimed; and the one the time means, where it is another."""
    if claim.tflops is not None:
        said = claim.tflops
        yield _Rate(said.value, said.value - said.half, f"{said.text} TFLOPS")
    if claim.tflops is None or not _fits_time(claim):
        slowest = (claim.ms.value + claim.ms.half) / 1e3 if claim.ms is not None else time_s
        rate = claim.work.flops / time_s / 1e12
        words = f"{_gflop(claim.work.flops)} in {time_s * 1e3:.4g} ms, {rate:.4g} TFLOPS,"
        yield _Rate(rate, claim.work.flops / slowest / 1e12, words)


def _fits_time(claim: Claim) -> bool:
    if claim.tflops is None or claim.ms is None:
        return True
    return _fits(claim.tflops, claim.work.flops, claim.ms, 1e12)


def _over_ceiling(claim: Claim, rate: _Rate) -> Remark:
    peaks, dtype = claim.peaks, claim.held_against
    highest, spec = peaks.max_tflops(dtype), peaks.spec_tflops(dtype)
    assert highest is not None, dtype
    factor = rate.value / highest
    text = (
        f"{rate.words} is {100 * factor:.1f} % of what {peaks.name} can do in {dtype} at its highest clock "
        f"({highest:,.1f} TFLOPS at {peaks.max_clock_mhz:.0f} MHz)"
    )
    text += f" and {100 * rate.value / spec:.0f} % of the datasheet ({spec:.4g})." if spec is not None else "."
    if ALGORITHMIC in claim.flags:
        more = " Convolutions are counted direct; Winograd and FFT kernels do less work, so this can be."
        return Remark(RemarkKind.EXPLAINED, "algorithmic", text + more, factor)
    loose = peaks.max_tflops(f"{dtype}_acc16")
    if loose is not None and rate.least <= loose:
        more = f" With products accumulated in 16 bits the ceiling is {loose:.4g}: only then it can be."
        return Remark(RemarkKind.EXPLAINED, "accumulation", text + more, factor)
    tf32 = peaks.max_tflops("tf32") if dtype == "fp32" else None
    if tf32 is not None and rate.least <= tf32:
        text += " It is below the tf32 ceiling: products were probably run in tf32, which is not fp32."
    else:
        text += sparse_figure(rate.value, dtype, peaks)
    return Remark(RemarkKind.WRONG, "above-ceiling", text, factor)


def _memory_ceiling(claim: Claim, time_s: float) -> Iterator[Remark]:
    highest = claim.peaks.max_bandwidth_gbps
    if claim.held_against == "link" or highest is None or not claim.work.bytes:
        return
    slowest = (claim.ms.value + claim.ms.half) / 1e3 if claim.ms is not None else time_s
    rates = [claim.work.bytes / slowest / 1e9]
    if claim.gbps is not None:
        rates.append(claim.gbps.value - claim.gbps.half)
    rate = max(rates)
    if rate <= highest * 1.02:
        return
    text = f"{rate:,.0f} GB/s is {100 * rate / highest:.0f} % of the memory bandwidth ({highest:,.0f} GB/s)."
    size = claim.work.bytes
    if size >= SURELY_IN_MEMORY or rate * (size - MOST_L2) / size > highest * 1.02:
        more = f" The working set, {size / 1e6:,.1f} MB, is too large for any cache."
        yield Remark(RemarkKind.WRONG, "above-bandwidth", text + more, rate / highest)
        return
    part = "it" if size <= MOST_L2 else f"a part of its {size / 1e6:,.1f} MB"
    more = f" It can be only where {part} stays in the L2 cache (128 MiB at most), and then this is no memory rate."
    yield Remark(RemarkKind.EXPLAINED, "cache", text + more, rate / highest)


def _link_ceiling(claim: Claim, time_s: float) -> Iterator[Remark]:
    if claim.held_against != "link":
        return
    if claim.link_peak is None or claim.link_gbps is None:
        yield Remark(RemarkKind.NOTE, "no-link", "Which link was it? Say so with --link, e.g. --link pcie5x16.")
        return
    true = claim.work.bytes / time_s / 1e9
    rates = {round(true, 9)} | ({claim.gbps.value} if claim.gbps is not None else set())
    shares = sorted(100 * rate / claim.link_gbps for rate in rates)
    if shares[-1] > 102:
        yield Remark(
            RemarkKind.WRONG,
            "above-link",
            f"{max(rates):.4g} GB/s is {shares[-1]:.0f} % of {claim.link} ({claim.link_gbps:.1f} GB/s each way)."
            f"{both_directions(max(rates), claim.link_peak)}",
            shares[-1] / 100,
        )
    elif claim.ms is None and claim.gbps is not None:
        low, high = shares[0], 100 * claim.gbps.value * GIB / claim.link_gbps
        yield Remark(
            RemarkKind.NOTE,
            "share",
            f"{claim.gbps.text} GB/s is {low:.0f} % of {claim.link} ({claim.link_gbps:.1f} GB/s each way); "
            f"{high:.0f} % if GiB/s was meant.",
        )


def _saturation(claim: Claim, limit: LimitResult) -> Iterator[Remark]:
    if not claim.saturates or limit.pct_spec is None:
        return
    shares = [limit.pct_spec]
    if claim.gbps is not None and claim.held_against in ("link", "bandwidth"):
        most = claim.link_gbps if claim.held_against == "link" else claim.peaks.bandwidth_gbps
        shares.append(100 * claim.gbps.value / (most or float("inf")))
        if claim.ms is None:
            shares.append(shares[-1] * GIB)  # the reader cannot know whether GiB/s was meant
    if max(shares) < SATURATED_PCT:
        span = " to ".join(f"{share:.0f}" for share in sorted({round(min(shares)), round(max(shares))}))
        what = claim.link or f"the {limit.bound.value} limit of {claim.peaks.name}"
        yield Remark(
            RemarkKind.WRONG,
            "not-saturated",
            f"Nothing is saturated: this is {span} % of {what}; 80 to 90 % is what good hardware reaches.",
            max(shares) / 100,
        )


def _rounding(claim: Claim) -> Iterator[Remark]:
    if claim.ms is not None and claim.ms.half / claim.ms.value > 0.02:
        share = 100 * claim.ms.half / claim.ms.value
        text = f"{claim.ms.text} ms has so few digits that every rate is good to {share:.0f} % only."
        yield Remark(RemarkKind.NOTE, "digits", text)


def _times(factor: float) -> str:
    return f"{factor:.3g} times" if factor >= 10 or factor < 0.1 else f"{factor:.2f} times"


def _gflop(flops: int) -> str:
    return f"{flops / 1e9:,.1f} GFLOP"
