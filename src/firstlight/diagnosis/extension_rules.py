"""Rules about compiled files beside torch, by what is in them: names that torch lacks, GPUs without code for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.companion_answers import for_this_torch, one_torch_for_all
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import is_wanted, listed
from firstlight.diagnosis.torch_build_rules import code_runs
from firstlight.diagnosis.wheel_answers import COMPANIONS, TORCH_WAYS, cuda_of_torch
from firstlight.diagnosis.wheel_choice import SeenGpu, gpus_of
from firstlight.facts.collect import Facts
from firstlight.facts.companions import Companion
from firstlight.facts.extensions import Extension, Strings
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.torch_install import TorchBuild
from firstlight.specifiers import newest
from firstlight.tables.gpu_rows import Runs
from firstlight.tables.torch_index import index_of_build
from firstlight.ways.building import environment_to_change
from firstlight.ways.kinds import InstallWheels, Manner, Package, RemoveDistributions
from firstlight.ways.way import Chain, Proof, chain

_SPOKEN = {
    Strings.CXX11: "the C++11 strings of GCC (_GLIBCXX_USE_CXX11_ABI=1)",
    Strings.OLD: "the strings of GCC before C++11 (_GLIBCXX_USE_CXX11_ABI=0)",
}


def extension_lacks_symbols(question: Question) -> Iterator[Seen]:
    """flash-attn compiled against torch 2.6 beside torch 2.7: its first import ends with "undefined symbol"."""
    facts = question.facts
    if isinstance(facts.torch, Unknown) or is_wanted(facts):
        return
    found = {package: _worst(files) for package, files in _by_package(facts).items()}
    clashing = {package: worst for package, worst in found.items() if worst is not None}
    for package, worst in clashing.items():
        count = sum(_is_lacking(each) for each in _by_package(facts)[package])
        others = f"; the same holds for {count - 1} more of its files" if count > 1 else ""
        torch = _its_torch(question, package) if len(clashing) == 1 else ()  # two of them may be made for two
        yield Seen(
            saw=f"{_named(worst)}: torch {_torch(facts)} does not have {_what(worst)}{others}"
            f"{_how_compiled(facts, worst)}",
            answers=(*_fitting(question, package, worst), *torch, *taken_out(question, package)),
            means=f"torch itself works; importing {package}, or the part of it that loads that file, fails.",
            error=_complaint(worst),
        )


def extension_without_gpu_code(question: Question) -> Iterator[Seen]:
    """A package whose compiled files hold nothing for a GPU that is here: its first kernel fails."""
    for package, files in _by_package(question.facts).items():
        codes = {code for each in files if isinstance(each.gpu_code, Known) for code in each.gpu_code.value}
        without = [gpu for gpu in _each_once(gpus_of(question)) if _runs(question, codes, gpu) is Runs.NO]
        if not codes or not without:
            continue
        shown = next(each for each in files if isinstance(each.gpu_code, Known))
        names = listed(f"{gpu.name} ({gpu.capability.sm})" for gpu in without)
        yield Seen(
            saw=f"{_named(shown)} holds GPU code for {', '.join(sorted(codes, key=_order))}, nothing for {names}",
            answers=tuple(_for_this_gpu(question, package, shown)),
        )


def linked_to_cuda(facts: Facts, package: str) -> Fact[int]:
    """The CUDA major that all files of a package that run inside torch are linked to, e.g. 12."""
    files = [each for each in _by_package(facts).get(package, ()) if any(map(_is_of_torch, each.needed))]
    majors = [each.cuda_major for each in files if isinstance(each.cuda_major, Known)]
    one = len({each.value for each in majors}) == 1
    return majors[0] if one else Unknown(f"no file of {package} for torch is linked to one CUDA alone")


def _is_of_torch(needed: str) -> bool:
    return needed.startswith(("libtorch", "libc10"))


def _by_package(facts: Facts) -> dict[str, list[Extension]]:
    found: dict[str, list[Extension]] = {}
    for each in facts.extensions.files.value if isinstance(facts.extensions.files, Known) else ():
        found.setdefault(each.package, []).append(each)
    return found


def _worst(files: list[Extension]) -> Extension | None:
    """The file that lacks most of torch, None where none lacks anything."""
    lacking = [each for each in files if _is_lacking(each)]
    return max(lacking, key=lambda each: (len(each.lacks_libraries), _lacking(each)), default=None)


def _is_lacking(each: Extension) -> bool:
    return bool(_lacking(each) or each.lacks_libraries)


def _lacking(each: Extension) -> int:
    return each.symbols.value.lacking if isinstance(each.symbols, Known) else 0


def _named(each: Extension) -> str:
    version = f" {each.version.value}" if isinstance(each.version, Known) else ""
    return f"{each.package}{version}: {each.path}"


def _what(each: Extension) -> str:
    """'13 of the 180 names that it asks for, e.g. c10::cuda::SetDevice (_ZN3c104cuda9SetDeviceEa)', or libraries."""
    parts = []
    if each.lacks_libraries:
        parts.append(f"{listed(each.lacks_libraries)}, which it needs")
    if isinstance(each.symbols, Known) and each.symbols.value.lacking:
        seen = each.symbols.value
        example = f", e.g. {spelled(seen.names[0])}" if seen.names else ""
        names = "the one name" if seen.asked == 1 else f"{seen.lacking} of the {seen.asked} names"
        parts.append(f"{names} that it asks for{example}")
    return ", and ".join(parts)


def spelled(name: str) -> str:
    """A C++ name as people write it before the one the loader prints: c10::SymInt::sym_ne (_ZNK3c106SymInt6...)."""
    match = re.match(r"_ZT[ISV]N|_ZNK?", name)
    parts, at = [], match.end() if match else len(name)
    while digits := re.compile(r"\d+").match(name, at):
        at = digits.end() + int(digits.group()[:4])
        parts.append(name[digits.end() : at])
    return f"{'::'.join(parts)} ({name})" if parts else name


def _torch(facts: Facts) -> str:
    version = facts.torch.value.version if isinstance(facts.torch, Known) else Unknown("no torch")
    return str(version.value) if isinstance(version, Known) else "here"


def _how_compiled(facts: Facts, each: Extension) -> str:
    """Where the two were compiled with different strings, that; it is why the names differ."""
    own, torch = each.strings, facts.extensions.torch_strings
    if isinstance(own, Unknown) or isinstance(torch, Unknown) or own.value is torch.value:
        return ""
    return f"; it was compiled with {_SPOKEN[own.value]}, torch with {_SPOKEN[torch.value]}"


def _complaint(each: Extension) -> str:
    """What the import ends with: the loader names the first of what is missing."""
    if each.lacks_libraries:
        return f"ImportError: {each.lacks_libraries[0]}: cannot open shared object file: No such file or directory"
    names = each.symbols.value.names if isinstance(each.symbols, Known) else ()
    return f"ImportError: {each.path}: undefined symbol: {names[0] if names else '...'}"


def _fitting(question: Question, package: str, each: Extension) -> Iterator[Chain]:
    """The release for this torch, or one compiled here."""
    if _is_cpu(question.facts):
        yield from _without_cuda(question, package)
    else:
        yield from (one for one in for_this_torch(question, package) if not _is_installed(question, one))
        yield from _of_release_page(question, package, each)
    if not _is_tied(package):
        yield from _compiled(question, package, each)


def _of_release_page(question: Question, package: str, each: Extension) -> Iterator[Chain]:
    """Another release, whose own wheel has the strings of the torch that is here; nothing is compiled for it."""
    facts, cuda, strings = question.facts, cuda_of_torch(question), question.facts.extensions.torch_strings
    version = facts.torch.value.version if isinstance(facts.torch, Known) else Unknown("no torch")
    if isinstance(version, Unknown) or isinstance(strings, Unknown) or cuda is None:
        return
    for row in question.tables.release_wheels_for(package, version.value):
        other = isinstance(each.version, Known) and each.version.value.partition("+")[0] != row.version
        if other and (row.strings, row.cuda_major) == (strings.value.value, cuda.major):
            fitting = InstallWheels((Package(package, row.version),))
            yield chain(fitting, proof=Proof.REPORTED, by=row.source)


def _its_torch(question: Question, package: str) -> tuple[Chain, ...]:
    """The torch that a package was made for."""
    companion = next((one for one in question.facts.companions if one.name == package), None)
    return () if companion is None else tuple(one_torch_for_all(question, [(companion, _pin(companion))]))


def _is_cpu(facts: Facts) -> bool:
    build = facts.torch.value.build if isinstance(facts.torch, Known) else Unknown("no torch")
    return isinstance(build, Known) and build.value is TorchBuild.CPU


def _without_cuda(question: Question, package: str) -> Iterator[Chain]:
    """For a torch without CUDA the wheel of PyTorch's CPU index: PyPI's asks for libtorch_cuda.so."""
    torch = question.facts.torch
    if package not in COMPANIONS or isinstance(torch, Unknown) or isinstance(torch.value.version, Unknown):
        return
    rows = question.tables.companions_for(package, torch.value.version.value)
    if fitting := newest(tuple(row.version for row in rows)):
        local = "+cpu" if question.facts.place.arch == "x86_64" else ""
        yield chain(InstallWheels((Package(package, f"{fitting}{local}"),), index_of_build("cpu"), Manner.AGAIN))


def _is_tied(package: str) -> bool:
    """Whether a package has a wheel for every torch, so that nobody compiles it."""
    return package in ("torchvision", "torchaudio", "xformers", "vllm")


def _is_installed(question: Question, answer: Chain) -> bool:
    """Whether an answer installs what is here already and does not ask for it anew."""
    here = {(each.name, each.version) for each in question.facts.companions}
    ways = [way for way in answer.ways if isinstance(way, InstallWheels)]
    return all(
        way.manner is Manner.PLAIN and all((one.project, one.version) in here for one in way.packages) for way in ways
    )


def _pin(companion: Companion) -> str:
    """The torch that a package was made for as a pin: its own, else the release that its build notes name."""
    own = companion.torch_required
    if isinstance(own, Known) and own.value.startswith("=="):
        return own.value
    told = companion.built_for_torch
    return f"=={told.value.partition('+')[0]}" if isinstance(told, Known) else ""


def _compiled(question: Question, package: str, each: Extension) -> Iterator[Chain]:
    """The package compiled here against the torch that is here; a CPU-only torch has nothing to compile CUDA with."""
    if cuda_of_torch(question) is not None and isinstance(each.version, Known):
        named = Package(package, each.version.value.partition("+")[0])
        yield chain(InstallWheels((named,), manner=Manner.COMPILED))


def _for_this_gpu(question: Question, package: str, each: Extension) -> Iterator[Chain]:
    """The release for this torch where it is another one; one compiled for this GPU; doing without it."""
    yield from (one for one in for_this_torch(question, package) if not _is_installed(question, one))
    yield from _compiled(question, package, each)
    yield from taken_out(question, package)


def taken_out(question: Question, *packages: str, title: str = "") -> Iterator[Chain]:
    """Doing without packages, where the environment that holds them may be changed."""
    if environment_to_change(question.facts) is not None:
        yield chain(RemoveDistributions(packages), title=title or f"take {packages[0]} out")


def _runs(question: Question, codes: set[str], gpu: SeenGpu) -> Runs:
    """Whether any code of a package runs on a GPU; where a rule for one of them is not known, it may."""
    cuda = cuda_of_torch(question)
    if cuda is None or not codes:
        return Runs.NOT_KNOWN
    answers = {code_runs(question, code, gpu.capability, torch_cuda=cuda) for code in codes}
    return next((each for each in (Runs.YES, Runs.NOT_KNOWN) if each in answers), Runs.NO)


def _order(code: str) -> tuple[int, str]:
    digits = re.search(r"\d+", code)
    return (int(digits.group()) if digits else 0, code)


def _each_once(gpus: tuple[SeenGpu, ...]) -> tuple[SeenGpu, ...]:
    return tuple({gpu.capability: gpu for gpu in reversed(gpus)}.values())


EXTENSION_RULES = (
    Rule(
        check=extension_lacks_symbols,
        severity=Severity.DEGRADES,
        depth=45,
        title="A compiled package asks torch for functions that this torch does not have.",
        fires_when="A compiled file that is loaded into torch's process needs names of c10, at or torch, or libraries "
        "of torch's, that the installed torch lacks.",
        looks_at=("extensions.files.symbols", "extensions.files.lacks_libraries", "extensions.torch_strings"),
        means="torch itself works; importing that package fails.",
        error="ImportError: ...: undefined symbol: ...",
        source="Dao-AILab/flash-attention#1644",
        ways=TORCH_WAYS,
    ),
    Rule(
        check=extension_without_gpu_code,
        severity=Severity.DEGRADES,
        depth=45,
        title="A compiled package has no code for the GPU that is here.",
        fires_when="None of the machine code and PTX in a package's compiled files runs on one of the GPUs.",
        looks_at=("extensions.files.gpu_code", "gpus.devices"),
        means="It imports, and its first kernel on that GPU fails.",
        error="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        source="Dao-AILab/flash-attention#1146",
        ways=TORCH_WAYS,
    ),
)
