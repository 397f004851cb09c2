"""From a judged build to the spec that its stages go by, and to the steps of the journal."""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import replace

from packaging.requirements import Requirement

from firstlight.build.backend import Backend
from firstlight.build.case import BuildCase
from firstlight.build.done import MODULE as DONE
from firstlight.build.fault import Fault
from firstlight.build.flags import FlagVerdict, Through
from firstlight.build.into_prefix import ledger_path
from firstlight.build.keys import digest_of_file
from firstlight.build.logins import address_without_login
from firstlight.build.own_variables import variables_of_the_tree
from firstlight.build.patching import applied_patches
from firstlight.build.preflight_machine import TAKEN_OUT
from firstlight.build.preflight_runtime import requirements_to_bring
from firstlight.build.reads import ReadKind
from firstlight.build.request import Target
from firstlight.build.requirements_here import KEPT
from firstlight.build.run_paths import run_paths
from firstlight.build.spec import SCHEMA, BuildSpec, KindJobs, Setting, Source, SourceSpec, Stage, digest_of
from firstlight.build.tree_state import TreeState
from firstlight.build.wheel_finish import with_local
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.secrets import masked
from firstlight.ways.back import Back, BackKind, shown
from firstlight.ways.building import holds
from firstlight.ways.names import normal
from firstlight.ways.step import CheckKind, Condition, Step, StepKind

WHY = "build"
_TORCH = "https://github.com/pytorch/pytorch.git"
_ENVIRONMENT, _DEFINE = (Through.ENVIRONMENT, Through.BOTH), (Through.DEFINE, Through.BOTH)
_TITLES = {
    Stage.FETCH: "fetch the source",
    Stage.SUBMODULES: "bring the submodules to their commits",
    Stage.PATCH: "apply the patches",
    Stage.REQUIREMENTS: "bring what the wheel requires when it runs",
    Stage.CONFIGURE: "configure",
    Stage.COMPILE: "compile",
    Stage.WHEEL: "make the wheel",
    Stage.INSTALL: "install the wheel",
    Stage.PROVE: "prove it",
}
_NOT_AGAIN = "The wheel lies in {folder}: if this fails, nothing is compiled again."
_NOT_MEASURED: Fact[float] = Unknown("not measured on this machine")
_NOTHING: Fact[int] = Known(0, "nothing is fetched")
_NETWORK: Fact[int] = Unknown("as large as the source is")


def source_of(target: Target, source: str, patches: tuple[str, ...]) -> Source:
    """Where the tree comes from; --source takes the place of what would be fetched."""
    given = masked(target.given)
    paths = tuple(os.path.abspath(each) for each in patches)
    sums = tuple(digest_of_file(each) for each in paths)
    if source:
        return Source(given, folder=os.path.abspath(source), patches=paths, patch_sums=sums)
    if normal(target.name) == "torch":  # the index has wheels of it alone
        return Source(given, url=_TORCH, ref=f"v{target.version}", patches=paths, patch_sums=sums)
    release = f"{target.name}=={target.version}" if target.name else ""
    return Source(
        given, target.folder, target.archive, release, address_without_login(target.url), target.ref, paths, sums
    )


def id_of(target: Target, source: Source, python: str) -> str:
    """A name for the build's folder that stays while target and environment do, e.g. lightgbm-4.7.0-3f2a9c1e."""
    base = os.path.basename(source.folder or source.archive or source.url.rstrip("/").removesuffix(".git")) or "tree"
    for ending in (".tar.gz", ".tar.xz", ".tar.bz2", ".zip"):
        base = base.removesuffix(ending)
    words = f"{target.name}-{target.version}" if target.name else f"{base}-{source.ref}" if source.ref else base
    plain = "".join(each if each.isalnum() or each in "._-" else "-" for each in words)[:60]
    told = "\n".join((source.target, source.folder, source.archive, source.url, source.ref, python))
    return f"{plain}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


def source_spec(build_id: str, folder: str, source: Source) -> SourceSpec:
    return SourceSpec(SCHEMA, build_id, folder, source.folder or f"{folder}/tree", source)


def spec_of(case: BuildCase, source: SourceSpec, state: TreeState) -> BuildSpec:
    """The build as it will be carried out."""
    archs = case.archs.value if isinstance(case.archs, Known) else ()
    toolkit = case.toolkit if case.cuda.compiled else None
    version = toolkit.nvcc_version if toolkit else Unknown("no toolkit")
    compiler = case.facts.compilers.find("g++")
    known = compiler.value.version if isinstance(compiler, Known) else compiler
    tag = f"cu{version.value.major}{version.value.minor}" if isinstance(version, Known) else "cpu"
    return BuildSpec(
        schema=SCHEMA, id=source.id, folder=source.folder, tree=source.tree, source=source.source, commit=state.commit,
        edits=state.edits, tree_digest=state.digest, name=case.project.name, version=case.project.version,
        backend=case.project.backend,
        python=case.tools.python.value if isinstance(case.tools.python, Known) else "",
        settings=_settings(case, source.folder), defines=_defines(case, source.folder),
        removed=tuple(name for name in TAKEN_OUT),
        archs=tuple(map(str, archs)), sms=tuple(each.sm for each in archs), toolkit=toolkit.path if toolkit else "",
        toolkit_version=str(version.value) if isinstance(version, Known) else "",
        compiler=_compilers(case, known),
        kinds=tuple(KindJobs(each.kind, each.jobs) for each in case.needs.by_kind), jobs=case.needs.jobs,
        targets=case.project.targets, only=case.request.only, links=_links(case),
        prefix=case.request.prefix, wheel_only=case.request.wheel_only, max_minutes=case.request.max_minutes,
        local=".".join(("fl", tag, *(each.sm.replace("_", "") for each in archs))),
        requires=requirements_to_bring(case), no_deps=case.request.no_deps,
    )  # fmt: skip


