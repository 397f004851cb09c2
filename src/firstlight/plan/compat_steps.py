"""Forward compatibility as steps: get the library (apt, archive or conda), then wire it when a program starts."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_choice import branches_of, driver_runs
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import uses_rpm
from firstlight.errors import BadVersion
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.back import Back, BackKind, removed_file, removed_folder, shown, through
from firstlight.plan.building import (
    NETWORK,
    NOT_MEASURED,
    Argv,
    as_root,
    blank,
    conda_step,
    environment_to_change,
    exists,
    interpreter_of,
    packages_back,
    slug,
    succeeds,
    written,
)
from firstlight.plan.extras import Extras
from firstlight.plan.option import Option
from firstlight.plan.shell_commands import ends_in_the_open
from firstlight.plan.start_file import LINE_FILE, MODULE, START_LINE, start_module
from firstlight.plan.start_script import Wiring, asks_cuda, run_script, wire_script
from firstlight.plan.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.versions import CudaVersion, DriverVersion

REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"
REDIST = "https://developer.download.nvidia.com/compute/cuda/redist/cuda_compat"
_APT, _REDIST = "NVIDIA apt", "NVIDIA redist"  # channels of the table compat_downloads
_KEYRING = "cuda-keyring_1.1-1_all.deb"
_PACKAGE = re.compile(r"cuda-compat-(?:orin-)?(\d+)-(\d+)")
_ARCHIVE = re.compile(r"cuda_compat-(linux-[a-z0-9_]+)-([\d.]+)_cuda(\d+\.\d+)-archive\.tar\.xz")
_CONDA = re.compile(r"(?P<channel>[\w.-]+)::(?P<package>cuda-compat)=(?P<cuda>\d+\.\d+)")


def compat_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """Repository, package or archive, and the wiring; where the library is here already, the wiring alone."""
    folder = expanded(question, option.folder, extras)
    for piece in option.brings:
        if match := _PACKAGE.fullmatch(piece):
            yield from repository_step(question, option)
            yield _package(question, option, package=piece, folder=folder)
        elif match := _ARCHIVE.fullmatch(piece):
            yield _archive(question, option, match=match, folder=folder)
        elif match := _CONDA.fullmatch(piece):
            folder = _conda_prefix(question, extras, match["cuda"]) + "/cuda-compat"
            yield _conda(option, match=match, folder=folder)
    yield from wiring_steps(question, option, folder=folder, extras=extras)


def expanded(question: Question, folder: str, extras: Extras) -> str:
    """A folder as programs take it: ~ is the home folder."""
    home = extras.home_for(question.facts)
    return f"{home}/{folder[2:]}" if folder.startswith("~/") else folder


def repository_of(question: Question) -> str:
    """The folder of NVIDIA's network repository for this system, e.g. .../ubuntu2404/x86_64; '' where none is known."""
    place = question.facts.place
    if isinstance(place.os_id, Unknown) or isinstance(place.os_version, Unknown):
        return ""
    release = place.os_version.value
    # NVIDIA names Ubuntu by both numbers and the others by the first: ubuntu2404, debian12, rhel9.
    if place.os_id.value == "ubuntu":
        name = f"ubuntu{release.replace('.', '')}"
    elif place.os_id.value in ("rocky", "almalinux", "centos", "rhel", "ol"):
        name = f"rhel{release.partition('.')[0]}"
    elif place.os_id.value in ("debian", "fedora"):
        name = f"{place.os_id.value}{release.partition('.')[0]}"
    elif place.os_id.value == "amzn":
        name = f"amzn{release}"
    else:
        return ""
    return f"{REPOSITORIES}/{name}/{'sbsa' if place.arch == 'aarch64' else place.arch}"


