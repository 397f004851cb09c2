"""What several things that one rule saw are answered by, together."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Rule, Seen
from firstlight.ways.kinds import InstallWheels, SetVariables, Unwire
from firstlight.ways.way import Chain, Proof, Way

_VENDORS = (
    "docs.nvidia.com",
    "docs.pytorch.org",
    "developer.nvidia.com",
    "docs.docker.com",
    "docs.python.org",
    "ld.so",
)


def combined(rule: Rule, seen: tuple[Seen, ...]) -> tuple[Chain, ...]:
    """The answers of a finding: the first takes the first answer of each thing seen, the second the second, and so on.

    What has fewer answers than the others keeps its last one. What cannot work here comes last.
    """
    working = [chains for each in seen if (chains := [one for one in each.answers if not one.why_not])]
    count = max((len(chains) for chains in working), default=0)
    together = (_joined(rule, [chains[min(number, len(chains) - 1)] for chains in working]) for number in range(count))
    refused = (one for each in seen for one in each.answers if one.why_not)
    return (*dict.fromkeys(together), *dict.fromkeys(refused))


def _joined(rule: Rule, chains: list[Chain]) -> Chain:
    ways = tuple(dict.fromkeys(way for one in chains for way in one.ways))
    known = [one if one.proof is not None else _by_source(rule, one) for one in chains]
    weakest = max(known, key=lambda one: tuple(Proof).index(one.proof or Proof.GUESSED))
    titles = {one.title for one in chains}
    title = titles.pop() if len(titles) == 1 else ""
    return Chain(merged(ways), weakest.proof, weakest.proof_by, title)


def _by_source(rule: Rule, one: Chain) -> Chain:
    """Documented where the vendor's page says so; reported where a thread does."""
    proof = Proof.DOCUMENTED if rule.source.startswith(_VENDORS) else Proof.REPORTED
    return replace(one, proof=proof, proof_by=rule.source)


def merged(ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """Packages of one index and manner go together, as pip sees all of them at once then; so do folders of one path.

    Variables of one scope go together where the last are set: what they lead to has to be there.
    """
    found: list[Way] = []
    for way in ways:
        same = next((index for index, other in enumerate(found) if _go_together(other, way)), None)
        if same is None:
            found.append(way)
        elif isinstance(way, SetVariables):
            found.append(_both(found.pop(same), way))
        else:
            found[same] = _both(found[same], way)
    return tuple(found)


def _go_together(first: Way, second: Way) -> bool:
    if isinstance(first, InstallWheels) and isinstance(second, InstallWheels):
        return (first.index, first.manner) == (second.index, second.manner)
    if isinstance(first, Unwire) and isinstance(second, Unwire):
        return (first.by, first.conf) == (second.by, second.conf)
    if isinstance(first, SetVariables) and isinstance(second, SetVariables):
        return first.scope is second.scope
    return False


def _both(first: Way, second: Way) -> Way:
    if isinstance(first, InstallWheels) and isinstance(second, InstallWheels):
        return replace(first, packages=tuple(dict.fromkeys((*first.packages, *second.packages))))
    if isinstance(first, SetVariables) and isinstance(second, SetVariables):
        values = {each.name: each for each in (*first.variables, *second.variables)}
        return replace(first, variables=tuple(values.values()))
    assert isinstance(first, Unwire), first
    assert isinstance(second, Unwire), second
    return replace(first, folders=tuple(dict.fromkeys((*first.folders, *second.folders))))
