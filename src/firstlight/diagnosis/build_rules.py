"""Rules about the CUDA toolkit an extension would be built with: which one, what it lacks, what it does not accept."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.build_flags_rules import BLOCKS_BUILDS, BUILD_FLAGS_RULES, BUILDING
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.host_compiler_rules import HOST_COMPILER_RULES
from firstlight.diagnosis.observed import listed, shown
from firstlight.diagnosis.toolkit_answers import (
    TOOLKIT_WAYS,
    cuda_home,
    is_wheel,
    missing_links,
    package_of,
    toolkit_answers,
    wheels_of,
)
from firstlight.diagnosis.toolkit_in_use import has_compiler, is_wrapped, toolkit_in_use
from firstlight.diagnosis.wheel_answers import TORCH_WAYS, torch_answers
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.facts.torch_install import TorchBuild, TorchInstall
from firstlight.versions import CudaVersion
from firstlight.ways.way import Chain, chain

_NEEDED = (
    Part.NVCC, Part.PTXAS, Part.CICC, Part.LIBDEVICE, Part.CRT_HEADERS, Part.RUNTIME_HEADER, Part.CUDART_LINK,
    Part.CUDART_STATIC, Part.CUDADEVRT,
)  # fmt: skip
_LINKS = (Part.LIB64, Part.CUDART_LINK)  # what the wheels leave out and a link replaces
_TUPLE_SINCE = (2, 8)  # from here on cpp_extension prints its message unformatted, as a tuple


def nvcc_major_differs(question: Question) -> Iterator[Seen]:
    """cpp_extension refuses an nvcc of another major than torch's CUDA."""
    facts, toolkit = question.facts, toolkit_in_use(question.facts)
    if toolkit is None or isinstance(toolkit.nvcc_version, Unknown) or isinstance(facts.torch, Unknown):
        return
    torch, nvcc = facts.torch.value, toolkit.nvcc_version.value
    if isinstance(torch.wheel_cuda, Unknown) or torch.wheel_cuda.value.major == nvcc.major:
        return
    yield Seen(
        saw=f"nvcc {shown(toolkit.nvcc_version)}; torch {_version(torch)} is built for CUDA {shown(torch.wheel_cuda)}",
        answers=(*toolkit_answers(question), *torch_answers(question, lambda wheel: wheel.cuda.major == nvcc.major)),
        means=f"torch.utils.cpp_extension stops with: {_refusal(torch, nvcc, torch.wheel_cuda.value)}",
    )


def _refusal(torch: TorchInstall, nvcc: CudaVersion, cuda: CudaVersion) -> str:
    """The message as this torch prints it."""
    if isinstance(torch.version, Known) and torch.version.value.release[:2] >= _TUPLE_SINCE:
        return (
            "RuntimeError: ('The detected CUDA version (%s) mismatches the version that was used to compilePyTorch "
            f"(%s). Please make sure to use the same CUDA versions.', '{nvcc.release}', '{cuda.release}')"
        )
    return (
        f"RuntimeError: The detected CUDA version ({nvcc.release}) mismatches the version that was used to compile "
        f"PyTorch ({cuda.release}). Please make sure to use the same CUDA versions."
    )


def nvcc_minor_differs(question: Question) -> Iterator[Seen]:
    """Another minor of the same major: cpp_extension only remarks on it."""
    facts, toolkit = question.facts, toolkit_in_use(question.facts)
    if toolkit is None or isinstance(toolkit.nvcc_version, Unknown) or isinstance(facts.torch, Unknown):
        return
    torch, nvcc = facts.torch.value, toolkit.nvcc_version.value
    if isinstance(torch.wheel_cuda, Unknown) or torch.wheel_cuda.value.major != nvcc.major:
        return
    if torch.wheel_cuda.value.minor != nvcc.minor:
        built = f"torch {_version(torch)} is built for CUDA {shown(torch.wheel_cuda)}"
        yield Seen(saw=f"nvcc {shown(toolkit.nvcc_version)}; {built}")


