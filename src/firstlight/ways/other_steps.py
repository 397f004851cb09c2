"""A build from source, a container image, a cache emptied, and what closes the chain of libraries, as steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.ways.argv import commands
from firstlight.ways.at import At
from firstlight.ways.back import Argv, Back, BackKind, shown
from firstlight.ways.building import (
    NETWORK,
    NOT_MEASURED,
    a_person,
    blank,
    environment_to_change,
    holds,
    once,
    python_of,
    slug,
    succeeds,
)
from firstlight.ways.compile_jobs import jobs_in_words
from firstlight.ways.kinds import BuildFromSource, ClearCache, CloseLibraries, MakeEnvironment, UseImage
from firstlight.ways.step import Condition, Step, StepKind
from firstlight.ways.wheel_steps import environment_step
from firstlight.ways.words import fitted, title_of

_MAIN = {"torch": "git+https://github.com/pytorch/pytorch.git"}  # where no release is named
_BY_OPTIONS = ("CUDA_HOME", "CUDACXX", "PATH", "TORCH_CUDA_ARCH_LIST")  # said by --toolkit and --archs
_STAGES = (
    "It fetches the source, names every fault before anything is compiled, continues where it was stopped, and proves "
    "the wheel. `firstlight build --status --follow` shows from another shell how far it is; undo leaves the tree."
)
_EMPTY = 'there="$("$@")" || exit 1; ! find "$there" -type f -size +64k 2>/dev/null | grep -q .'
_CONDA_EMPTY = '! find "$(conda info --base)/pkgs" -name "*.conda" -o -name "*.tar.bz2" 2>/dev/null | grep -q .'


def source_steps(way: BuildFromSource, at: At) -> Iterator[Step]:
    """One step: `firstlight build`, whose stages are known once the source is here, for the GPUs at hand."""
    python = python_of(at)
    if environment_to_change(at.facts) is None:
        yield environment_step(MakeEnvironment(), at)
    compiled = (succeeds(python, "-c", "import torch; assert torch.version.cuda"),) if way.project == "torch" else ()
    yield replace(
        blank(at),
        id=slug(f"build {way.project}"),
        kind=StepKind.BUILD,
        title=title_of(way, at.platform),
        commands=(_build_command(way, python, at),),
        done_when=(holds(python, (_built_here(way),)), *compiled),
        back=shown((python, "-m", "pip", "uninstall", "--yes", way.project)),
        seconds=NOT_MEASURED,
        bytes=NOT_MEASURED,
        note=f"{jobs_in_words(way.project, at.facts, at.tables)}. {_STAGES}",
    )


def _build_command(way: BuildFromSource, python: str, at: At) -> Argv:
    """firstlight build torch==2.9.1 --archs 9.0 --python ...; with the toolkit that ways before it brought."""
    target = f"{way.project}=={way.version.removeprefix('v')}" if way.version else _MAIN.get(way.project, way.project)
    archs = ("--archs", ",".join(str(each) for each in way.capabilities)) if way.capabilities else ()
    home = next((each.value for each in at.for_builds if each.name == "CUDA_HOME"), "")
    toolkit = ("--toolkit", home) if home else ()
    others = tuple(f"{each.name}={each.value}" for each in at.for_builds if each.name not in _BY_OPTIONS)
    return (
        *(("env", *others) if others else ()),
        "firstlight",
        "build",
        target,
        *archs,
        *toolkit,
        "--python",
        python,
        "--yes",
    )


def _built_here(way: BuildFromSource) -> str:
    """What is installed afterwards, by the local version that `firstlight build` gives: torch==2.9.1*fl*sm90."""
    codes = "".join(f".{each.sm.replace('_', '')}" for each in way.capabilities)
    return f"{way.project}=={way.version.removeprefix('v')}*fl.*{codes.removeprefix('.')}"


def image_steps(way: UseImage, at: At) -> Iterator[Step]:
    """The image pulled and tried."""
    pull, try_it = commands(way, at.platform)
    step = replace(blank(at), kind=StepKind.COMMAND, seconds=NETWORK)
    yield replace(
        step,
        id="pull-image",
        title=fitted(f"pull {way.image}"),
        commands=(pull,),
        done_when=(succeeds("docker", "image", "inspect", way.image),),
        back=(Back(BackKind.REMOVE_IMAGE, (way.image,)),),
        bytes=NETWORK,
    )
    yield replace(
        step,
        id="try-image",
        title=fitted(f"see that {way.image} has the GPUs"),
        commands=(try_it,),
        done_when=(once("it leaves nothing behind"),),
        note="NVIDIA_REQUIRE_CUDA of the image is checked here, and its compat library is put in where it is needed.",
    )


def cache_steps(way: ClearCache, at: At) -> Iterator[Step]:
    """The tool's own command; what it would fetch again is lost."""
    python = python_of(at) if environment_to_change(at.facts) is not None else "python3"
    where: tuple[str, ...] = ("uv", "cache", "dir") if way.tool == "uv" else (python, "-m", "pip", "cache", "dir")
    run = commands(way, at.platform)
    if way.tool == "pip":
        run = ((python, *run[0][1:]),)
    yield replace(
        blank(at),
        id=slug(f"empty cache {way.tool}"),
        kind=StepKind.COMMAND,
        title=title_of(way, at.platform),
        commands=run,
        done_when=(_empty(way.tool, where),),
        note="Not taken back: what is needed again is fetched again.",
    )


def _empty(tool: str, where: tuple[str, ...]) -> Condition:
    return succeeds("sh", "-c", _CONDA_EMPTY) if tool == "conda" else succeeds("sh", "-c", _EMPTY, "sh", *where)


def library_steps(way: CloseLibraries, at: At) -> Iterator[Step]:
    """The steps that were made when the machine's libraries were read; without that, the command that makes them."""
    if at.extras.closing is not None:
        yield from (replace(step, because=at.because) for step in at.extras.closing)
        return
    yield replace(
        blank(at),
        id="close-libraries",
        kind=StepKind.LIBRARIES,
        title=title_of(way, at.platform),
        commands=(("firstlight", "libs", "--fix"),),
        done_when=(a_person("`firstlight libs` finds nothing missing"),),
        seconds=NETWORK,
        bytes=NETWORK,
        note="Which wheels and links that takes is worked out from the libraries on the machine itself.",
    )
