"""Rules about the shared libraries under torch: missing, exchanged, of two CUDA majors, or too old underneath."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from firstlight.diagnosis.companion_answers import for_this_cuda
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.library_path_rules import LIBRARY_PATH_RULES, first_of, is_at_least, plain
from firstlight.diagnosis.library_providers import (
    DRIVERS_OWN,
    PRELOADED,
    Provider,
    cuda_major,
    provider,
    search_path_of_torch,
    site_packages,
    stem,
    wheel_with,
    wheels_for,
)
from firstlight.diagnosis.observed import is_wanted, listed
from firstlight.diagnosis.runtime_library_rules import RUNTIME_LIBRARY_RULES
from firstlight.diagnosis.wheel_answers import TORCH_WAYS, hides_another, torch_answers
from firstlight.elf.loader import FoundBy
from firstlight.facts.companions import NvidiaWheel
from firstlight.facts.cuda_libraries import FoundIn, LibraryFound
from firstlight.facts.known import Known, Unknown
from firstlight.facts.runtime_libraries import Libc
from firstlight.facts.torch_libraries import MissingLibrary
from firstlight.specifiers import satisfies
from firstlight.tables.system_rows import Role
from firstlight.ways import kinds
from firstlight.ways.families import family_of, release_of
from firstlight.ways.platform import Manager, platform_of
from firstlight.ways.system_names import names_for, renamed_libraries
from firstlight.ways.way import Chain, Proof, chain

_CUDNN_FROM_ONE_FOLDER_SINCE = (2, 14)
_TENSOR_IR = "libcudnn_engines_tensor_ir.so.9"
_ASKS_FOR_TENSOR_IR = ">=9.19,<9.21"  # file lists of the PyPI wheels: shipped from 9.21.0.82 on
_OF_GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1")


def missing_library(question: Question) -> Iterator[Seen]:
    """Every name the loader would not find for torch, at once: by trial they show up one by one."""
    facts = question.facts
    if isinstance(facts.torch_libraries, Unknown) or isinstance(facts.torch, Unknown):
        return
    missing = [each for each in facts.torch_libraries.value.missing if _is_a_package_matter(question, each)]
    owners = {each.name: _who_has_it(question, each) for each in missing}
    answers = tuple(_closed(question, tuple(name for name, owner in owners.items() if owner)))
    for each in missing:
        askers = listed(sorted({posixpath.basename(path) for path in each.requested_by}))
        where = f"in {posixpath.normpath(posixpath.dirname(first_of(each.requested_by)))}"
        what = "is on no path that the loader searches"
        if each.damaged:
            what = f"is damaged: the loader cannot use {posixpath.normpath(each.damaged)}"
        complaint = f"{each.name}: cannot open shared object file: No such file or directory"
        if each.damaged:
            complaint = f"{posixpath.normpath(each.damaged)}: file too short (or: invalid ELF header)"
        owner = f"; {owners[each.name]}" if owners[each.name] else ""
        yield Seen(
            saw=f"{each.name}, needed by {askers} {where}, {what}{owner}",
            answers=answers if each is missing[0] else (),
            means="Importing torch fails at the first of them, and names the next one only when that is there.",
            error=f"ImportError: {complaint}",
        )


def _closed(question: Question, names: tuple[str, ...]) -> Iterator[Chain]:
    """The names of which it is known who brings them, at once; another torch may not ask for them."""
    if names and not hides_another(question.facts):
        close = kinds.CloseLibraries(names, wheels_for(question, names))
        yield chain(close, proof=Proof.DOCUMENTED, by="the files of the packages that bring them")
    yield from torch_answers(question)


def _who_has_it(question: Question, each: MissingLibrary) -> str:
    """The package that brings a library here, or why the one that is installed does not; "" where none is known."""
    known = provider(question, each.name)
    if known is not None and known.installed and not (each.damaged and known.installed_fits):
        return _installed(question, known)
    if known is not None:
        return f"{known.requirement} has it"
    row = question.tables.debian_package_with(each.name)
    if row is None:
        return ""
    place = question.facts.place
    here = renamed_libraries((row.package,), family_of(place), release_of(place), question.tables)
    return f"the package {here[0]} has it" if here else f"Debian's package {row.package} has it"


def _is_a_package_matter(question: Question, each: MissingLibrary) -> bool:
    """Not the driver's, not the running C library's, and not one that torch itself opens from another folder."""
    facts = question.facts
    if each.name.startswith(DRIVERS_OWN):
        return False
    if each.name in _OF_GLIBC and not each.damaged and platform_of(facts).libc is not Libc.MUSL:
        return False  # Python itself runs with it: on NixOS it lies in no folder that others search
    wheel = wheel_with(question, each.name)
    own = site_packages(facts.torch.value) if isinstance(facts.torch, Known) else ""
    return wheel is None or wheel.folder == own or stem(each.name) not in PRELOADED or bool(each.damaged)


def _installed(question: Question, known: Provider) -> str:
    wheel = f"{known.project} {known.installed} is installed"
    if not known.installed_fits:
        return f"{wheel}, which has another version of it; {known.requirement} has it"
    if _is_searched(question, known.folder):
        return f"{wheel}, but its file is gone, as after the removal of a package with the same file"
    return f"{wheel}, but its folder {known.folder} is not searched"


def _is_searched(question: Question, folder: str) -> bool:
    """Whether a folder under site-packages is on the search path of torch's own libraries."""
    if isinstance(question.facts.torch, Unknown):
        return False
    torch = question.facts.torch.value
    return posixpath.normpath(f"{site_packages(torch)}/{folder}") in search_path_of_torch(torch)


