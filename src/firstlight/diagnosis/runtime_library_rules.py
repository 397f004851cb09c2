"""Rules about the C and C++ runtime libraries under torch: older than its files were built with."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from firstlight.diagnosis.elsewhere_answers import machine_answers
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import shown, wanted_version
from firstlight.diagnosis.wheel_answers import TORCH_WAYS, cuda_of_torch, torch_answers
from firstlight.diagnosis.wheel_bounds import glibc_of_wheel
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.tables.system_rows import Role
from firstlight.ways.kinds import InstallConda, InstallPackages, OtherMachine, Unwire, UseImage, WiredBy
from firstlight.ways.platform import Manager, platform_of
from firstlight.ways.system_names import names_for
from firstlight.ways.way import Chain, Proof, chain


def glibc_too_old(question: Question) -> Iterator[Seen]:
    """A wheel built on a newer distribution asks for symbols that this C library does not have."""
    facts = question.facts
    have, needed = facts.runtime.glibc, _glibc_needed(question)
    if isinstance(have, Unknown) or isinstance(needed, Unknown) or _numbers(have.value) >= _numbers(needed.value):
        return
    asker = posixpath.basename(needed.seen_in) if needed.seen_in.startswith("/") else "torch, by its tag,"
    wanted = wanted_version(facts)
    if wanted is not None:
        asker, means = f"torch {wanted.public}, by its tag,", "pip and uv find no wheel of it that this machine takes."
    else:
        means = (
            f"import torch ends with: ImportError: ... version `GLIBC_{needed.value}' not found (required by "
            f"{needed.seen_in})"
        )
    yield Seen(
        saw=f"glibc {shown(have)}; {asker} needs {needed.value} ({needed.seen_in})",
        answers=(
            *torch_answers(question),
            _newer_distribution(needed.value),
            *machine_answers(question, cuda_of_torch(question)),
        ),
        means=means,
    )


def _newer_distribution(needed: str) -> Chain:
    """A container brings its own C library; that of the machine is not replaced, every program depends on it."""
    by = f"a container brings its own C library, and the driver is the host's; glibc {needed}: RHEL 8 has 2.28, "
    return chain(UseImage(""), proof=Proof.GUESSED, by=by + "Ubuntu 22.04 2.35, Debian 12 2.36")


def _glibc_needed(question: Question) -> Fact[str]:
    """What the files ask for, else what the wheel's tag promises: 2.28 of manylinux_2_28; the tables' if wanted."""
    facts = question.facts
    version = wanted_version(facts)
    release = None if version is None else question.tables.torch_release(version.public, facts.place.arch)
    if release is not None and (needed := glibc_of_wheel(release, version.cuda if version else None)):
        return Known(needed, f"{release.platform_tag}_{release.machine}")
    if isinstance(facts.torch_libraries, Known) and isinstance(facts.torch_libraries.value.glibc_needed, Known):
        return facts.torch_libraries.value.glibc_needed
    tags = facts.torch.value.wheel_tags if isinstance(facts.torch, Known) else facts.torch
    for tag in tags.value if isinstance(tags, Known) else ():
        if match := re.search(r"-manylinux_(\d+)_(\d+)_", tag):
            return Known(f"{match.group(1)}.{match.group(2)}", tag)
    return Unknown("neither torch's files nor its tag name a version")


def libstdcxx_too_old(question: Question) -> Iterator[Seen]:
    """The libstdc++ that torch gets lacks versions its files were built with."""
    facts = question.facts
    if isinstance(facts.torch_libraries, Unknown):
        return
    needed, have = facts.torch_libraries.value.libstdcxx_needed, facts.torch_libraries.value.libstdcxx_offered
    if isinstance(needed, Unknown) or isinstance(have, Unknown) or _numbers(have.value) >= _numbers(needed.value):
        return
    yield Seen(
        saw=f"{have.seen_in} offers GLIBCXX_{have.value} at most; {posixpath.basename(needed.seen_in)} needs "
        f"GLIBCXX_{needed.value} ({needed.seen_in})",
        answers=tuple(_newer_libstdcxx(question, have.seen_in)),
        means=f"import torch ends with: ImportError: {have.seen_in}: version `GLIBCXX_{needed.value}' not found "
        f"(required by {needed.seen_in})",
    )


def _newer_libstdcxx(question: Question, path: str) -> Iterator[Chain]:
    facts, platform = question.facts, platform_of(question.facts)
    environment, folder = facts.environment, posixpath.dirname(path)
    entries = tuple(each for each in facts.libcuda.ld_library_path if each and posixpath.normpath(each) == folder)
    if entries:
        yield chain(Unwire(entries, WiredBy.LIBRARY_PATH))
    if environment is not None and environment.kind in (EnvironmentKind.CONDA, EnvironmentKind.PIXI):
        # it makes the link libstdc++.so.6 again, without which the system's library is taken
        yield chain(InstallConda("libstdcxx-ng", "conda-forge", "", "lib/libstdc++.so.6"))
    elif platform.manager is not Manager.NONE and (names := names_for(Role.CXX_LIBRARY, platform, question.tables)):
        by = "a newer one may take a newer release of the distribution"
        yield chain(InstallPackages(names), proof=Proof.GUESSED, by=by)
    yield chain(UseImage(""), proof=Proof.GUESSED, by="a container brings its own C++ library")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


RUNTIME_LIBRARY_RULES = (
    Rule(
        check=glibc_too_old,
        severity=Severity.BLOCKS,
        depth=50,
        title="This machine's C library is older than torch needs.",
        fires_when="A file that importing torch loads, or the tag of a wanted torch, asks for a newer GLIBC version "
        "than libc.so.6 here has.",
        looks_at=("runtime.glibc", "torch_libraries.glibc_needed", "torch.wheel_tags"),
        needs=("torch",),
        means="torch cannot be imported here, and no setting helps: the distribution is too old for this build.",
        error="ImportError: .../libm.so.6: version `GLIBC_...' not found (required by ...)",
        source="github.com/pytorch/pytorch/issues/150724",
        ways=(*TORCH_WAYS, UseImage, OtherMachine),
        explains=("libstdcxx-too-old",),
    ),
    Rule(
        check=libstdcxx_too_old,
        severity=Severity.BLOCKS,
        depth=50,
        title="The C++ library that torch gets is older than it needs.",
        fires_when="A file that importing torch loads asks for a newer GLIBCXX version than its libstdc++.so.6 has.",
        looks_at=("torch_libraries.libstdcxx_needed", "torch_libraries.libstdcxx_offered"),
        needs=("torch_libraries",),
        means="torch cannot be imported with this libstdc++.",
        error="ImportError: .../libstdc++.so.6: version `GLIBCXX_...' not found (required by ...)",
        source="github.com/pytorch/pytorch/issues/157709",
        ways=(Unwire, InstallConda, InstallPackages, UseImage),
    ),
)