def toolkit_incomplete(question: Question) -> Iterator[Seen]:
    """A toolkit without the parts that a build touches; the wheels lack two links that nvcc and -lcudart want."""
    facts = question.facts
    toolkit = toolkit_in_use(facts)
    if toolkit is None:
        toolkit = next((each for each in facts.toolkits.toolkits if is_wheel(each) and has_compiler(each)), None)
    if toolkit is None or (question.goal not in BUILDING and not has_compiler(toolkit)):
        return
    wanted = (*_NEEDED, Part.LIB64) if is_wheel(toolkit) else _NEEDED
    lacks = [part for part in wanted if part in toolkit.missing]
    if lacks:
        yield Seen(
            saw=f"the toolkit at {toolkit.path} lacks {listed(part.value for part in lacks)}",
            answers=tuple(dict.fromkeys((*_complete(question, toolkit, lacks), *toolkit_answers(question)))),
        )


def _complete(question: Question, toolkit: Toolkit, lacks: list[Part]) -> Iterator[Chain]:
    """The same toolkit made whole: by links where they are all it lacks, else by the packages it comes from."""
    cuda = toolkit.version.value if isinstance(toolkit.version, Known) else None
    links = missing_links(toolkit)
    if all(part in _LINKS for part in lacks) and links:
        yield chain(*links)
    elif cuda is not None:
        packages = package_of(question, cuda)
        if is_wheel(toolkit) or packages:
            yield chain(wheels_of(question, cuda), *links) if is_wheel(toolkit) else chain(*packages)


def cuda_home_unset(question: Question) -> Iterator[Seen]:
    """cpp_extension looks at CUDA_HOME, CUDA_PATH, nvcc on PATH and /usr/local/cuda; not into site-packages."""
    facts, home = question.facts, question.facts.toolkits.cpp_extension_home
    if toolkit_in_use(facts) is not None or not _is_for_cuda(facts):
        return
    if isinstance(home, Known) and home.seen_in == "nvcc on PATH":
        return  # nvcc-is-wrapper speaks for it
    there = [each for each in facts.toolkits.toolkits if has_compiler(each)]
    is_set = isinstance(home, Known) and home.seen_in != home.value  # /usr/local/cuda is only torch's guess
    if question.goal not in BUILDING and not there and not is_set:
        return
    found = home.reason if isinstance(home, Unknown) else f"no toolkit is at {shown(home)}"
    others = listed(f"{each.path} ({_nvcc(each)})" for each in there)
    yield Seen(
        saw=f"{found}; " + (f"nvcc is in {others}" if there else "no nvcc was found anywhere"),
        answers=toolkit_answers(question),
    )


def nvcc_is_wrapper(question: Question) -> Iterator[Seen]:
    """cpp_extension takes the folder above nvcc's for the toolkit, which is wrong for a script elsewhere."""
    on_path, home = question.facts.toolkits.nvcc_on_path, question.facts.toolkits.cpp_extension_home
    is_asked = question.goal in BUILDING or isinstance(question.facts.torch, Known)
    if not is_wrapped(question.facts) or not is_asked or not _is_for_cuda(question.facts):
        return
    assert isinstance(on_path, Known)
    assert isinstance(home, Known)
    real = on_path.value.toolkit
    starts = f"starts {real.value}/bin/nvcc" if isinstance(real, Known) else "does not say which nvcc it starts"
    own = (chain(cuda_home(real.value)),) if isinstance(real, Known) else toolkit_answers(question)
    yield Seen(
        saw=f"{on_path.value.path} is a wrapper that {starts}; cpp_extension takes {home.value} for CUDA_HOME",
        answers=own,
    )


def _version(torch: TorchInstall) -> str:
    return str(torch.version.value) if isinstance(torch.version, Known) else "of unknown version"


def _nvcc(toolkit: Toolkit) -> str:
    return str(toolkit.nvcc_version.value) if isinstance(toolkit.nvcc_version, Known) else "version not known"


def _is_for_cuda(facts: Facts) -> bool:
    """Whether torch is one that takes CUDA extensions; one that is not installed yet may become one."""
    if isinstance(facts.torch, Unknown) or isinstance(facts.torch.value.build, Unknown):
        return True
    return facts.torch.value.build.value is TorchBuild.CUDA


