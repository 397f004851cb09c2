"""A build from source, a container image, a cache emptied, and what closes the chain of libraries, as steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.ways.argv import commands
from firstlight.ways.at import At
from firstlight.ways.back import Argv, Back, BackKind, removed_folder, shown
from firstlight.ways.building import (
    NETWORK,
    NOT_MEASURED,
    a_person,
    blank,
    environment_to_change,
    exists,
    holds,
    installed_versions,
    once,
    python_of,
    slug,
    started_with,
    state_of,
    succeeds,
)
from firstlight.ways.kinds import BuildFromSource, ClearCache, CloseLibraries, MakeEnvironment, UseImage
from firstlight.ways.step import Condition, Step, StepKind
from firstlight.ways.wheel_steps import environment_step
from firstlight.ways.words import fitted, title_of

_TORCH = "https://github.com/pytorch/pytorch.git"
_ANEW = ("--force-reinstall", "--no-deps", "--no-cache-dir")  # pip takes the same number in another build for done
_EMPTY = 'there="$("$@")" || exit 1; ! find "$there" -type f -size +64k 2>/dev/null | grep -q .'
_CONDA_EMPTY = '! find "$(conda info --base)/pkgs" -name "*.conda" -o -name "*.tar.bz2" 2>/dev/null | grep -q .'


def source_steps(way: BuildFromSource, at: At) -> Iterator[Step]:
    """The source at its tag and one build for the GPUs that are here."""
    python, archs = python_of(at), ";".join(str(each) for each in way.capabilities)
    if environment_to_change(at.facts) is None:
        yield environment_step(MakeEnvironment(), at)
    replaces = way.project in installed_versions(environment_to_change(at.facts))
    archs_alone = (f"TORCH_CUDA_ARCH_LIST={archs}",) if archs else ()
    settings = started_with(at, *archs_alone, compiler="CUDACXX" if way.project == "torch" else "")
    pip: Argv = (python, "-m", "pip", "install")
    build: tuple[Argv, ...]
    if way.project == "torch":
        folder = f"{state_of(at)}/source/pytorch-{f'v{way.version}' if way.version else 'main'}"
        yield _checkout(way, folder, at)
        build = (
            (*pip, "-r", f"{folder}/requirements.txt"),
            (*settings, *pip, "--no-build-isolation", "-v", folder),
        )
    else:
        wanted = f"{way.project}=={way.version}" if way.version else way.project
        anew = _ANEW if replaces else ()
        build = ((*settings, *pip, *anew, "--no-build-isolation", "--no-binary", way.project, wanted),)
    compiled = (succeeds(python, "-c", "import torch; assert torch.version.cuda"),) if way.project == "torch" else ()
    # The one that the build takes the place of meets the other conditions as well.
    replaced = (once(f"another {way.project} is installed"),) if replaces else ()
    yield replace(
        blank(at),
        id=slug(f"build {way.project}"),
        kind=StepKind.PIP,
        title=title_of(way, at.platform),
        commands=build,
        done_when=(holds(python, (way.project,)), *compiled, *replaced),
        back=shown((python, "-m", "pip", "uninstall", "--yes", way.project)),
        seconds=NOT_MEASURED,
        bytes=NOT_MEASURED,
        note="It takes much memory: MAX_JOBS says how many files are compiled at once.",
    )


def _checkout(way: BuildFromSource, folder: str, at: At) -> Step:
    branch = ("--branch", f"v{way.version}") if way.version else ()
    return replace(
        blank(at),
        id="check-out-pytorch",
        kind=StepKind.GIT,
        title=f"check out PyTorch {f'v{way.version}' if way.version else 'at its main branch'}",
        commands=(("git", "clone", "--recursive", "--depth", "1", *branch, _TORCH, folder),),
        done_when=(exists(f"{folder}/version.txt"),),
        back=(removed_folder(folder),),
        seconds=NETWORK,
        bytes=NOT_MEASURED,
        note=f"Into {folder}. A tag names no commit for good; `git -C DIR rev-parse HEAD` tells which one it was.",
    )


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
