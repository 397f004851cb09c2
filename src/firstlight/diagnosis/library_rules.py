"""Rules about the shared libraries under torch: missing, exchanged, of two CUDA majors, or too old underneath."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.library_path_rules import LIBRARY_PATH_RULES, is_at_least, plain
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
)
from firstlight.diagnosis.observed import as_root, is_wanted, listed
from firstlight.diagnosis.runtime_library_rules import RUNTIME_LIBRARY_RULES, without_entry
from firstlight.diagnosis.specifiers import satisfies
from firstlight.diagnosis.wheel_choice import best_wheel, install, install_wheel, uninstall, wheels_that_run
from firstlight.facts.companions import NvidiaWheel
from firstlight.facts.cuda_libraries import FoundIn
from firstlight.facts.known import Known, Unknown
from firstlight.facts.torch_libraries import MissingLibrary

_CUDNN_FROM_ONE_FOLDER_SINCE = (2, 14)
_TENSOR_IR = "libcudnn_engines_tensor_ir.so.9"
_ASKS_FOR_TENSOR_IR = ">=9.19,<9.21"  # file lists of the PyPI wheels: shipped from 9.21.0.82 on


def missing_library(question: Question) -> Iterator[Seen]:
    """Every name the loader would not find for torch, at once: by trial they show up one by one."""
    facts = question.facts
    if isinstance(facts.torch_libraries, Unknown) or isinstance(facts.torch, Unknown):
        return
    missing = [each for each in facts.torch_libraries.value.missing if _is_a_package_matter(question, each)]
    owners = {each.name: _who_has_it(question, each) for each in missing}
    steps = (fix_command(question),) if any(owners.values()) else tuple(_torch_again(question))
    for each in missing:
        askers = listed(sorted({posixpath.basename(path) for path in each.requested_by}))
        where = f"in {posixpath.normpath(posixpath.dirname(each.requested_by[0]))}"
        what = "is on no path that the loader searches"
        if each.damaged:
            what = f"is damaged: the loader cannot use {posixpath.normpath(each.damaged)}"
        complaint = f"{each.name}: cannot open shared object file: No such file or directory"
        if each.damaged:
            complaint = f"{posixpath.normpath(each.damaged)}: file too short (or: invalid ELF header)"
        owner = f"; {owners[each.name]}" if owners[each.name] else ""
        yield Seen(
            saw=f"{each.name}, asked for by {askers} {where}, {what}{owner}",
            do=steps if each is missing[0] else (),
            means=f"import torch ends with: ImportError: {complaint}. It prints only the first name; the others "
            "follow once that one is there.",
        )


def fix_command(question: Question) -> str:
    """What closes the whole chain at once; it shows every step and asks before it changes anything."""
    environment = question.facts.environment
    given = environment is not None and "given" in environment.found_by
    return "firstlight libs --fix" + (f" --python {shlex.quote(environment.prefix)}" if given and environment else "")


def _who_has_it(question: Question, each: MissingLibrary) -> str:
    """The package that brings a library here, or why the one that is installed does not; "" where none is known."""
    known = provider(question, each.name)
    if known is not None and known.installed and not (each.damaged and known.installed_fits):
        return _installed(question, known)
    if known is not None:
        return f"{known.requirement} has it"
    row = question.tables.debian_package_with(each.name)
    return f"the package {row.package} has it" if row is not None else ""


def _is_a_package_matter(question: Question, each: MissingLibrary) -> bool:
    """Not the driver's, and not one that torch itself opens from another site-packages folder."""
    facts = question.facts
    if each.name.startswith(DRIVERS_OWN):
        return False
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


def _torch_again(question: Question) -> Iterator[str]:
    """Where nobody is known to provide the names: a torch with all it needs, and whose file lacks what."""
    torch = question.facts.torch
    if isinstance(torch, Unknown):
        return
    version = torch.value.version
    wheel = best_wheel(question, version.value if isinstance(version, Known) else None)
    if wheel is not None:
        yield f"another build of torch may not ask for them: {install_wheel(question, wheel)}"
    yield "see who asks for what: firstlight libs --all"


def two_cuda_majors(question: Question) -> Iterator[Seen]:
    """Libraries of two CUDA majors in one process, or two wheels that write the same files."""
    yield from _two_runtimes(question)
    yield from _same_files(question)