BUILD_RULES = (
    Rule(
        check=cuda_home_unset,
        severity=Severity.NOTE,
        depth=60,
        title="The extension builder of torch would find no CUDA toolkit.",
        fires_when="None of CUDA_HOME, CUDA_PATH, nvcc on PATH and /usr/local/cuda leads to a toolkit; without any "
        "nvcc on the machine only where something is to be built.",
        looks_at=("toolkits.cpp_extension_home", "toolkits.toolkits", "torch.build"),
        means="Building a CUDA extension stops before its first file. torch does not look for nvcc among the wheels.",
        error="OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        source="github.com/pytorch/pytorch/pull/197483",
        ways=(*TOOLKIT_WAYS, *TORCH_WAYS),
        for_goals=BLOCKS_BUILDS,
    ),
    Rule(
        check=nvcc_is_wrapper,
        severity=Severity.NOTE,
        depth=60,
        title="nvcc on PATH is a wrapper outside the toolkit, and CUDA_HOME is not set.",
        fires_when="nvcc on PATH is a script or a compiler cache outside any toolkit, and cpp_extension derives its "
        "folder from it.",
        looks_at=("toolkits.nvcc_on_path", "toolkits.cpp_extension_home"),
        means="nvcc itself works, but headers and libraries are looked for in the wrong folder.",
        error="fatal error: cuda_runtime.h: No such file or directory",
        source="docs.pytorch.org/docs/stable/cpp_extension.html",
        ways=(*TOOLKIT_WAYS, *TORCH_WAYS),
        for_goals=BLOCKS_BUILDS,
    ),
    Rule(
        check=nvcc_major_differs,
        severity=Severity.NOTE,
        depth=60,
        title="The CUDA compiler has another major version than torch's CUDA.",
        fires_when="The nvcc that torch.utils.cpp_extension would start has another major than torch.version.cuda.",
        looks_at=("toolkits.cpp_extension_home", "toolkits.toolkits", "torch.wheel_cuda"),
        needs=("toolkits.cpp_extension_home",),
        means="The extension builder of torch refuses to build. Only the major counts: another minor is accepted.",
        error="RuntimeError: The detected CUDA version (13.0) mismatches the version that was used to compile PyTorch "
        "(12.8). Please make sure to use the same CUDA versions.",
        source="github.com/SarahWeiii/diso/issues/25",
        ways=(*TOOLKIT_WAYS, *TORCH_WAYS),
        for_goals=BLOCKS_BUILDS,
    ),
    Rule(
        check=nvcc_minor_differs,
        severity=Severity.NOTE,
        depth=60,
        title="The CUDA compiler has another minor version than torch's CUDA: that is fine.",
        fires_when="The nvcc that torch.utils.cpp_extension would start has torch's major and another minor.",
        looks_at=("toolkits.cpp_extension_home", "toolkits.toolkits", "torch.wheel_cuda"),
        needs=("toolkits.cpp_extension_home",),
        means="Extensions build; torch only prints a remark.",
        error="The detected CUDA version (12.9) has a minor version mismatch with the version that was used to compile "
        "PyTorch (12.8). Most likely this shouldn't be a problem.",
        source="docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        ways=(),
    ),
    Rule(
        check=toolkit_incomplete,
        severity=Severity.NOTE,
        depth=60,
        title="The CUDA toolkit lacks parts that a build needs.",
        fires_when="The toolkit that would be used lacks a compiler part, a header or a library of the CUDA runtime, "
        "or it comes from wheels and lacks lib64 or libcudart.so.",
        looks_at=("toolkits.toolkits", "toolkits.cpp_extension_home"),
        needs=("toolkits.cpp_extension_home",),
        means="Compiling or linking an extension fails.",
        error="/usr/bin/ld: cannot find -lcudadevrt: No such file or directory",
        source="pypi.org/project/cuda-toolkit",
        ways=(*TOOLKIT_WAYS, *TORCH_WAYS),
        for_goals=BLOCKS_BUILDS,
    ),
    *HOST_COMPILER_RULES,
    *BUILD_FLAGS_RULES,
)