def two_cuda_majors(question: Question) -> Iterator[Seen]:
    """Libraries of two CUDA majors in one process, or two wheels that write the same files."""
    yield from _two_runtimes(question)
    yield from _same_files(question)


def _two_runtimes(question: Question) -> Iterator[Seen]:
    facts, major = question.facts, cuda_major(question.facts)
    loaded = facts.torch_libraries.value.loaded if isinstance(facts.torch_libraries, Known) else ()
    for name in ("libcudart", "libcublas"):
        both = [each for each in loaded if re.fullmatch(rf"{name}\.so\.\d+(?:\.\d+)*", each.name)]
        if len({each.name.partition(".so.")[2].partition(".")[0] for each in both}) > 1:
            parts = [
                f"{each.name} for {posixpath.basename(first_of(each.requested_by))} ({plain(each.path)})"
                for each in both
            ]
            foreign = [each for each in both if each.name.split(".")[2] != str(major)]
            path = [each.entry for each in foreign if each.found_by is FoundBy.LIBRARY_PATH]
            unwired = (
                (chain(kinds.Unwire(tuple(dict.fromkeys(path)), kinds.WiredBy.LIBRARY_PATH)),)
                if path and len(path) == len(foreign)
                else ()
            )
            yield Seen(saw=f"torch loads {listed(parts)}", answers=unwired)
            break
    for companion in facts.companions:
        own = companion.cuda_major
        if major is None or isinstance(own, Unknown) or own.value == major:
            continue
        runtime = wheel_with(question, f"libcudart.so.{own.value}")
        if runtime is not None:
            yield Seen(
                saw=f"{companion.name} {companion.version} is built for CUDA {own.value} ({own.seen_in}) and finds the "
                f"runtime of {runtime.name} {runtime.version}; torch is built for CUDA {major}",
                answers=(
                    *for_this_cuda(question, companion.name),
                    chain(kinds.RemoveDistributions((companion.name,)), title=f"take {companion.name} out"),
                ),
            )


def _same_files(question: Question) -> Iterator[Seen]:
    """nvidia-nccl-cu12 and -cu13 both own nvidia/nccl/lib/libnccl.so.2: whichever was installed last is there."""
    facts, major = question.facts, cuda_major(question.facts)
    families: dict[tuple[str, str], list[NvidiaWheel]] = {}
    for wheel in facts.nvidia_wheels:
        base, _, suffix = wheel.name.rpartition("-cu")
        if suffix.isdecimal() and isinstance(wheel.library_folder, Known):
            families.setdefault((base, wheel.library_folder.value), []).append(wheel)
    for (_, folder), wheels in families.items():
        names = sorted({wheel.name for wheel in wheels})
        if len(names) < 2:
            continue
        right = [wheel for wheel in wheels if wheel.name.endswith(f"-cu{major}")]
        wrong = tuple(dict.fromkeys(wheel.name for wheel in wheels if right and wheel not in right))
        again = tuple(kinds.Package(wheel.name, wheel.version) for wheel in right)
        yield Seen(
            saw=f"{listed(f'{wheel.name} {wheel.version}' for wheel in wheels)} are both installed into {folder}; "
            + (f"torch is built for CUDA {major}" if major else "which CUDA torch is built for is not known"),
            answers=(chain(kinds.RemoveDistributions(wrong), kinds.InstallWheels(again, manner=kinds.Manner.AGAIN)),)
            if wrong
            else (),
            means=f"The files in {folder} are those of whichever was installed last, and uninstalling one takes the "
            "other's away. torch may meet a library that lacks what it was built against.",
        )


