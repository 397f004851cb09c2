"""The one rule by which unlike options are put in order; docs/options.md explains it."""

from __future__ import annotations

from firstlight.facts.known import Fact, Known
from firstlight.plan.option import Keeps, Kind, Option
from firstlight.ways.way import Proof, Reversible, Risk

RULE = (
    "What leaves the fewest findings that block comes first, then what leaves out the fewest wants; then what keeps "
    "most of what you have (the torch release in another CUDA build, the driver, the minor release, a newer torch), "
    "unless its proof is only a guess or only you can do it; then what brings the fewest new findings; then better "
    "proof (proved here, documented, reported, guessed), what every program has before what login shells alone have, "
    "fewer minutes, less to download, less money, easier to take back, less risk, no root. What is not known comes "
    "after what is known."
)
RULE_IN_SHORT = "fewest findings left, most kept, best proof, least time; docs/options.md has the whole rule"
_PROOFS, _KINDS, _RISKS, _BACK, _KEEPS = tuple(Proof), tuple(Kind), tuple(Risk), tuple(Reversible), tuple(Keeps)


def order(option: Option) -> tuple[object, ...]:
    """What an option is sorted by: the parts of RULE in their order."""
    return (
        len(option.stays),
        len(option.leaves_out) if option.wanted else 0,
        option.proof is Proof.GUESSED,
        option.by_hand,
        _KEEPS.index(option.keeps),
        len(option.brings),
        _PROOFS.index(option.proof),
        bool(option.only_for),
        tuple(-part for part in option.newest) if option.wanted else (),
        _known_first(option.cost.minutes),
        _known_first(option.cost.download_bytes),
        _known_first(option.cost.money),
        _BACK.index(option.reversible),
        _RISKS.index(option.risk),
        option.needs_root,
        *by_kind(option),
    )


def by_kind(option: Option) -> tuple[object, ...]:
    """The kind, then the newer of two torch releases, then the name."""
    return _KINDS.index(option.kind), tuple(-part for part in option.newest), option.id


def _known_first(amount: Fact[int] | Fact[float]) -> tuple[bool, float]:
    return (False, float(amount.value)) if isinstance(amount, Known) else (True, 0.0)