def _two_runtimes(question: Question) -> Iterator[Seen]:
    facts = question.facts
    loaded = facts.torch_libraries.value.loaded if isinstance(facts.torch_libraries, Known) else ()
    for name in ("libcudart", "libcublas"):
        both = [each for each in loaded if re.fullmatch(rf"{name}\.so\.\d+(?:\.\d+)*", each.name)]
        if len({each.name.partition(".so.")[2].partition(".")[0] for each in both}) > 1:
            parts = [
                f"{each.name} for {posixpath.basename(each.requested_by[0])} ({plain(each.path)})" for each in both
            ]
            yield Seen(saw=f"torch loads {listed(parts)}")
            break
    major = cuda_major(facts)
    for companion in facts.companions:
        own = companion.cuda_major
        if major is None or isinstance(own, Unknown) or own.value == major:
            continue
        runtime = wheel_with(question, f"libcudart.so.{own.value}")
        if runtime is not None:
            yield Seen(
                saw=f"{companion.name} {companion.version} is built for CUDA {own.value} ({own.seen_in}) and finds the "
                f"runtime of {runtime.name} {runtime.version}; torch is built for CUDA {major}",
                do=(
                    f"install a build of {companion.name} for CUDA {major}, or take it out of this environment: "
                    f"{uninstall(facts, companion.name)}",
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
        steps = [uninstall(facts, wheel.name) for wheel in wheels if right and wheel not in right]
        steps += [install(facts, "--force-reinstall", "--no-deps", f"{each.name}=={each.version}") for each in right]
        yield Seen(
            saw=f"{listed(f'{wheel.name} {wheel.version}' for wheel in wheels)} are both installed into {folder}; "
            + (f"torch is built for CUDA {major}" if major else "which CUDA torch is built for is not known"),
            do=tuple(steps),
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
        yield Seen(saw=f"{wheel.name} {wheel.version} {how}", do=tuple(_apart(question, folder, other.found_in)))


def _apart(question: Question, folder: str, found_in: FoundIn) -> Iterator[str]:
    facts = question.facts
    if found_in is FoundIn.LD_LIBRARY_PATH:
        yield without_entry(facts, folder)
    elif "apt-get" in facts.ability.package_managers:
        yield as_root(facts, "apt-get remove --yes 'libcudnn9-*'") + "  # if nothing else here uses it"
    else:
        yield f"take the cuDNN in {folder} off the loader's way, if nothing else here uses it"
    complete = (wheel for wheel in wheels_that_run(question) if wheel.torch.release >= _CUDNN_FROM_ONE_FOLDER_SINCE)
    if (wheel := next(complete, None)) is not None:
        yield f"or a torch whose cuDNN is complete: {install_wheel(question, wheel)}"


LIBRARY_RULES = (
    *RUNTIME_LIBRARY_RULES,
    Rule(
        code="missing-library",
        check=missing_library,
        severity=Severity.BLOCKS,
        depth=50,
        title="Shared libraries that torch asks for are missing.",
        fires_when="The loader finds no file for a name that torch or a library below it needs; libcuda aside.",
        looks_at=("torch_libraries.missing", "torch.libraries", "nvidia_wheels", "torch.requires"),
        means="Importing torch fails at the first of them.",
        error="ImportError: libcudss.so.0: cannot open shared object file: No such file or directory",
        source="github.com/pollen-robotics/microduck_rl/pull/39",
        remedies=("install-library-wheels", "install-other-wheel"),
    ),
    *LIBRARY_PATH_RULES,
    Rule(
        code="two-cuda-majors",
        check=two_cuda_majors,
        severity=Severity.DEGRADES,
        depth=50,
        title="Libraries of two CUDA majors are mixed in one environment.",
        fires_when="torch loads libcudart or libcublas of two majors, wheels of two majors share one folder, or a "
        "companion finds the runtime of another major.",
        looks_at=("torch_libraries.loaded", "nvidia_wheels", "companions"),
        means="Each brings a CUDA runtime of its own into the process; a library can be bound to the wrong one, and "
        "then lacks functions it was built against.",
        error="ImportError: .../torch/lib/libtorch_cuda.so: undefined symbol: ...",
        source="github.com/pytorch/pytorch/issues/186591",
        remedies=("remove-duplicate", "reinstall-companion"),
    ),
    Rule(
        code="cudnn-mix",
        check=cudnn_mix,
        severity=Severity.BLOCKS,
        depth=50,
        title="The cuDNN of torch would load parts of another cuDNN.",
        fires_when="The cuDNN wheel opens a part by name that only a second cuDNN on the loader's way has, or "
        "LD_LIBRARY_PATH leads to a cuDNN of another version; torch before 2.14.",
        looks_at=("nvidia_wheels", "cuda_libraries.libraries", "torch.version"),
        means="torch imports and sees the GPU, and the first convolution fails: cuDNN finds that its parts are of "
        "different versions.",
        error="RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        source="github.com/pytorch/pytorch/issues/188892",
        remedies=("remove-from-library-path", "remove-duplicate", "install-other-wheel"),
    ),
)
