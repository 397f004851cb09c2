"""The other unlike ways out: nothing to do, a repair, a container, a build from source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Finding
from firstlight.diagnosis.observed import container, cuda_works, has_nvidia_gpu, listed, start_with_gpus
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.costs import cost, no_cost, not_known
from firstlight.plan.option import Cost, Kind, Option, Proof, Reversible, Risk
from firstlight.plan.repairs import REPAIRS, Repair
from firstlight.plan.rights import may_become_root
from firstlight.plan.situation import Situation, repairs_of
from firstlight.plan.told_commands import told_command
from firstlight.plan.told_effects import least, reversible_by, takes_root
from firstlight.plan.want import PYTHON, Want
from firstlight.plan.with_set import with_set
from firstlight.versions import CudaVersion

_VENDORS = ("docs.nvidia.com", "docs.pytorch.org", "developer.nvidia.com", "docs.docker.com")


def nothing_to_do(situation: Situation) -> Iterator[Option]:
    """The one option of a machine where nothing blocks and nothing is wanted."""
    facts = situation.facts
    if not has_nvidia_gpu(facts):
        proof, proof_by = Proof.PROVED_HERE, "no NVIDIA GPU was found, and none was asked for"
    elif cuda_works(facts):
        proof, proof_by = Proof.PROVED_HERE, "cuInit returned 0 and listed the GPUs; no kernel was run"
    else:
        proof, proof_by = Proof.GUESSED, "nothing wrong was found; cuInit was not called"
    yield replace(situation.blank(Kind.NOTHING, "as-it-is"), title="leave it as it is", proof=proof, proof_by=proof_by)


def _proof_of(finding: Finding) -> Proof:
    """Documented where the vendor's page or a measured row says so; reported where a thread does."""
    measured = finding.code == "missing-library"  # the wheels that ship a library were listed
    return Proof.DOCUMENTED if measured or finding.source.startswith(_VENDORS) else Proof.REPORTED


def repairs(situation: Situation) -> Iterator[Option]:
    """What the primary finding itself says to do, where no other kind of option stands for it."""
    primary = situation.primary
    codes = () if primary is None else repairs_of(primary)
    if primary is None or not codes or (codes == ("reboot",) and primary.remedies[0] != "reboot"):
        return  # a reboot that only follows another remedy is no way out by itself
    first, *others = [REPAIRS.get(code, Repair(code.replace("-", " "))) for code in codes]
    alternatives = (each for each in others if not each.follows and (not each.waits or each.waits != first.waits))
    blank = situation.blank(Kind.REPAIR, codes[0])
    option = replace(
        blank,
        title=", or ".join((first.title, *(each.title for each in alternatives))),
        proof=_proof_of(primary),
        proof_by=primary.source,
        cost=_cost_of(situation, first),
        needs_root=first.needs_root,
        reversible=least(blank.reversible, first.reversible, reversible_by(primary.do)),
        risk=first.risk,
        brings=primary.do,
    )
    if first.of_the_host and container(situation.facts) is not None:
        option = replace(option, title=f"on the host, not in this container: {option.title}", risk=Risk.HIGH)
    elif first.needs_root and not may_become_root(situation.facts):
        option = replace(option, title=f"{option.title} (by someone who has root here)")
    yield _with_its_torch(situation, option) if first.brings_torch else with_set(situation, option)


def _with_its_torch(situation: Situation, option: Option) -> Option:
    """A repair that installs torch: the wanted set, solved around another torch, would only take its place."""
    named = {"torch", *(word for line in option.brings for word in told_command(line).argv)}
    left = tuple(
        f"{want.text}: {_why_not_known(want, named)}"
        for want in situation.request.wants
        if want.project != PYTHON and (want.project not in named or want.specifier or want.local)
    )
    satisfied = tuple(each for each in option.satisfies if not any(out.startswith(f"{each}:") for out in left))
    return replace(option, satisfies=satisfied, leaves_out=(*option.leaves_out, *left))


def _why_not_known(want: Want, named: set[str]) -> str:
    if want.project in named:
        return f"the version of the {want.project} made for this machine is not on record"
    return (
        "which release of it goes with the torch made for this machine is not on record. Look for it where that torch "
        "comes from; one from PyPI may put another torch in its place"
    )


def as_told(situation: Situation) -> Iterator[Option]:
    """What the primary finding says under `do`, where no kind of option stands for it; of its cost nothing is known."""
    primary = situation.primary
    if primary is None or not primary.do:
        return
    yield replace(
        situation.blank(Kind.REPAIR, primary.code),
        title=primary.do[0].partition("  #")[0],
        proof=_proof_of(primary),
        proof_by=primary.source,
        cost=not_known(situation.request, "what it takes is not known"),
        needs_root=takes_root(primary.do),
        reversible=reversible_by(primary.do),
        risk=Risk.LOW,
        brings=primary.do,
    )


