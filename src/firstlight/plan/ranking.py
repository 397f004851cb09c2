"""The one rule by which unlike options are put in order; docs/options.md explains it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from firstlight.facts.known import Fact, Known
from firstlight.plan.option import Kind, Option, Proof, Reversible, Risk

RULE = (
    "Better proof first (proved here, documented, reported, guessed); then what leaves least of the wants out; then "
    "fewer minutes, less to download, less money, easier to take back, less risk, no root. What is not known comes "
    "after what is known. Of torch releases that are equal in proof and in what they leave out the newer is first."
)
_PROOFS, _KINDS, _RISKS, _BACK = tuple(Proof), tuple(Kind), tuple(Risk), tuple(Reversible)


def ranked(options: Iterable[Option]) -> tuple[Option, ...]:
    """The feasible options, best first; equal in all that counts: by kind, then the newer, then by name."""
    found = sorted((each for each in options if each.feasible), key=order)
    for group in {_release_group(each) for each in found if each.kind is Kind.WHEEL}:
        places = [
            number for number, each in enumerate(found) if each.kind is Kind.WHEEL and _release_group(each) == group
        ]
        newest_first = sorted((found[number] for number in places), key=_release, reverse=True)
        for number, option in zip(places, newest_first, strict=True):
            found[number] = option
    return tuple(found)


def rejected(options: Iterable[Option]) -> tuple[Option, ...]:
    """The options that cannot work, in the order of their kinds."""
    return tuple(sorted((each for each in options if not each.feasible), key=_by_kind))


def order(option: Option) -> tuple[object, ...]:
    """What an option is sorted by: the parts of RULE in their order."""
    return (
        _PROOFS.index(option.proof),
        len(option.leaves_out),
        _known_first(option.cost.minutes),
        _known_first(option.cost.download_bytes),
        _known_first(option.cost.money),
        _BACK.index(option.reversible),
        _RISKS.index(option.risk),
        option.needs_root,
        *_by_kind(option),
    )


def _release_group(option: Option) -> tuple[Proof, tuple[str, ...]]:
    """Wheels of one group differ in their release: whoever bounds torch with <=2.9.1 means 2.9.1, not the smallest."""
    return option.proof, option.leaves_out


def _release(option: Option) -> tuple[int, ...]:
    """(2, 9, 1) of another-wheel:torch-2.9.1+cu128; () of other names."""
    match = re.search(r":torch-(\d{1,9}(?:\.\d{1,9})*)", option.id)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _by_kind(option: Option) -> tuple[object, ...]:
    """The kind, then the newer of two versions: torch-2.14.1+cu126 before torch-2.13.0+cu126."""
    newer_first = tuple(-int(number) for number in re.findall(r"\d{1,9}", option.id))
    return _KINDS.index(option.kind), newer_first, option.id


def _known_first(amount: Fact[int] | Fact[float]) -> tuple[bool, float]:
    return (False, float(amount.value)) if isinstance(amount, Known) else (True, 0.0)