def repository_step(question: Question, option: Option) -> Iterator[Step]:
    """NVIDIA's package repository, with its signing key from the keyring package."""
    facts, address = question.facts, repository_of(question)
    if not address:
        yield replace(
            blank(option),
            id="set-up-repository",
            title="set up NVIDIA's package repository",
            done_when=(Condition(CheckKind.PERSON, "the package manager knows NVIDIA's repository"),),
            note="Which repository this system takes is not known: docs.nvidia.com/cuda/cuda-installation-guide-linux.",
        )
        return
    if uses_rpm(facts):
        name = address.rsplit("/", 2)[1]
        target = f"/etc/yum.repos.d/cuda-{name}.repo"
        commands: tuple[Argv, ...] = (as_root(facts, "curl", "-fsSL", "-o", target, f"{address}/cuda-{name}.repo"),)
        back: tuple[Back, ...] = (through(commands[0], removed_file(target)),)
        done = (exists(target),)
    else:
        target = f"/tmp/{_KEYRING}"  # noqa: S108 named so that a reader can look at it before it is installed
        commands = (
            ("curl", "-fsSL", "-o", target, f"{address}/{_KEYRING}"),
            as_root(facts, "dpkg", "--install", target),
            as_root(facts, "apt-get", "update"),
        )
        back = shown(as_root(facts, "dpkg", "--purge", "cuda-keyring"), as_root(facts, "apt-get", "update"))
        done = (Condition(CheckKind.APT_PACKAGE, "cuda-keyring"),)  # dpkg-query also shows what is half installed
    yield replace(
        blank(option),
        id="set-up-repository",
        kind=StepKind.APT,
        title="set up NVIDIA's package repository and its signing key",
        commands=commands,
        needs_root=True,
        done_when=done,
        back=back,
        seconds=NETWORK,
        bytes=NOT_MEASURED,
        note="The CUDA images of NVIDIA have it set up already.",
    )


def _package(question: Question, option: Option, *, package: str, folder: str) -> Step:
    facts = question.facts
    manager = ("dnf", "install", "--assumeyes") if uses_rpm(facts) else ("apt-get", "install", "--yes")
    removal = ("dnf", "remove", "--assumeyes") if uses_rpm(facts) else ("apt-get", "remove", "--yes")
    return replace(
        blank(option),
        id=slug(f"install {package}"),
        kind=StepKind.APT,
        title=f"install {package}",
        commands=(as_root(facts, *manager, package),),
        needs_root=True,
        done_when=(
            Condition(CheckKind.APT_PACKAGE, package) if not uses_rpm(facts) else succeeds("rpm", "-q", package),
            exists(f"{folder}/libcuda.so.1"),
        ),
        back=packages_back(as_root(facts, *removal, package)),
        seconds=NETWORK,
        bytes=_size(question, package),
        note=f"The package holds libraries in {folder} and configures nothing; the next step wires them.",
    )


def _size(question: Question, package: str) -> Fact[int]:
    for row in question.tables.compat_downloads(_APT, question.facts.place.arch):
        if row.file.startswith(f"{package}_"):
            return Known(row.download_bytes, f"{row.source}, {row.date}")
    return Unknown(f"no size of {package} is on record")