def _cost_of(situation: Situation, repair: Repair) -> Cost:
    nothing = no_cost(situation.request).download_bytes
    amount: Fact[int] = Unknown(repair.fetches) if repair.fetches else nothing
    return cost(situation.request, download=amount, disk=amount, waits=repair.waits)


def container_options(situation: Situation) -> Iterator[Option]:
    """The container started anew, or an image that brings what the host lacks; else a rejection."""
    primary = situation.primary
    blank = replace(
        situation.blank(Kind.CONTAINER, "image"),
        title="a container image",
        proof=Proof.DOCUMENTED,
        proof_by="docs.nvidia.com/datacenter/cloud-native/container-toolkit",
        cost=not_known(situation.request, "the size of the image and the time to start it are not known"),
        risk=Risk.MEDIUM,
    )
    if primary is not None and "restart-with-gpus" in primary.remedies:
        yield from _restarted(situation, blank)
    elif primary is not None and "use-container" in primary.remedies:
        yield replace(
            blank,
            title="a container of a newer distribution, with what the C library here is too old for",
            proof=Proof.GUESSED,
            proof_by="a container brings its own C library; the driver is the host's",
            needs_root=True,
        )
    elif situation.needs is None or not situation.answered_by(Kind.COMPAT):
        yield replace(blank, feasible=False, why_not=f"an image does not answer {situation.diagnosis.primary}")
    else:
        yield _image(situation, blank, needs=situation.needs)


def _restarted(situation: Situation, blank: Option) -> Iterator[Option]:
    facts = situation.facts
    blank = replace(blank, id=f"{Kind.CONTAINER.value}:restart-with-gpus")
    if container(facts) is None:
        yield replace(blank, feasible=False, why_not="this is no container")
        return
    if facts.libcuda.out_of_reach:
        there = min(facts.libcuda.out_of_reach)
        yield replace(blank, feasible=False, why_not=f"the driver's libcuda is in here already: {there}")
        return
    lost = situation.is_primary("no-gpu-in-container", "device-access-lost")
    yield replace(
        blank,
        proof=Proof.DOCUMENTED if lost else Proof.GUESSED,
        title=start_with_gpus(situation.facts),
        cost=not_known(situation.request, "how long this container takes to start is not known"),
        reversible=Reversible.PARTLY,
    )


def _image(situation: Situation, blank: Option, *, needs: CudaVersion) -> Option:
    """An nvidia/cuda image: it holds the compat library, and the container toolkit wires it at start."""
    facts, tables, kernel = situation.facts, situation.question.tables, situation.kernel
    of_major = [row for row in tables.images if row.cuda_at_least.major == needs.major]
    rows = sorted((row for row in of_major if row.cuda_at_least >= needs.release), key=lambda row: row.cuda_at_least)
    fitting = [row for row in rows if kernel is not None and kernel.branch in row.branches]
    row = next(iter(fitting or rows), None)
    name = f"{row.image}-devel" if row is not None else "image"
    option = replace(
        blank,
        id=f"{Kind.CONTAINER.value}:{name}",
        title=f"the image {name}: it holds the compat library, wired when the container starts",
        proof=Proof.REPORTED,
        proof_by="" if row is None else row.source,
        brings=() if row is None else (name,),
    )
    runtime = facts.container.runtime
    has_runtime = isinstance(runtime.container_toolkit, Known) or isinstance(runtime.nvidia_runtime, Known)
    if container(facts) is not None:
        why = "this is a container already; its image is chosen where it is started"
    elif not fitting:
        why = f"no image on record for CUDA {needs.release} lets in driver branch {kernel.branch if kernel else ''}"
    elif not has_runtime:
        why = "no NVIDIA container runtime was found on this host"
    else:
        return with_set(situation, option)
    return replace(option, feasible=False, why_not=why)


def source_options(situation: Situation) -> Iterator[Option]:
    """torch built here for this GPU and a CUDA that runs; the last resort, of which no length is known."""
    arches = listed(str(each) for each in sorted({gpu.capability for gpu in gpus_of(situation.question)}))
    blank = replace(
        situation.blank(Kind.SOURCE, "torch"),
        title=f"torch built from source{f' for compute capability {arches}' if arches else ''}",
        proof=Proof.GUESSED,
        proof_by="github.com/pytorch/pytorch#from-source; not tried on this machine",
        cost=not_known(situation.request, "how long a build takes here is not known"),
        risk=Risk.LOW,
    )
    if situation.answered_by(Kind.SOURCE) or (situation.needs is not None and situation.answered_by(Kind.WHEEL)):
        wanted = situation.torch_cuda
        left: tuple[str, ...] = ()
        if situation.needs is not None and wanted is not None:
            left = (f"torch with CUDA {wanted.release}: it is built with one that driver {situation.kernel} runs",)
        yield replace(blank, leaves_out=(*blank.leaves_out, *left))
        return
    yield replace(blank, feasible=False, why_not=f"{situation.diagnosis.primary or 'nothing'} is not cured by a build")
