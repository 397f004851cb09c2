"""A profile as text: the answer first, then traffic, tiers and every figure with the counter behind it."""

from __future__ import annotations

from firstlight.numerals import counted
from firstlight.profile.metrics import METRICS, OLD_NAMES, Formula, metric_named
from firstlight.profile.result import Condition, Met, Pace, Profile, Source, TierResult, Value
from firstlight.profile.tiers import shown_number
from firstlight.report.layout import labelled
from firstlight.visible import one_line

_LABEL = 13
_KERNELS = 6
_NAME = 96
_BUSY_PCT = 60.0
_WORDS = {Met.YES: "met", Met.NO: "NOT MET", Met.NOT_KNOWN: "not known"}
_UNITS = {Pace.TENSOR: "tensor cores", Pace.VECTOR: "SMs", Pace.MEMORY: "memory", Pace.UNKNOWN: "not known"}


def profile_text(profile: Profile) -> str:
    """The profile for a person to read."""
    out = profile.work.what + (f" on {profile.device}" if profile.device else "") + "\n\n"
    out += labelled("verdict", verdict_lines(profile), label_width=_LABEL)
    if profile.trouble is not None:
        out += labelled("no counters", (profile.trouble.says,), label_width=_LABEL)
        out += labelled("do", profile.trouble.do, label_width=_LABEL)
    out += labelled("pace", _pace(profile), label_width=_LABEL)
    out += labelled("traffic", _traffic(profile), label_width=_LABEL)
    out += labelled("limit", _limit(profile), label_width=_LABEL)
    out += labelled("note", profile.notes, label_width=_LABEL)
    out += labelled("report", _report(profile), label_width=_LABEL)
    if profile.source is Source.NCU:
        named = "field report 003's, corrected" if profile.tiers_file == "shipped" else profile.tiers_file
        out += f"\ntiers ({named}; `firstlight profile --show-tiers` says what and why)\n"
        out += "".join(_tier(tier) for tier in profile.tiers)
    if profile.values:
        out += "\ncounted\n" + "".join(_value(each) for each in profile.values)
    return out + _kernels(profile)


def verdict_lines(profile: Profile) -> list[str]:
    """One or two sentences: the tier that is reached, and what keeps it from the next."""
    if profile.source is Source.NOBODY:
        return ["nothing could be seen: there are neither counters nor times"]
    lines = []
    if profile.work.correct is False:
        lines.append(f"the result is wrong ({profile.work.correct_from}); its speed means nothing")
    if profile.source is Source.TORCH:
        reached = f"{profile.reached} is reached" if profile.reached else "no tier is reached for certain"
        return [*lines, f"names and times alone, by the torch profiler; {reached}, those above need counters"]
    names = [tier.name for tier in profile.tiers]
    best = profile.not_refuted
    upto = names.index(best) + 1 if best else 0
    open_ones = [each for tier in profile.tiers[:upto] for each in tier.conditions if each.met is Met.NOT_KNOWN]
    if not best:
        lines.append("no tier is reached")
    else:
        highest = ", the highest tier" if best == names[-1] else ""
        lines.append(f"{best}{highest}" + (", as far as can be known" if open_ones else ""))
    if open_ones:
        lines.append("not known: " + "; ".join(f"{each.text} ({each.saw})" for each in open_ones))
    if upto < len(names):
        short = [each for each in profile.tiers[upto].conditions if each.met is not Met.YES]
        lines.append(f"{names[upto]} lacks: " + "; ".join(_condition(each) for each in short))
    return lines


def _condition(condition: Condition) -> str:
    if condition.met is Met.NOT_KNOWN:
        return f"{condition.text} (not known: {condition.saw})"
    return f"{condition.text} (saw {condition.saw})"


def _pace(profile: Profile) -> list[str]:
    """Which unit should set the pace, and whether it did."""
    kind = profile.work.kind
    if profile.source is not Source.NCU:
        return []
    lines = [f"{_UNITS[kind]}: {profile.work.kind_from}"] if profile.work.kind_from else []
    found = {
        "tensor cores": profile.value("tensor_pct"),
        "SMs": profile.value("sm_pct"),
        "L2": profile.value("l2_pct"),
        "memory": profile.value("dram_pct"),
    }
    known = {name: value for name, value in found.items() if value is not None}
    if not known:
        return lines
    lines.append("busy: " + ", ".join(f"{name} {value:.3g} %" for name, value in known.items()))
    if max(known.values()) < _BUSY_PCT:
        lines.append(
            f"nothing is busy for {_BUSY_PCT:g} % of the time: too little work for this GPU, or warps that wait "
            "for each other"
        )
    return lines