def _archive(question: Question, option: Option, *, match: re.Match[str], folder: str) -> Step:
    """NVIDIA's redist archive, checked and unpacked flat into the folder: how it is laid out inside does not matter."""
    name, driver, cuda = match.group(0), match[2], CudaVersion.parse(match[3])
    rows = [row for row in question.tables.compat_downloads(_REDIST, question.facts.place.arch) if row.file == name]
    address = f"{REDIST}/{match[1]}/{name}"
    target = f"{posixpath.dirname(folder)}/{name}"
    check = (("sha256sum", "--check", f"{target}.sha256"),) if rows else ()
    sums = FileChange(f"{target}.sha256", "", f"{rows[0].sha256}  {target}\n") if rows else None
    unpack = ("tar", "--extract", "--file", target, "--directory", folder, "--transform", "s|.*/||", "--wildcards")
    return replace(
        blank(option),
        id=slug(f"unpack cuda-compat-{cuda}"),
        kind=StepKind.ARCHIVE,
        title=f"unpack the compat library of CUDA {cuda} into {folder}",
        commands=(
            ("mkdir", "-p", folder),
            ("curl", "-fsSL", "-o", target, address),
            *check,
            (*unpack, "*/lib*.so*"),
            ("ln", "-sf", f"libcuda.so.{driver}", f"{folder}/libcuda.so.1"),
        ),
        files=() if sums is None else (sums,),
        done_when=(exists(f"{folder}/libcuda.so.{driver}"), exists(f"{folder}/libcuda.so.1")),
        back=(removed_folder(folder), removed_file(target)),
        seconds=NETWORK,
        bytes=Known(rows[0].download_bytes, f"{rows[0].source}, {rows[0].date}")
        if rows
        else Unknown(f"{name} is not on record"),
        note="" if rows else f"No checksum of {name} is on record; compare it with the redistrib file of its release.",
    )


def _conda_prefix(question: Question, extras: Extras, cuda: str) -> str:
    return f"{extras.state_for(question.facts)}/conda-compat-{cuda}"


def _conda(option: Option, *, match: re.Match[str], folder: str) -> Step:
    step = conda_step(option, match=match, prefix=posixpath.dirname(folder), brings=f"{folder}/libcuda.so.1")
    return replace(step, note="micromamba and mamba take the same arguments.")


def wiring_steps(question: Question, option: Option, *, folder: str, extras: Extras) -> Iterator[Step]:
    """The start script; optional are a line for new shells and a start file for Python: all look at every start."""
    wiring = wiring_of(question, option, folder=folder, extras=extras)
    changes = (
        FileChange(wiring.wire, extras.text_of(wiring.wire) or "", wire_script(wiring)),
        FileChange(wiring.run, extras.text_of(wiring.run) or "", run_script(wiring), mode=0o755),
    )
    yield replace(
        blank(option),
        id="wire-compat-at-start",
        kind=StepKind.COMPAT,
        title=f"wire {folder} when a program starts, if the driver loaded then needs it",
        files=changes,
        commands=((wiring.run, "true"),),  # asks cuInit once and writes down what it said
        done_when=(
            *(written(change) for change in changes),
            succeeds(wiring.run, wiring.python, "-c", asks_cuda(_number(wiring.cuda))),
        ),
        back=(Back(BackKind.FORGET_PROOFS, (wiring.here,)),),
        note=f"Start programs with {wiring.run} PROGRAM. LD_LIBRARY_PATH is set for that program alone, after the "
        f"driver and cuInit were asked; FIRSTLIGHT_COMPAT=off leaves it out.",
    )
    yield from _shell_line(question, option, wiring=wiring, extras=extras)
    yield from _start_file(question, option, wiring=wiring, extras=extras)


def wiring_of(question: Question, option: Option, *, folder: str, extras: Extras) -> Wiring:
    """What the start script is told: the branches are those that the library takes and that need it."""
    cuda = _cuda_of(question, option, folder)
    environment = question.facts.environment
    return Wiring(
        folder=folder,
        cuda=str(cuda.release),
        branches=_branches(question, cuda, folder),
        python="python3" if environment is None else interpreter_of(environment),
        here=f"{extras.state_for(question.facts)}/compat",
    )


def _cuda_of(question: Question, option: Option, folder: str) -> CudaVersion:
    """The CUDA of the library: by the piece that is brought, else by the library's own note, else by its folder."""
    for piece in option.brings:
        if match := _PACKAGE.fullmatch(piece):
            return CudaVersion(int(match[1]), int(match[2]))
        if match := _ARCHIVE.fullmatch(piece):
            return CudaVersion.parse(match[3])
        if match := _CONDA.fullmatch(piece):
            return CudaVersion.parse(match["cuda"])
    for library in question.facts.compat:
        if library.folder == folder or folder in library.aliases:
            if isinstance(library.note, Known):
                return library.note.value.cuda
            native = question.tables.native_cuda(library.version.value) if isinstance(library.version, Known) else None
            if native is not None:
                return native
    match = re.search(r"cuda-?(\d+\.\d+)", folder)
    try:
        return CudaVersion.parse(match.group(1) if match else "")
    except BadVersion:
        return max((row.cuda for row in question.tables.compat_packages), default=CudaVersion(13, 0))


