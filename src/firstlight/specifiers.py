"""Whether a version meets a requirement, as PEP 440 has it: the small part that installed packages need."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from firstlight.frozen import dataclass

_VERSION = (
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<stage>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<stage_number>\d*))?"
    r"(?:-(?P<dashed>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
_CLAUSE = r"\s*(===|~=|==|!=|<=|>=|<|>)\s*([^\s,;]+)\s*"
_STAGES = {"alpha": "a", "a": "a", "beta": "b", "b": "b", "c": "rc", "rc": "rc", "pre": "rc", "preview": "rc"}
_BEFORE, _AFTER = -1, 1 << 62  # stand for "no such part" where its absence sorts first or last


@dataclass(frozen=True, slots=True)
class _Version:
    """A version taken apart: 2.9.0a0+git12 has release (2, 9), stage ("a", 0) and local ("git12",)."""

    epoch: int
    release: tuple[int, ...]  # as written, trailing zeros kept
    stage: tuple[str, int]  # ("", 0) when there is none
    post: int  # _BEFORE when there is none
    dev: int  # _AFTER when there is none
    local: tuple[str, ...]

    @property
    def is_early(self) -> bool:
        """Whether it is a pre-release or a development version."""
        return self.stage[0] != "" or self.dev != _AFTER

    @property
    def base(self) -> tuple[int, tuple[int, ...]]:
        return self.epoch, _trimmed(self.release)

    @property
    def public_key(self) -> tuple[int, tuple[int, ...], tuple[str, int], int, int]:
        """Sorts as PEP 440 has it: 1.0.dev1 < 1.0a1 < 1.0rc1 < 1.0 < 1.0.post1."""
        stage = self.stage
        if not stage[0]:
            only_dev = self.dev != _AFTER and self.post == _BEFORE
            stage = ("", 0) if only_dev else ("z", 0)
        return (*self.base, stage, self.post, self.dev)

    @property
    def local_key(self) -> tuple[tuple[int, int, str], ...]:
        """Numbers sort after words, and no local part before any."""
        return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in self.local)


def satisfies(version: str, specifier: str) -> bool | None:
    """Whether a version meets all clauses: satisfies("2.9.0+cu130", "==2.8.0") is False; None: one cannot be read.

    Pre-releases are taken as they are, since it is asked of what is installed.
    """
    answers = [_meets(version, clause) for clause in specifier.split(",") if clause.strip()]
    if False in answers:
        return False
    return None if None in answers else True


def newest(versions: tuple[str, ...]) -> str:
    """The highest of versions, e.g. 0.0.33.post1 of 0.0.33 and 0.0.33.post1; "" of none that can be read."""
    read = [(parsed.public_key, parsed.local_key, text) for text in versions if (parsed := _parse(text)) is not None]
    return max(read, default=((), (), ""))[2]


@cache
def _clause(clause: str) -> tuple[str, str]:
    """The parts of a bound: (">=", "2.9"); ("", "") where it is none."""
    match = re.fullmatch(_CLAUSE, clause)
    return (match[1], match[2]) if match is not None else ("", "")


def _meets(version: str, clause: str) -> bool | None:
    operator, text = _clause(clause)
    if not operator:
        return None
    if operator == "===":
        return version.strip().lower() == text.lower()
    have, prefix = _parse(version), text.endswith(".*")
    wanted = _parse(text.removesuffix(".*"))
    if have is None or wanted is None or (prefix and (operator not in ("==", "!=") or not _is_plain(wanted))):
        return None
    if operator in ("==", "!="):
        same = _begins(have, wanted) if prefix else _equal(have, wanted)
        return same is (operator == "==")
    if wanted.local:  # PEP 440 allows a local part only with == and !=
        return None
    return _ordered(have, operator, wanted=wanted)


def _ordered(have: _Version, operator: str, *, wanted: _Version) -> bool | None:
    if operator == "~=":
        if len(wanted.release) < 2:
            return None
        family = _Version(wanted.epoch, wanted.release[:-1], ("", 0), _BEFORE, _AFTER, ())
        return have.public_key >= wanted.public_key and _begins(have, family)
    if operator == ">=":
        return have.public_key >= wanted.public_key
    if operator == "<=":
        return have.public_key <= wanted.public_key
    if operator == "<":  # <2.9 does not take 2.9.0a0: the earliest of 2.9 is 2.9.dev0
        bound = wanted if wanted.is_early else replace(wanted, dev=0)
        return have.public_key < bound.public_key
    return _is_later(have, wanted)


def _is_later(have: _Version, wanted: _Version) -> bool:
    """>2.9 takes neither 2.9+cu130 nor 2.9.post1; >2.9.post1 takes 2.9.post2."""
    if wanted.dev != _AFTER:
        return have.public_key >= replace(wanted, dev=wanted.dev + 1).public_key
    if wanted.post != _BEFORE:
        return have.public_key >= replace(wanted, post=wanted.post + 1, dev=0).public_key
    is_post = have.post != _BEFORE and have.base == wanted.base and have.stage == wanted.stage
    return have.public_key > wanted.public_key and not is_post


def _equal(have: _Version, wanted: _Version) -> bool:
    """A local part counts only where the specifier has one."""
    return have.public_key == wanted.public_key and (not wanted.local or have.local_key == wanted.local_key)


def _begins(have: _Version, wanted: _Version) -> bool:
    size = len(wanted.release)
    padded = have.release + (0,) * (size - len(have.release))
    return have.epoch == wanted.epoch and padded[:size] == wanted.release


def _is_plain(version: _Version) -> bool:
    return not version.is_early and version.post == _BEFORE and not version.local


@cache
def _parse(text: str) -> _Version | None:
    match = re.fullmatch(_VERSION, text.strip().lower())
    if match is None:
        return None
    stage = _STAGES.get(match["stage"] or "", "")
    post = _BEFORE
    if match["dashed"] is not None or match["post"] is not None:
        post = int(match["dashed"] or match["post_number"] or 0)
    return _Version(
        epoch=int(match["epoch"] or 0),
        release=tuple(int(part) for part in match["release"].split(".")),
        stage=(stage, int(match["stage_number"] or 0) if stage else 0),
        post=post,
        dev=int(match["dev_number"] or 0) if match["dev"] is not None else _AFTER,
        local=tuple(re.split(r"[-_.]", match["local"])) if match["local"] else (),
    )


def _trimmed(release: tuple[int, ...]) -> tuple[int, ...]:
    """Without trailing zeros: 2.9.0 and 2.9 are the same version."""
    end = len(release)
    while end > 1 and release[end - 1] == 0:
        end -= 1
    return release[:end]