def _traffic(profile: Profile) -> list[str]:
    moved, least, excess = profile.value("dram_bytes"), profile.work.least_bytes, profile.excess_traffic
    if moved is None:
        return []
    if excess is None or least is None:
        return [f"{_size(moved)} moved to and from memory; --bytes N compares that with the least"]
    return [f"{_size(moved)} moved to and from memory, {_size(least)} at least: {excess:.3g} times the least"]


def _limit(profile: Profile) -> list[str]:
    limit = profile.limit
    if not profile.work.is_case:
        return []
    if limit.pct is None or limit.time_s is None:
        timed = "" if limit.time_s is None else f"{_time(limit.time_s)}; "
        return [f"{timed}no share of the limit: {limit.seen_in}"]
    return [
        f"tier {limit.tier}: {_time(limit.time_s)} is {limit.pct:.1f} % of the limit at its clock ({limit.seen_in})"
    ]


def _report(profile: Profile) -> list[str]:
    if not profile.report:
        return []
    return [f"{profile.report}, by {profile.tool}; open it with ncu-ui, read it again with --from"]


def _tier(tier: TierResult) -> str:
    out = labelled(f"  {tier.name:<4}{_WORDS[tier.met]}", (tier.title,), label_width=18)
    for each in tier.conditions:
        out += labelled(f"        {_WORDS[each.met]}", (f"{each.text}; {each.saw}",), label_width=20)
    for each in tier.hints:
        out += labelled(f"        {each.met.value}", (f"hint: {each.text}; {each.saw}",), label_width=20)
    return out


def _value(each: Value) -> str:
    metric = metric_named(each.key)
    assert metric is not None, each.key
    told = "-" if each.value is None else _amount(each.value, metric.unit)
    behind = each.why_not if each.value is None else " and ".join(each.names)
    return f"  {metric.what:<34}{told:>12}  {each.key:<27}{behind}\n"


def _kernels(profile: Profile) -> str:
    if not profile.kernels:
        return ""
    by_time = sorted(profile.kernels, key=lambda kernel: -(kernel.time_s or 0.0))
    total = sum(kernel.time_s or 0.0 for kernel in by_time)
    unit = "kernel" if any(kernel.on_gpu for kernel in by_time) else "operator"
    out = f"\n{counted(len(by_time), unit)}, longest first; times under a profiler are not a benchmark\n"
    for kernel in by_time[:_KERNELS]:
        share = "" if not total else f"{100 * (kernel.time_s or 0.0) / total:5.1f} %"
        time = "-" if kernel.time_s is None else _time(kernel.time_s)
        name = kernel.name if len(kernel.name) <= _NAME else kernel.name[: _NAME - 3] + "..."
        out += f"  {time:>10}  {share:>7}  {one_line(name)}\n"
    return out + (f"  and {len(by_time) - _KERNELS} more (--json has all)\n" if len(by_time) > _KERNELS else "")


def list_text() -> str:
    """The metrics: our name, what it is, the counters behind it; then the names of reports and what they are today."""
    out = "metrics (each may stand in a tier)\n"
    for metric in METRICS:
        out += f"  {metric.key:<27}{metric.what}" + (f", {metric.unit}" if metric.unit else "") + "\n"
        for way in metric.ways:
            how = "" if way.how is Formula.ONE else f" ({way.how.value})"
            out += "".join(f"      {name}\n" for name in way.names[:-1]) + f"      {way.names[-1]}{how}\n"
    out += "  excess_traffic             bytes moved over the least that must move\n"
    out += "  limit_pct                  share of the limit by the stopwatch of bench, %\n"
    out += "\nnames in reports -> here\n"
    for old in OLD_NAMES:
        out += f"  {old.name:<47} {old.key}: {old.why}\n"
    return out


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return _size(value)
    if unit == "s":
        return _time(value)
    if unit == "Hz":
        return f"{value / 1e6:.0f} MHz"
    return shown_number(value, unit)


def _size(count: float) -> str:
    """Decimal, as bandwidths are: 1.074 GB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.0f} B"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"
