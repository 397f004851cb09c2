"""Rules about the host's compiler and C library against the CUDA toolkit's headers."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from firstlight.diagnosis.build_flags_rules import BLOCKS_BUILDS, conda_compilers, host_compilers
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import shown
from firstlight.diagnosis.toolkit_answers import TOOLKIT_WAYS, torch_and_toolkit
from firstlight.diagnosis.toolkit_in_use import has_compiler, toolkit_in_use, variable
from firstlight.diagnosis.wheel_answers import TORCH_WAYS
from firstlight.facts.collect import Facts
from firstlight.facts.compilers import CompilerFacts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.toolkits import Toolkit
from firstlight.frozen import dataclass
from firstlight.tables.system_rows import Role
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import InstallConda, InstallPackages, Scope, SetVariables, UseImage, Variable
from firstlight.ways.platform import Manager, platform_of
from firstlight.ways.system_names import filled, rows_for
from firstlight.ways.way import Chain, Proof, chain

_GLIBC_WITH_SINPI = (2, 41)
_MAJOR_WHOSE_HEADERS_FIT = 13
_UNCHECKED = "-allow-unsupported-compiler"


@dataclass(frozen=True, slots=True)
class _Used:
    """A host compiler that a build would start, e.g. g++ 15.2.1 at /usr/bin/g++, found on PATH."""

    path: str
    version: str
    found: str  # CXX, PATH


def host_compiler_out_of_range(question: Question) -> Iterator[Seen]:
    """nvcc's headers refuse a host compiler newer than they know."""
    facts, toolkit = question.facts, toolkit_in_use(question.facts)
    if toolkit is None or _UNCHECKED in _all_flags(facts):
        return
    for used in _used_compilers(facts.compilers):
        is_clang = "clang" in posixpath.basename(used.path)
        newest, where = _newest_accepted(question, toolkit, "clang" if is_clang else "gcc")
        major = used.version.partition(".")[0]
        if newest and major.isdecimal() and int(major) > newest:
            name = "clang" if is_clang else "gcc"
            yield Seen(
                saw=f"{used.path} is {name} {used.version} ({used.found}); the toolkit at {toolkit.path} takes {name} "
                f"up to {newest} ({where})",
                answers=tuple(_older_compiler(question, newest)),
            )


def _used_compilers(compilers: CompilerFacts) -> Iterator[_Used]:
    """CC, else gcc, which nvcc starts; CXX, else c++, which torch starts and checks; what CMake and nvcc are told."""
    chosen = {each.variable: each for each in compilers.chosen}
    seen = set()
    for variable_name, names in (("CC", ("gcc",)), ("CXX", ("c++", "g++")), ("CUDAHOSTCXX", ()), ("NVCC_CCBIN", ())):
        each = chosen.get(variable_name)
        tool = next((tool for name in names for tool in compilers.compilers if tool.name == name), None)
        if each is not None:
            path, version, found = each.path, each.version, variable_name
        elif tool is not None:
            path, version, found = Known(tool.path, "PATH"), tool.version, "PATH"
        else:
            continue
        if isinstance(path, Known) and isinstance(version, Known) and version.value not in seen:
            seen.add(version.value)
            yield _Used(path.value, version.value, found)


def _newest_accepted(question: Question, toolkit: Toolkit, name: str) -> tuple[int, str]:
    """The newest major and where that is said; (0, "") where it is not known."""
    own = toolkit.gcc_max if name == "gcc" else toolkit.clang_below
    if isinstance(own, Known):
        return (own.value if name == "gcc" else own.value - 1), own.seen_in
    if isinstance(toolkit.nvcc_version, Unknown):
        return 0, ""
    tables, nvcc = question.tables, toolkit.nvcc_version.value
    row = tables.gcc_limit(nvcc) if name == "gcc" else tables.clang_limit(nvcc)
    return (0, "") if row is None else (row.newest_major, row.source)


def _numbered_packages(question: Question, newest: int) -> Iterator[Chain]:
    """The newest gcc that the toolkit takes and that this system has beside its own, e.g. gcc-12 on Debian 12."""
    platform = platform_of(question.facts)
    rows = rows_for(Role.NUMBERED_COMPILER, platform, question.tables)
    have = [(number, row) for row in rows for number in row.numbers if number <= newest]
    if have and platform.manager is not Manager.NONE:
        number, row = max(have, key=lambda each: each[0])
        packages = InstallPackages(filled(row, platform, number=str(number)), (f"/usr/bin/g++-{number}",))
        yield chain(packages, host_compilers(f"gcc-{number}", f"g++-{number}"))


