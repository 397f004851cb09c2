"""A CUDA compiler of torch's major as options; a compiler of another major is named unsound, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.build_flags_rules import has_compiler, toolkit_in_use
from firstlight.diagnosis.observed import uses_rpm
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.plan.costs import cost, summed
from firstlight.plan.option import Cost, Kind, Option, Proof, Risk
from firstlight.plan.rights import NO_ROOT, may_become_root
from firstlight.plan.situation import NOT_OF_THE_TOOLKIT, Situation
from firstlight.tables.compiler_rows import ToolkitWheel
from firstlight.versions import CudaVersion

_KIND = Kind.TOOLKIT
_PARTS = "nvcc,cudart,cccl,crt,nvvm"
_PROJECTS = (
    "nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-nvvm",
)  # fmt: skip


def toolkit_options(situation: Situation) -> Iterator[Option]:
    """Toolkits that build extensions for this torch: one that is here, wheels, conda, or the system's package."""
    yield from _hybrid(situation)
    cuda = situation.torch_cuda
    if not situation.answered_by(_KIND):
        return
    if situation.is_primary(*NOT_OF_THE_TOOLKIT):
        yield replace(
            situation.blank(_KIND, "any"),
            title="another CUDA toolkit",
            feasible=False,
            why_not=f"it has to be of torch's major, and {situation.diagnosis.primary} is cured elsewhere",
        )
        return
    if cuda is None:
        yield from _that_are_here(situation, {each.major for each in _compilers(situation)})
        yield replace(
            situation.blank(_KIND, "any"),
            title="a CUDA toolkit",
            feasible=False,
            why_not="the CUDA of torch is not known, and a toolkit has to be of its major",
        )
        return
    yield from _that_are_here(situation, {cuda.major})
    yield _from_wheels(situation, cuda)
    yield _from_conda(situation, cuda)
    yield _from_the_system(situation, cuda)


def _hybrid(situation: Situation) -> Iterator[Option]:
    """nvcc of one major with a torch of another: what comes of it does not load, or is refused before."""
    toolkit, cuda = toolkit_in_use(situation.facts), situation.torch_cuda
    if toolkit is None or isinstance(toolkit.nvcc_version, Unknown) or cuda is None:
        return
    nvcc = toolkit.nvcc_version.value
    if nvcc.major == cuda.major:
        return
    yield replace(
        situation.blank(_KIND, f"hybrid-nvcc-{nvcc.release}-torch-{cuda.release.tag}"),
        title=f"compile with nvcc {nvcc.release}, run with the CUDA {cuda.release} libraries of torch",
        proof=Proof.DOCUMENTED,
        proof_by="torch.utils.cpp_extension, and docs.nvidia.com/deploy/cuda-compatibility",
        feasible=False,
        why_not=_unsound(situation, nvcc, cuda),
        folder=toolkit.path,
    )


def _unsound(situation: Situation, nvcc: CudaVersion, cuda: CudaVersion) -> str:
    refused = f"unsound: torch's extension builder refuses nvcc {nvcc.release} for CUDA {cuda.release}"
    row = situation.question.tables.cuda_major(nvcc.major)
    if row is None or situation.kernel is None or situation.kernel >= row.min_driver_same_major:
        return f"{refused}, and what it builds asks for libcudart.so.{nvcc.major}, which torch does not bring"
    return (
        f"{refused}; nvcc alone links CUDA runtime {nvcc.major} into what it builds, which needs driver "
        f"{row.min_driver_same_major} or newer (here {situation.kernel}: error 35), and LD_LIBRARY_PATH does not "
        "change what is linked in"
    )


def _compilers(situation: Situation) -> Iterator[CudaVersion]:
    for toolkit in situation.facts.toolkits.toolkits:
        if isinstance(toolkit.nvcc_version, Known) and has_compiler(toolkit):
            yield toolkit.nvcc_version.value


def _that_are_here(situation: Situation, majors: set[int]) -> Iterator[Option]:
    # Behind a wrapper nvcc is the right one and CUDA_HOME is not: naming the toolkit is the cure.
    in_use = None if situation.diagnosis.of("nvcc-is-wrapper") else toolkit_in_use(situation.facts)
    for toolkit in situation.facts.toolkits.toolkits:
        known = toolkit.nvcc_version
        if isinstance(known, Unknown) or known.value.major not in majors or not has_compiler(toolkit):
            continue
        if in_use is not None and toolkit.path == in_use.path and not _links(toolkit):
            continue
        yield replace(
            situation.blank(_KIND, toolkit.path),
            title=f"CUDA_HOME={toolkit.path}, whose nvcc is {known.value}{_links(toolkit)}",
            proof=Proof.DOCUMENTED,
            proof_by=f"{known.seen_in}: of the major that torch has",
            folder=toolkit.path,
        )


