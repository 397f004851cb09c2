"""A kit around one CUDA program: Makefile, pinned image, a preflight that proves the machine, and sources to build."""

from __future__ import annotations

from importlib.resources import files as package_files

from firstlight.emit.containers import SHARED_MEMORY_GIB
from firstlight.emit.dockerfile import HOME, base_of, image_files, image_name
from firstlight.emit.document import Emitted, EmittedFile, ToRun
from firstlight.emit.header import header_lines
from firstlight.emit.quoting import Quoted
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject
from firstlight.emit.tool import FOLDER, REQUIREMENT, emitted_wheel, where_from
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.tables.setting_rows import SourceTag
from firstlight.versions import ComputeCapability
from firstlight.ways.building import split_requirement

NONE = "none"  # --base none: no image
CUTLASS = "v4.3.0"
PLACE = "/opt/kit"  # the kit in its image
CUTLASS_PLACE = "/opt/cutlass"
PROGRAM = "build/sparse_bsr_gemm_h100"
EXAMPLE_BASE = "nvidia/cuda:13.0.2-devel-ubuntu24.04"
_HOPPER = ComputeCapability(9, 0)
# What the program is made of, below firstlight/kernels/sm90; the kit has the same two folders below src.
SOURCES = (
    *(f"bsr_bench/{name}" for name in (
        "Makefile", "call.h", "check.cuh", "kernel.cu", "lists.h", "main.cu", "maps.h", "options.h", "product.h",
        "report.h", "turn_over.cu",
    )),
    *(f"cuda/{name}" for name in (
        "multiply.cu", "multiply_activation.cuh", "multiply_consumer.cuh", "multiply_loads.cuh",
        "multiply_products.cuh", "multiply_results.cuh", "ptx.cuh", "roles.cuh", "turn.cu", "wgmma.cuh",
    )),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pin:
    """A line of team.toml: torch, 2.9.0+cu130."""

    project: str
    version: str


def emit_kit(subject: Subject) -> Emitted:
    """Makefile, preflight.sh, team.toml, README.md, the sources, and what the image is built from."""
    _refuse_other_gpus(subject)
    in_image = subject.choices.base != NONE
    _refuse_no_digest(subject) if in_image else _refuse_names_of_no_image(subject)
    image = _image_files(subject) if in_image else ()
    files = (
        EmittedFile("Makefile", _filled("kit_makefile.j2", subject)),
        EmittedFile("README.md", _filled("kit_readme.md.j2", subject)),
        EmittedFile("preflight.sh", _filled("kit_preflight.sh.j2", subject), 0o755),
        EmittedFile("team.toml", _filled("kit_team.toml.j2", subject)),
        *image,
        *_sums(subject),
    )
    sources = tuple(EmittedFile(f"src/{name}", source_text(name)) for name in SOURCES)
    plan, wheel = subject.plan.digest, emitted_wheel(subject)
    return Emitted("kit", files, subject.gates, plan, _notes(subject), sources=sources, to_run=_TO_RUN, wheel=wheel)


def source_text(name: str) -> str:
    """One source of the program, e.g. source_text("cuda/multiply.cu"), as it lies in this package."""
    return package_files("firstlight").joinpath(f"kernels/sm90/{name}").read_text(encoding="utf-8")


def runs_on(subject: Subject) -> bool:
    """Whether one of the GPUs is a Hopper, which the program holds code for alone."""
    capabilities = (gpu.capability for gpu in subject.facts.gpus.devices)
    return any(isinstance(each, Known) and each.value == _HOPPER for each in capabilities)


def _refuse_other_gpus(subject: Subject) -> None:
    if not runs_on(subject):
        raise BadInput(
            f"emit kit for {subject.made_for}: its program is compiled for sm_90a, and no GPU there is known to have "
            'compute capability 9.0; accepted: machines with H100, H200 or GH200, e.g. --for "H100, driver >= 580", '
            "or --facts of one."
        )


def _refuse_no_digest(subject: Subject) -> None:
    base = subject.choices.base
    if "@sha" in base and base_of(subject):
        return
    named = base_of(subject) if base else EXAMPLE_BASE
    given = f"--base {base[:80]}: it has no digest" if base else "emit kit needs --base, an image with nvcc"
    raise BadInput(
        f"{given}, and firstlight asks no registry for one. Find it with `docker buildx imagetools inspect {named}` or "
        f"`skopeo inspect docker://{named}`; accepted: --base {named}@sha256:DIGEST, or --base none for a kit without "
        "an image, which is built on the machine itself."
    )


def _refuse_names_of_no_image(subject: Subject) -> None:
    for option, value in (("--user", subject.choices.user), ("--name", subject.choices.name)):
        if value:
            raise BadInput(f"{option} {value[:40]!a} beside --base none: there is no image; accepted without it.")


def _image_files(subject: Subject) -> tuple[EmittedFile, ...]:
    """The files of `emit dockerfile`; at the end of the Dockerfile CUTLASS and the program are added."""
    dockerfile, *others = image_files(subject, "kit")
    return (EmittedFile(dockerfile.name, dockerfile.text + _filled("kit_dockerfile.j2", subject)), *others)


def _sums(subject: Subject) -> tuple[EmittedFile, ...]:
    """What `sha256sum -c` reads beside the wheel."""
    wheel = subject.wheel
    return () if wheel is None else (EmittedFile(f"{FOLDER}/SHA256SUMS", f"{wheel.sha256}  {wheel.name}\n"),)


def _filled(template: str, subject: Subject) -> str:
    in_image = subject.choices.base != NONE
    gates, cuda = subject.gates, subject.gates.wheel_cuda
    return render(
        template,
        # make goes on with a comment on the next line where it ends with a backslash
        header=tuple(f"{line} " if line.endswith("\\") else line for line in header_lines(subject, "kit")),
        in_image=in_image,
        image=Quoted(image_name(subject)) if in_image else Quoted(""),
        place=Quoted(PLACE),
        python=Quoted(f"{HOME}/env/bin/python"),
        shared_memory=SHARED_MEMORY_GIB,
        program=Quoted(PROGRAM),
        cutlass=cutlass(subject),
        cutlass_place=Quoted(CUTLASS_PLACE),
        wheel=subject.wheel,
        requirement=REQUIREMENT,
        min_driver=str(gates.min_driver.value) if isinstance(gates.min_driver, Known) else "",
        toolkit_major=cuda.value.major if isinstance(cuda, Known) else 0,
        pins=tuple(_Pin(*split_requirement(each)) for each in subject.requirements),
    )


def cutlass(subject: Subject) -> SourceTag:
    """The row of CUTLASS in the tables: its tag, its commit, its address."""
    row = subject.tables.source_tag("cutlass", CUTLASS)
    assert row is not None, f"tables source_tags has no cutlass {CUTLASS}"
    return row


_TO_RUN = (ToRun("In the folder of these files", "make build lock verify run"),)


def _notes(subject: Subject) -> tuple[str, ...]:
    where = (
        "make takes docker or podman where one is in PATH; CONTAINER=none builds and runs on the machine itself."
        if subject.choices.base != NONE
        else "There is no image in it: nvcc, make and firstlight of the machine are used, and no CUTLASS."
    )
    return where, where_from(subject)