def _compilers(case: BuildCase, version: Fact[str]) -> str:
    """g++ 12.2.0, CUDAHOSTCXX=g++-11 11.4.0: what compiles here, with what variables say otherwise."""
    own = [f"g++ {version.value}"] if isinstance(version, Known) else []
    for each in case.facts.compilers.chosen:
        known = f" {each.version.value}" if isinstance(each.version, Known) else ""
        own.append(f"{each.variable}={os.path.basename(each.command)}{known}")
    return ", ".join(own)


def _links(case: BuildCase) -> tuple[Setting, ...]:
    return tuple(
        Setting(os.path.basename(each.found.value).partition(".so")[0] + ".so", each.found.value)
        for each in case.libraries
        if isinstance(each.found, Known) and isinstance(each.link, Unknown)
    )


def _settings(case: BuildCase, folder: str) -> tuple[Setting, ...]:
    """Variables of the environment: flags that are read there, the toolkit, the architectures, one thread a unit."""
    found = {each.flag.name: each.flag.value for each in case.judged if each.through in _ENVIRONMENT
             and each.verdict is FlagVerdict.READ}  # fmt: skip
    if case.cuda.compiled and case.toolkit is not None:
        found.setdefault("CUDA_HOME", case.toolkit.path)
        found.setdefault("CUDACXX", f"{case.toolkit.path}/bin/nvcc")
    if isinstance(case.archs, Known):
        archs = ";".join(map(str, case.archs.value))
        if case.project.backend in (Backend.TORCH_EXTENSION, Backend.PYTORCH):
            found.setdefault("TORCH_CUDA_ARCH_LIST", archs)
        if case.project.backend in (Backend.SETUPTOOLS, Backend.OTHER) and case.source.cmake_files:
            found.setdefault("CUDAARCHS", ";".join(each.cmake for each in case.archs.value))  # CMake itself reads it
    for name, value in variables_of_the_tree(case, folder).items():
        found.setdefault(name, value)
    if case.project.backend is Backend.PYTORCH and case.project.version:  # else the commit goes into the version
        found.setdefault("PYTORCH_BUILD_VERSION", case.project.version)
        found.setdefault("PYTORCH_BUILD_NUMBER", "1")
    if case.source.of("NVCC_THREADS"):
        found.setdefault("NVCC_THREADS", "1")
    for name in case.source.names:
        if name.endswith("_FORCE_BUILD") and any(each.kind is ReadKind.ENVIRONMENT for each in case.source.of(name)):
            found.setdefault(name, "TRUE")  # else such a setup.py takes a wheel of its release page, where there is one
    for each in case.libraries:
        if isinstance(each.link, Unknown) and isinstance(each.found, Known):
            found.setdefault(f"{each.feature.library.upper()}_ROOT", f"{folder}/links")
            found["CPATH"], found["LIBRARY_PATH"] = f"{folder}/links/include", f"{folder}/links/lib"
    if isinstance(case.beside_torch, Known) and case.beside_torch.value:
        found["CPATH"] = ":".join(each for each in (found.get("CPATH", ""), case.beside_torch.value) if each)
    if paths := run_paths(case):
        found.setdefault("LD_RUN_PATH", ":".join(paths))  # for linkers that are given no RPATH; CMake has its own below
    return tuple(Setting(*each) for each in sorted(found.items()))


def _defines(case: BuildCase, folder: str) -> tuple[Setting, ...]:
    """What CMake is told by -D."""
    if case.project.backend is not Backend.SKBUILD:
        return ()
    found = {each.flag.name: each.flag.value for each in case.judged if each.through in _DEFINE
             and each.verdict is FlagVerdict.READ}  # fmt: skip
    if isinstance(case.archs, Known):
        found.setdefault("CMAKE_CUDA_ARCHITECTURES", ";".join(each.cmake for each in case.archs.value))
    if paths := run_paths(case):
        found.setdefault("CMAKE_INSTALL_RPATH", ";".join(paths))
    if isinstance(case.tools.cache, Known):
        for language in ("C", "CXX", *(("CUDA",) if case.cuda.compiled else ())):
            found.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", case.tools.cache.value)
    return tuple(Setting(*each) for each in sorted(found.items()))