def _links(toolkit: Toolkit) -> str:
    """What the wheels of a toolkit leave out and a link replaces."""
    parts = ", ".join(part.value for part in toolkit.missing if part in (Part.LIB64, Part.CUDART_LINK))
    return f", with {parts} linked" if parts else ""


def _from_wheels(situation: Situation, cuda: CudaVersion) -> Option:
    """The toolkit as wheels: no root, in the environment of torch; nvcc is in those of CUDA 13 and later alone."""
    tables = situation.question.tables
    rows = [row for row in tables.nvcc_wheels if row.cuda_major == cuda.major]
    release = _release(situation, cuda)
    named = f"cuda-toolkit[{_PARTS}]=={release.release}" if release is not None else f"cuda-toolkit[{_PARTS}]"
    option = replace(
        situation.blank(_KIND, f"wheels-{cuda.release}"),
        title=f"the CUDA {cuda.release} toolkit from wheels beside torch",
        proof=Proof.DOCUMENTED,
        proof_by=rows[0].source if rows else "",
        cost=_wheel_cost(situation, release),
        risk=Risk.LOW,
        brings=(named,),
        folder=_wheel_folder(situation, cuda),
    )
    if any(row.has_nvcc for row in rows):
        return option
    what = f"{rows[0].project} has no nvcc: {rows[0].note}" if rows else f"no wheel of CUDA {cuda.major} is known"
    return replace(option, feasible=False, why_not=what)


def _release(situation: Situation, cuda: CudaVersion) -> ToolkitWheel | None:
    """The release that torch itself pins, so that its CUDA runtime stays as it is; else the newest of torch's CUDA."""
    tables, torch = situation.question.tables, situation.facts.torch
    pins = torch.value.requires if isinstance(torch, Known) else torch
    for pin in pins.value if isinstance(pins, Known) else ():
        if pin.name == "cuda-toolkit" and pin.specifier.startswith("=="):
            wanted = pin.specifier.removeprefix("==").strip()
            found = [row for row in tables.toolkit_wheels if row.release in (wanted, f"{wanted}.0")]
            if found:
                return found[0]
    return tables.toolkit_wheel(CudaVersion(cuda.major, cuda.minor))


def _wheel_cost(situation: Situation, release: ToolkitWheel | None) -> Cost:
    """The sizes of the parts where all are on record; the compiler's wheel decides."""
    tables, arch = situation.question.tables, situation.facts.place.arch
    sizes: list[Fact[int]] = []
    for part in () if release is None else release.parts:
        if part.project in _PROJECTS:
            row = tables.wheel_size(part.project, part.version.removesuffix(".*"), machine=arch)
            missing = Unknown(f"the size of {part} is not in the tables")
            sizes.append(missing if row is None else Known(row.bytes, f"PyPI, {row.date}"))
    total = summed(tuple(sizes)) if sizes else Unknown("the size of the toolkit's wheels is not on record")
    return cost(situation.request, download=total, disk=Unknown("what they take once unpacked is not on record"))


def _wheel_folder(situation: Situation, cuda: CudaVersion) -> str:
    environment = situation.facts.environment
    if environment is None or not environment.site_packages:
        return ""
    return f"{environment.site_packages[0]}/nvidia/cu{cuda.major}"


def _from_conda(situation: Situation, cuda: CudaVersion) -> Option:
    return replace(
        situation.blank(_KIND, f"conda-{cuda.release}"),
        title=f"cuda-toolkit {cuda.release} from conda-forge, in a folder of its own",
        proof=Proof.REPORTED,  # that torch's extension builder takes conda's layout was not tried
        proof_by="anaconda.org/conda-forge/cuda-toolkit: all toolkit packages for CUDA development",
        cost=_unsized(situation, "conda's packages"),
        brings=(f"conda-forge::cuda-toolkit={cuda.release}",),
        folder=f"~/cuda-{cuda.release}",
    )


def _from_the_system(situation: Situation, cuda: CudaVersion) -> Option:
    package = f"cuda-toolkit-{cuda.major}-{cuda.minor}"
    option = replace(
        situation.blank(_KIND, package),
        title=f"{package} from NVIDIA's {'rpm' if uses_rpm(situation.facts) else 'apt'} repository",
        proof=Proof.DOCUMENTED,
        proof_by="docs.nvidia.com/cuda/cuda-installation-guide-linux",
        cost=_unsized(situation, "the packages"),
        needs_root=True,
        risk=Risk.MEDIUM,
        brings=(package,),
        folder=f"/usr/local/cuda-{cuda.release}",
    )
    return option if may_become_root(situation.facts) else replace(option, feasible=False, why_not=NO_ROOT)


def _unsized(situation: Situation, what: str) -> Cost:
    unknown = Unknown(f"the size of {what} is not on record")
    return cost(situation.request, download=unknown, disk=unknown)
