"""Taking away what is in the way: a stale compat folder, a poisoned path, a mask, a preloaded library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_choice import compat_in_use, wired_by
from firstlight.diagnosis.finding import Finding
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.plan.costs import no_cost
from firstlight.plan.option import Kind, Option, Proof, Reversible, Risk
from firstlight.plan.rights import NO_ROOT, may_become_root
from firstlight.plan.situation import ANSWERS, Situation
from firstlight.plan.told_effects import least, reversible_by, takes_root
from firstlight.plan.with_set import with_set

_STALE_PACKAGE = re.compile(r"(?:sudo )?apt-get remove cuda-compat-")  # beside the removal; its step is optional
_LOADER = "ld.so(8): the order in which the loader looks"


@dataclass(frozen=True, slots=True)
class _Removal:
    """What is done and what says that it helps; `reported`: only threads do."""

    title: str
    said_by: str
    reported: bool = False


_FROM_PATH = "remove-from-library-path"
_REMOVALS = {
    _FROM_PATH: _Removal("take the folders that shadow torch's libraries out of LD_LIBRARY_PATH", _LOADER),
    "remove-compat": _Removal("take the compat library out of the loader's path", _LOADER),
    "remove-preload": _Removal("take the library that is preloaded out of LD_PRELOAD", _LOADER),
    "remove-linux-driver": _Removal(
        "remove the Linux driver packages from WSL", "docs.nvidia.com/cuda/wsl-user-guide: no Linux driver in WSL"
    ),
    "remove-empty-library": _Removal("remove the damaged libcuda file", "", reported=True),
    "remove-duplicate": _Removal("remove the second copy", "", reported=True),
    "unset-mask": _Removal(
        "unset the variable that hides the GPUs",
        "docs.nvidia.com/cuda/cuda-programming-guide: CUDA_VISIBLE_DEVICES",
    ),
    "unset-python-path": _Removal("unset PYTHONPATH", "docs.python.org: the order of sys.path"),
    "leave-folder": _Removal("start Python from another folder", "docs.python.org: the order of sys.path"),
}


def removals(situation: Situation) -> Iterator[Option]:
    """Taking away what the primary finding names; it may leave a driver that is too old."""
    primary = situation.primary
    if primary is None or not situation.answered_by(Kind.REMOVE):
        return
    removal = _removal(primary)
    blank = situation.blank(Kind.REMOVE, primary.code)
    needs_root = takes_root(tuple(line for line in primary.do if not _STALE_PACKAGE.match(line)))
    option = replace(
        blank,
        title=removal_in_words(situation),
        proof=Proof.REPORTED if removal.reported else Proof.DOCUMENTED,
        proof_by=removal.said_by or primary.source,
        leaves_out=(*blank.leaves_out, *_not_enough(situation)),
        cost=no_cost(situation.request),
        needs_root=needs_root,
        reversible=least(blank.reversible, _reversible(situation.facts, primary)),
        risk=Risk.MEDIUM if needs_root else Risk.LOW,
        brings=primary.do,
        folder=_folder(situation.facts),
    )
    if not needs_root or may_become_root(situation.facts):
        yield with_set(situation, option)
    elif all(remedy in ANSWERS[Kind.REMOVE] for remedy in primary.remedies):  # there is no other way out
        yield with_set(situation, replace(option, title=f"{option.title} (by someone who has root here)"))
    else:
        yield replace(option, feasible=False, why_not=NO_ROOT)


def removal_in_words(situation: Situation) -> str:
    """'take /usr/local/cuda/compat out of LD_LIBRARY_PATH'; '' where nothing is in the way."""
    primary = situation.primary
    if primary is None or not situation.answered_by(Kind.REMOVE):
        return ""
    return _unwired(situation.facts) or _title(primary)


def after_removal(situation: Situation, title: str) -> str:
    """The title of a way out that takes a removal besides: the driver is too old, and something is in the way."""
    first = removal_in_words(situation)
    return f"{title}; and {first}" if first and situation.needs is not None else title


def _title(primary: Finding) -> str:
    """What the removal is called; what the system's folders hold is in no LD_LIBRARY_PATH."""
    removal = _removal(primary)
    if removal is _REMOVALS[_FROM_PATH] and not any("LD_LIBRARY_PATH" in line for line in primary.do):
        return "make the loader find the right libraries"
    return removal.title


def _removal(primary: Finding) -> _Removal:
    return _REMOVALS[next(each for each in primary.remedies if each in ANSWERS[Kind.REMOVE])]


def _reversible(facts: Facts, primary: Finding) -> Reversible:
    """The steps that unwire a compat library have a way back each; of any other removal its own lines tell."""
    in_use = compat_in_use(facts)
    return Reversible.YES if in_use is not None and not in_use.copied else reversible_by(primary.do)


def _unwired(facts: Facts) -> str:
    """In words what stops the loader from taking the wrong libcuda; '' where the right one is taken."""
    in_use = compat_in_use(facts)
    if in_use is not None and in_use.copied:
        return f"remove {in_use.copied} from the image, so that the container runtime does not put it in front"
    library = facts.libcuda.would_load
    if not isinstance(library, Known) or not (in_use is not None or library.value.is_stub):
        return ""
    by = wired_by(library.value)
    again = ", then run ldconfig" if by.startswith("/") else ""
    return f"take {library.value.path.rpartition('/')[0]} out of {by}{again}"


def _folder(facts: Facts) -> str:
    """The folder that is taken out, as the loader's path spells it; '' where it is no folder of libcuda."""
    library = facts.libcuda.would_load
    if not _unwired(facts) or not isinstance(library, Known):
        return ""
    in_use = compat_in_use(facts)
    return in_use.copied if in_use is not None and in_use.copied else library.value.path.rpartition("/")[0]


def _not_enough(situation: Situation) -> tuple[str, ...]:
    """What removing alone leaves undone: the driver may still be too old for the torch."""
    needs = situation.needs
    if needs is None:
        return ()
    goal = f"the goal {situation.request.goal.value}"
    return (f"{goal}: driver {situation.kernel} by itself does not run CUDA {needs.release}",)
