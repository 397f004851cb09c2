"""Tiers from a TOML file: read, checked and held against a profile. A condition is a comparison, never code."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.opening import open_given
from firstlight.profile.metrics import METRICS, metric_named, today_of
from firstlight.profile.result import Changed, Condition, Met, Pace, TierResult
from firstlight.toml import parse_toml

SHIPPED = "shipped"  # in place of a path
_FILE = Path(__file__).with_name("tiers.toml")
_LARGEST = 1 << 18
_WORDS = ("ran", "correct", "report_kept")
_OF_OURS = ("excess_traffic", "limit_pct")
_COMPARED = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*(>=|<=|==|>|<)\s*([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*%?")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_KINDS = {Pace.TENSOR: "require_tensor", Pace.VECTOR: "require_vector", Pace.MEMORY: "require_memory"}
_TIER_KEYS = ("name", "title", "require", *_KINDS.values(), "hint")


@dataclass(frozen=True, slots=True)
class TierRule:
    """One condition: tensor_pct >= 65, or the word correct (sign and bound then empty)."""

    key: str
    sign: str = ""
    bound: float = 0.0

    @property
    def text(self) -> str:
        return f"{self.key} {self.sign} {self.bound:g}" if self.sign else self.key


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier; `by_kind` holds the conditions for one kind of case."""

    name: str
    title: str
    require: tuple[TierRule, ...]
    by_kind: tuple[tuple[Pace, tuple[TierRule, ...]], ...]
    hint: tuple[TierRule, ...]