def _older_compiler(question: Question, newest: int) -> Iterator[Chain]:
    """A gcc that the toolkit takes: one that is here, the system's package, conda; last the check switched off."""
    facts = question.facts
    pairs = [each for each in facts.compilers.numbered if each.number <= newest]
    for pair in reversed(pairs):
        if isinstance(pair.gcc, Known) and isinstance(pair.gxx, Known):
            yield chain(host_compilers(pair.gcc.value, pair.gxx.value))
            break
    else:
        yield from _numbered_packages(question, newest)
        yield conda_compilers(facts, newest)
    unchecked = SetVariables((Variable("NVCC_APPEND_FLAGS", _UNCHECKED),), Scope.BUILD)
    yield chain(unchecked, proof=Proof.GUESSED, by="nvcc then takes any compiler, at your own risk")


def glibc_breaks_cuda_headers(question: Question) -> Iterator[Seen]:
    """glibc 2.41 declares sinpi and cospi in another way than the headers of CUDA 12 do."""
    facts, toolkit = question.facts, toolkit_in_use(question.facts)
    glibc = facts.runtime.glibc
    if toolkit is None or isinstance(glibc, Unknown) or isinstance(toolkit.version, Unknown):
        return
    numbers = tuple(int(part) for part in glibc.value.split(".") if part.isdecimal())
    if (
        numbers >= _GLIBC_WITH_SINPI
        and toolkit.version.value.major < _MAJOR_WHOSE_HEADERS_FIT
        and has_compiler(toolkit)
    ):
        yield Seen(
            saw=f"glibc {shown(glibc)}; the toolkit at {toolkit.path} is CUDA {toolkit.version.value}",
            answers=(
                _image(question, toolkit.version.value),
                *torch_and_toolkit(question, lambda wheel: wheel.cuda.major >= _MAJOR_WHOSE_HEADERS_FIT),
            ),
        )


def _image(question: Question, cuda: CudaVersion) -> Chain:
    """An image of Ubuntu 24.04, with the toolkit in it where one is on record."""
    row = question.tables.image(cuda)
    name = "ubuntu:24.04" if row is None else f"{row.image}-devel-ubuntu24.04"
    return chain(UseImage(name), proof=Proof.GUESSED, by="Ubuntu 24.04 has glibc 2.39, below 2.41")


def _all_flags(facts: Facts) -> str:
    return " ".join(variable(facts, name) for name in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "TORCH_NVCC_FLAGS"))


HOST_COMPILER_RULES = (
    Rule(
        check=host_compiler_out_of_range,
        severity=Severity.NOTE,
        depth=60,
        title="The C++ compiler is newer than this CUDA toolkit accepts.",
        fires_when="gcc or clang of CC, CXX, CUDAHOSTCXX, NVCC_CCBIN or PATH is above the limit in the toolkit's "
        "headers, or in our table where the headers are not there.",
        looks_at=("compilers.compilers", "compilers.chosen", "toolkits.toolkits"),
        means="nvcc stops in its own header, and torch refuses the compiler as well.",
        error="#error -- unsupported GNU version! gcc versions later than ... are not supported!",
        source="github.com/pytorch/pytorch/issues/185698",
        ways=(SetVariables, InstallPackages, InstallConda),
        for_goals=BLOCKS_BUILDS,
    ),
    Rule(
        check=glibc_breaks_cuda_headers,
        severity=Severity.NOTE,
        depth=60,
        title="This machine's C library is too new for the headers of CUDA 12.",
        fires_when="Glibc is 2.41 or newer and the toolkit that would be used is older than CUDA 13.",
        looks_at=("runtime.glibc", "toolkits.cpp_extension_home", "toolkits.toolkits"),
        needs=("toolkits.cpp_extension_home",),
        means="Every .cu file that includes <cmath> fails to compile, with any host compiler. Some add noexcept (true) "
        "to sinpi, sinpif, cospi and cospif (glibc 2.42: rsqrt and rsqrtf too) in the toolkit's crt/math_functions.h.",
        error="/usr/include/bits/mathcalls.h(79): error: exception specification is incompatible with that of previous "
        'function "cospi"',
        source="github.com/opencv/opencv/issues/27111",
        ways=(UseImage, *TORCH_WAYS, *TOOLKIT_WAYS),
        for_goals=BLOCKS_BUILDS,
    ),
)