def cudnn_mix(question: Question) -> Iterator[Seen]:
    """cuDNN opens its parts by bare name: a second cuDNN on the loader's way mixes versions in one process."""
    facts = question.facts
    wheel = next((each for each in facts.nvidia_wheels if each.name.startswith("nvidia-cudnn-cu")), None)
    if wheel is None or isinstance(facts.torch, Unknown) or is_wanted(facts):
        return
    if is_at_least(facts.torch.value, _CUDNN_FROM_ONE_FOLDER_SINCE):
        return
    lacks_part = satisfies(wheel.version, _ASKS_FOR_TENSOR_IR) is True
    for other in facts.cuda_libraries.named("cudnn"):
        on_path = other.found_in in (FoundIn.LD_LIBRARY_PATH, FoundIn.SYSTEM)
        if not on_path or isinstance(other.version, Unknown) or other.file != "libcudnn.so.9":
            continue
        differs = other.version.value.split(".")[:3] != wheel.version.split(".")[:3]
        folder = posixpath.dirname(other.path)
        if lacks_part and satisfies(other.version.value, ">=9.21"):
            how = f"opens {_TENSOR_IR} by name and does not ship it; cuDNN {other.version.value} in {folder} does"
        elif differs and other.found_in is FoundIn.LD_LIBRARY_PATH:
            how = f"opens its parts by name, and LD_LIBRARY_PATH leads to cuDNN {other.version.value} in {folder} first"
        else:
            continue
        yield Seen(saw=f"{wheel.name} {wheel.version} {how}", answers=tuple(_apart(question, other)))


def _apart(question: Question, other: LibraryFound) -> Iterator[Chain]:
    """The second cuDNN off the loader's way, or a torch whose cuDNN is complete."""
    facts, folder, platform = question.facts, posixpath.dirname(other.path), platform_of(question.facts)
    names = names_for(Role.CUDNN, platform, question.tables)
    path = (each for each in facts.libcuda.ld_library_path if each)
    entries = tuple(each for each in path if posixpath.normpath(each) == folder)
    if entries:
        yield chain(kinds.Unwire(entries, kinds.WiredBy.LIBRARY_PATH))
    elif other.found_in is FoundIn.SYSTEM and platform.manager is not Manager.NONE and names:
        yield chain(kinds.RemovePackages(names, alone=True))
    else:
        yield chain(kinds.AskPerson("take-cudnn-off", kinds.Why.DECISION, (("ls", "-l", other.path),)))
    yield from torch_answers(question, lambda wheel: wheel.torch.release >= _CUDNN_FROM_ONE_FOLDER_SINCE)


LIBRARY_RULES = (
    *RUNTIME_LIBRARY_RULES,
    Rule(
        check=missing_library,
        severity=Severity.BLOCKS,
        depth=50,
        title="Shared libraries that torch asks for are missing.",
        fires_when="The loader finds no file for a name that torch or a library below it needs; libcuda aside.",
        looks_at=("torch_libraries.missing", "torch.libraries", "nvidia_wheels", "torch.requires"),
        needs=("torch",),
        means="Importing torch fails at the first of them.",
        error="ImportError: lib....so...: cannot open shared object file: No such file or directory",
        source="github.com/pollen-robotics/microduck_rl/pull/39",
        ways=(kinds.CloseLibraries, *TORCH_WAYS),
    ),
    *LIBRARY_PATH_RULES,
    Rule(
        check=two_cuda_majors,
        severity=Severity.DEGRADES,
        depth=50,
        title="Libraries of two CUDA majors are mixed in one environment.",
        fires_when="torch loads libcudart or libcublas of two majors, wheels of two majors share one folder, or a "
        "companion finds the runtime of another major.",
        looks_at=("torch_libraries.loaded", "nvidia_wheels", "companions"),
        needs=("torch_libraries",),
        means="Each brings a CUDA runtime of its own into the process; a library can be bound to the wrong one, and "
        "then lacks functions it was built against.",
        error="ImportError: .../torch/lib/libtorch_cuda.so: undefined symbol: ...",
        source="github.com/pytorch/pytorch/issues/186591",
        ways=(kinds.Unwire, kinds.RemoveDistributions, kinds.InstallWheels),
    ),
    Rule(
        check=cudnn_mix,
        severity=Severity.BLOCKS,
        depth=50,
        title="The cuDNN of torch would load parts of another cuDNN.",
        fires_when="The cuDNN wheel opens a part by name that only a second cuDNN on the loader's way has, or "
        "LD_LIBRARY_PATH leads to a cuDNN of another version; torch before 2.14.",
        looks_at=("nvidia_wheels", "cuda_libraries.libraries", "torch.version"),
        needs=("torch",),
        means="torch imports and sees the GPU, and the first convolution fails: cuDNN finds that its parts are of "
        "different versions.",
        error="RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        source="github.com/pytorch/pytorch/issues/188892",
        ways=(kinds.Unwire, kinds.RemovePackages, kinds.AskPerson, *TORCH_WAYS),
    ),
)