@dataclass(frozen=True, slots=True)
class Tiers:
    """A file of tiers, lowest first; `notes` say which names of reports were taken for which metric."""

    path: str
    title: str
    tiers: tuple[Tier, ...]
    changed: tuple[Changed, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """What conditions are held against: figures and facts by name, None with a reason where not known."""

    figures: Mapping[str, float | None]
    facts: Mapping[str, bool | None]
    why_not: Mapping[str, str]


def read_tiers(path: str) -> Tiers:
    """The tiers of a file, or the shipped ones; BadInput names the tier and the condition that cannot be used."""
    document = _document(path)
    if not isinstance(document.get("tier"), list) or not document["tier"]:
        raise BadInput(f"--tiers {path}: no [[tier]] in it; accepted: the form of `firstlight profile --show-tiers`.")
    if unknown := sorted(set(document) - {"title", "tier", "changed"}):
        raise BadInput(f"--tiers {path}: {unknown[0]!a} is not known; accepted: title, [[tier]], [[changed]].")
    notes: list[str] = []
    tiers = tuple(_tier(path, row, notes) for row in document["tier"])
    names = [tier.name for tier in tiers]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise BadInput(f"--tiers {path}: tier {twice!a} is there twice; name each once, lowest first.")
    changed = tuple(_changed(path, row) for row in document.get("changed", []))
    title = document.get("title", "")
    return Tiers(path, title if isinstance(title, str) else "", tiers, changed, tuple(dict.fromkeys(notes)))


def shipped_text() -> str:
    """The shipped file, to be copied and changed."""
    return _FILE.read_text(encoding="utf-8")


def judge(tiers: Tiers, kind: Pace, seen: Observed) -> tuple[TierResult, ...]:
    """Every tier with its conditions; one that is not known makes the tier not known unless another fails."""
    return tuple(_judged(tier, kind, seen) for tier in tiers.tiers)


def _judged(tier: Tier, kind: Pace, seen: Observed) -> TierResult:
    special = dict(tier.by_kind)
    conditions = [_held(rule, seen) for rule in (*tier.require, *special.get(kind, ()))]
    if kind is Pace.UNKNOWN and any(special.values()):
        conditions.append(
            Condition("conditions by kind", Met.NOT_KNOWN, "which unit sets the pace is not known here; see --bound")
        )
    states = [condition.met for condition in conditions]
    met = Met.NO if Met.NO in states else Met.NOT_KNOWN if Met.NOT_KNOWN in states else Met.YES
    return TierResult(tier.name, tier.title, met, tuple(conditions), tuple(_held(rule, seen) for rule in tier.hint))


def _held(rule: TierRule, seen: Observed) -> Condition:
    if not rule.sign:
        fact = seen.facts.get(rule.key)
        met = Met.NOT_KNOWN if fact is None else Met.YES if fact else Met.NO
        return Condition(rule.text, met, seen.why_not.get(rule.key, "") or ("yes" if fact else "no"))
    value = seen.figures.get(rule.key)
    if value is None or not math.isfinite(value):
        return Condition(rule.text, Met.NOT_KNOWN, seen.why_not.get(rule.key, "") or "not measured")
    holds = _OPERATORS[rule.sign](value, rule.bound)
    return Condition(rule.text, Met.YES if holds else Met.NO, shown(rule.key, value))


def shown(key: str, value: float) -> str:
    """A figure with its unit: '93.1 %', '1.021'."""
    metric = metric_named(key)
    return shown_number(value, "%" if key == "limit_pct" else metric.unit if metric is not None else "")


def shown_number(value: float, unit: str) -> str:
    """'93.1 %'; a share too small to matter is 'below 0.01 %'."""
    if unit == "%" and 0 < value < 0.01:
        return "below 0.01 %"
    return f"{value:.4g}" + (f" {unit}" if unit else "")


def _document(path: str) -> dict[str, Any]:
    if path == SHIPPED:
        data = _FILE.read_bytes()
    else:
        try:
            with open_given(path) as file:
                data = file.read(_LARGEST + 1)
        except OSError as error:
            raise BadInput(
                f"--tiers {path}: {(error.strerror or 'cannot be read').lower()}; accepted: a TOML file, see "
                "`firstlight profile --show-tiers`."
            ) from None
    if len(data) > _LARGEST:
        raise BadInput(f"--tiers {path}: larger than {_LARGEST >> 10} KiB; accepted: a list of tiers in TOML.")
    try:
        document: dict[str, Any] = parse_toml(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, or TOMLDecodeError, which says line and column
        raise BadInput(f"--tiers {path}: {' '.join(str(error).split())[:200]}. Correct the line.") from None
    return document


def _tier(path: str, row: Any, notes: list[str]) -> Tier:
    name = row.get("name") if isinstance(row, dict) else None
    if not isinstance(name, str) or not name or not name.isprintable():
        raise BadInput(f'--tiers {path}: a [[tier]] has no name; accepted: name = "T1".')
    if unknown := sorted(set(row) - set(_TIER_KEYS)):
        raise BadInput(f"--tiers {path}: tier {name}: {unknown[0]!a} is not known; accepted: {', '.join(_TIER_KEYS)}.")
    read = {key: _rules(path, name, row.get(key, []), notes) for key in _TIER_KEYS[2:]}
    by_kind = tuple((kind, read[key]) for kind, key in _KINDS.items() if read[key])
    title = row.get("title", "")
    return Tier(name, title if isinstance(title, str) else "", read["require"], by_kind, read["hint"])


def _rules(path: str, tier: str, texts: Any, notes: list[str]) -> tuple[TierRule, ...]:
    if not isinstance(texts, list):
        raise BadInput(f'--tiers {path}: tier {tier}: {texts!a} is not a list; accepted: ["tensor_pct >= 65"].')
    return tuple(_rule(f"--tiers {path}: tier {tier}: ", text, notes) for text in texts)


def _rule(where: str, text: Any, notes: list[str]) -> TierRule:
    if isinstance(text, str) and text.strip() in _WORDS:
        return TierRule(text.strip())
    match = _COMPARED.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise BadInput(
            f"{where}{text!a} is not a condition; accepted: NAME, one of >= > <= < ==, and a number, such as "
            f"'tensor_pct >= 65'; or one of the words {', '.join(_WORDS)}."
        )
    key, sign, bound = match.groups()
    if metric_named(key) is None and key not in _OF_OURS:
        old = today_of(key)
        if old is None:
            accepted = ", ".join((*(metric.key for metric in METRICS), *_OF_OURS))
            raise BadInput(f"{where}{key!a} is not a metric; accepted: {accepted}.")
        metric = metric_named(old.key)
        assert metric is not None, old.key
        if all(way.names != (key,) for way in metric.ways) and key != metric.ways[0].names[0]:
            notes.append(f"{key} was taken as {old.key}: {old.why}")
        key = old.key
    return TierRule(key, sign, float(bound))


def _changed(path: str, row: Any) -> Changed:
    keys = ("was", "now", "why", "source")
    if not isinstance(row, dict) or any(not isinstance(row.get(key), str) for key in keys):
        raise BadInput(f"--tiers {path}: a [[changed]] lacks one of {', '.join(keys)} as text.")
    return Changed(*(row[key] for key in keys))