def source_steps(spec: SourceSpec, runner: str) -> tuple[Step, ...]:
    """Fetch, submodules and patches, where some are asked for or in the tree from before."""
    patched = spec.source.patches or applied_patches(spec.folder)
    stages = [Stage.FETCH, Stage.SUBMODULES, *([Stage.PATCH] if patched else [])]
    return tuple(_step(each, spec.folder, digest_of(spec), runner) for each in stages)


def build_steps(spec: BuildSpec, runner: str) -> tuple[Step, ...]:
    """Configure, compile, wheel, install and prove; with --target the first two alone."""
    digest = digest_of(spec)
    stages = [Stage.CONFIGURE, Stage.COMPILE]
    if spec.only:
        return tuple(_step(each, spec.folder, digest, runner) for each in stages)
    steps = [requirements_step(spec, runner)] if spec.requires else []
    steps += [_step(each, spec.folder, digest, runner) for each in (*stages, Stage.WHEEL)]
    if not spec.wheel_only:
        steps.append(install_step(spec, runner))
    return (*steps, _step(Stage.PROVE, spec.folder, digest, runner))


def bringing_step(fault: Fault) -> Step:
    """The command of a fault of preflight, PYTHON -m pip install ..., as a step that can be taken back."""
    python, _, _, _, *wanted = argv = tuple(shlex.split(fault.command))
    return Step(
        id=f"bring-{fault.code}",
        kind=StepKind.PIP,
        title="install what it is built with: " + " ".join(wanted),
        because=WHY,
        commands=(argv,),
        files=(),
        needs_root=False,
        done_when=(holds(python, tuple(wanted)),),
        back=shown((python, "-m", "pip", "uninstall", "--yes", *(Requirement(each).name for each in wanted))),
        seconds=_NOT_MEASURED,
        bytes=_NETWORK,
    )


def requirements_step(spec: BuildSpec, runner: str) -> Step:
    """pip brings what the wheel requires; all that is installed stays in its version, or pip refuses."""
    kept, names = f"{spec.folder}/{KEPT}", tuple(normal(Requirement(each).name) for each in spec.requires)
    base = _step(Stage.REQUIREMENTS, spec.folder, digest_of(spec), runner)
    return replace(
        base,
        kind=StepKind.PIP,
        done_when=(holds(spec.python, names), *base.done_when),
        commands=((spec.python, "-m", "pip", "install", "--constraint", kept, *spec.requires),),
        back=shown((spec.python, "-m", "pip", "uninstall", "--yes", *names)),
        note="Before anything is compiled. --no-deps leaves it out.",
        bytes=_NETWORK,
    )


def install_step(spec: BuildSpec, runner: str) -> Step:
    """pip installs the wheel; what was there before comes back with `undo`."""
    if spec.prefix:
        return _prefix_step(spec, runner)
    version = installed_version(spec)
    wanted = normal(spec.name) + (f"=={version}" if "*" not in version else "")
    argv = (
        spec.python, "-m", "pip", "install", "--no-deps", "--force-reinstall", "--no-index", "--find-links",
        spec.wheels, wanted,
    )  # fmt: skip
    base = _step(Stage.INSTALL, spec.folder, digest_of(spec), runner)
    return replace(
        base,
        kind=StepKind.PIP,
        commands=(argv,),
        done_when=(holds(spec.python, (f"{normal(spec.name)}=={version}",)), *base.done_when),
        back=shown((spec.python, "-m", "pip", "uninstall", "--yes", spec.name)),
        note=_NOT_AGAIN.format(folder=spec.wheels),
    )


def _prefix_step(spec: BuildSpec, runner: str) -> Step:
    """The files of the wheel below the prefix, by a ledger that takes them out again."""
    base, ledger = _step(Stage.INSTALL, spec.folder, digest_of(spec), runner), ledger_path(spec)
    return replace(
        base,
        done_when=(Condition(CheckKind.FILE_EXISTS, ledger), *base.done_when),
        back=(Back(BackKind.TAKE_OUT_OF_PREFIX, (ledger,)),),
        note=_NOT_AGAIN.format(folder=spec.wheels),
    )


def installed_version(spec: BuildSpec) -> str:
    """The version of the wheel: 4.7.0+fl.cu130.sm90; * for the part that is made while it is built."""
    return with_local(spec.version or "*", spec.local)


def _step(stage: Stage, folder: str, digest: str, runner: str) -> Step:
    done = Condition(CheckKind.COMMAND, runner, argv=(runner, "-m", DONE, folder, stage.value, digest))
    return Step(
        id=stage.value,
        kind=StepKind.COMMAND,
        title=_TITLES[stage],
        because=WHY,
        commands=((runner, "-m", "firstlight.build.stage", folder, stage.value, digest),),
        files=(),
        needs_root=False,
        done_when=(done,),
        back=(),
        seconds=_NOT_MEASURED,
        bytes=_NETWORK if stage in (Stage.FETCH, Stage.SUBMODULES) else _NOTHING,
    )