def _branches(question: Question, cuda: CudaVersion, folder: str) -> tuple[int, ...]:
    """Branches that the library takes, less those that run its CUDA major by themselves: there it is not needed."""
    accepted: set[int] = set()
    for library in question.facts.compat:
        if library.folder == folder or folder in library.aliases:
            accepted.update(branches_of(question, library)[0])
    if not accepted:
        for row in question.tables.accepts_kernel_branch(cuda, 0).rows:
            accepted.update(row.accepts)
    return tuple(sorted(branch for branch in accepted if not _runs_alone(question, branch, cuda)))


def _runs_alone(question: Question, branch: int, cuda: CudaVersion) -> bool:
    return driver_runs(question, DriverVersion.parse(f"{branch}.999"), major=cuda.major)


def _number(cuda: str) -> int:
    """13000 of 13.0, as cuDriverGetVersion counts."""
    version = CudaVersion.parse(cuda)
    return 1000 * version.major + 10 * version.minor


def _shell_line(question: Question, option: Option, *, wiring: Wiring, extras: Extras) -> Iterator[Step]:
    path = f"{extras.home_for(question.facts)}/.profile"
    before = extras.text_of(path)
    script = shlex.quote(wiring.wire)
    line = f"[ ! -r {script} ] || . {script}\n"
    if before is None or line in before or not ends_in_the_open(before):
        return
    gap = "" if before.endswith("\n") or not before else "\n"
    change = FileChange(path, before, f"{before}{gap}{line}")
    yield replace(
        blank(option),
        id="wire-compat-in-login-shells",
        kind=StepKind.FILE,
        title="let login shells wire it too",
        files=(change,),
        done_when=(Condition(CheckKind.FILE_HAS_LINE, path, line.rstrip("\n")),),
        optional=True,
        note="Without it only programs started through the start script get the library. Open a new login shell after.",
    )


def start_files(question: Question) -> tuple[str, ...]:
    """The module and the .pth file in the environment that may be changed; () where there is none.

    The module comes first: a .pth file without it makes every start of Python complain.
    """
    environment = environment_to_change(question)
    if environment is None or not environment.site_packages:
        return ()
    folder = environment.site_packages[0]
    return (f"{folder}/{MODULE}.py", f"{folder}/{LINE_FILE}")


def _start_file(question: Question, option: Option, *, wiring: Wiring, extras: Extras) -> Iterator[Step]:
    paths = start_files(question)
    if not paths or not extras.state:  # nobody looked at the machine's files: what lies there now is not known
        return
    texts = (start_module(wiring), START_LINE)
    changes = tuple(FileChange(path, extras.text_of(path) or "", text) for path, text in zip(paths, texts, strict=True))
    yield replace(
        blank(option),
        id="wire-compat-in-python",
        kind=StepKind.FILE,
        title="let every start of this Python load it too",
        files=changes,
        commands=((wiring.python, "-m", "py_compile", paths[0]),),
        done_when=(
            *(written(change) for change in changes),
            succeeds(wiring.python, "-c", asks_cuda(_number(wiring.cuda))),
        ),
        back=(Back(BackKind.FORGET_COMPILED, (posixpath.dirname(paths[0]),)),),
        optional=True,
        note=f"For notebooks and services that no shell starts. Only what {wiring.run} or {wiring.wire} saw work is "
        "loaded, for the driver loaded then; pip, uv and venv are left alone.",
    )
