"""Forward compatibility as steps: the library out of NVIDIA's archive, and the wiring when a program starts."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.shells.kinds import Dialect, dialect_of
from firstlight.versions import CudaVersion
from firstlight.ways.at import At
from firstlight.ways.back import Back, BackKind, removed_file, removed_folder
from firstlight.ways.building import (
    NETWORK,
    a_person,
    blank,
    environment_to_change,
    exists,
    expanded,
    home_of,
    interpreter_of,
    slug,
    state_of,
    succeeds,
    written,
)
from firstlight.ways.kinds import FetchCompat, Why, WireCompat
from firstlight.ways.shell_edits import line_step, login_files
from firstlight.ways.start_file import LINE_FILE, MODULE, START_LINE, start_module
from firstlight.ways.start_script import Wiring, asks_cuda, run_script, wire_script
from firstlight.ways.step import FileChange, Step, StepKind
from firstlight.ways.words import title_of

REDIST = "https://developer.download.nvidia.com/compute/cuda/redist/cuda_compat"
_REDIST = "NVIDIA redist"  # channel of the table compat_downloads
_PLATFORMS = {"x86_64": "linux-x86_64", "aarch64": "linux-sbsa"}


def archive_steps(way: FetchCompat, at: At) -> Iterator[Step]:
    """NVIDIA's redist archive, checked and unpacked flat into the folder: how it is laid out inside does not matter."""
    folder, arch = expanded(way.folder, at), at.facts.place.arch
    row = next((row for row in at.tables.compat_downloads(_REDIST, arch) if row.file == way.file), None)
    target = f"{posixpath.dirname(folder)}/{way.file}"
    check = (("sha256sum", "--check", f"{target}.sha256"),) if row else ()
    sums = (FileChange(f"{target}.sha256", "", f"{row.sha256}  {target}\n"),) if row else ()
    unpack = ("tar", "--extract", "--file", target, "--directory", folder, "--transform", "s|.*/||", "--wildcards")
    yield replace(
        blank(at),
        id=slug(f"unpack cuda-compat-{way.cuda}"),
        kind=StepKind.ARCHIVE,
        title=title_of(way, at.platform),
        commands=(
            ("mkdir", "-p", folder),
            ("curl", "-fsSL", "-o", target, f"{REDIST}/{_PLATFORMS.get(arch, f'linux-{arch}')}/{way.file}"),
            *check,
            (*unpack, "*/lib*.so*"),
            ("ln", "-sf", f"libcuda.so.{way.driver}", f"{folder}/libcuda.so.1"),
        ),
        files=sums,
        done_when=(exists(f"{folder}/libcuda.so.{way.driver}"), exists(f"{folder}/libcuda.so.1")),
        back=(removed_folder(folder), removed_file(target)),
        seconds=NETWORK,
        bytes=Known(row.download_bytes, f"{row.source}, {row.date}")
        if row
        else Unknown(f"{way.file} is not on record"),
        note=f"Into {folder}." if row else f"No checksum of {way.file} is on record; compare it with its release's.",
    )


def wiring_steps(way: WireCompat, at: At) -> Iterator[Step]:
    """The start script, a line for new shells and a start file for Python: all look at every start.

    The last two are optional, and programs are started through the script; not where every program had the library so
    far: what ran by itself still does.
    """
    wiring = wiring_of(way, at)
    changes = (
        FileChange(wiring.wire, at.extras.text_of(wiring.wire) or "", wire_script(wiring)),
        FileChange(wiring.run, at.extras.text_of(wiring.run) or "", run_script(wiring), mode=0o755),
    )
    yield replace(
        blank(at),
        id="wire-compat-at-start",
        kind=StepKind.COMPAT,
        title=title_of(way, at.platform),
        files=changes,
        commands=((wiring.run, "true"),),  # asks cuInit once and writes down what it said
        done_when=(
            *(written(change) for change in changes),
            succeeds(wiring.run, wiring.python, "-c", asks_cuda(_number(way.cuda))),
        ),
        back=(Back(BackKind.FORGET_PROOFS, (wiring.here,)),),
        note="LD_LIBRARY_PATH is set for a program that is started through it, after the driver and cuInit were asked; "
        "FIRSTLIGHT_COMPAT=off leaves it out.",
    )
    if wiring.folder in at.unwired:
        for step in (*_shell_lines(wiring, at, _shell_files(at)), *_start_file(way, wiring, at)):
            yield replace(step, optional=False)
        return
    there = tuple(path for path in login_files(at) if at.extras.text_of(path) is not None)
    others = (*_shell_lines(wiring, at, there), *_start_file(way, wiring, at))
    yield _started_through(wiring, at, others)
    yield from others


def wiring_of(way: WireCompat, at: At) -> Wiring:
    """What the start script is told."""
    environment = at.facts.environment
    return Wiring(
        folder=expanded(way.folder, at),
        cuda=str(way.cuda.release),
        branches=way.branches,
        python="python3" if environment is None else expanded(interpreter_of(environment), at),
        here=f"{state_of(at)}/compat",
    )


def _number(cuda: CudaVersion) -> int:
    """13000 of 13.0, as cuDriverGetVersion counts."""
    return 1000 * cuda.major + 10 * cuda.minor


def _started_through(wiring: Wiring, at: At, others: tuple[Step, ...]) -> Step:
    """`others`: what brings the library to programs that are started otherwise, as far as this plan has it."""
    unless = ", unless the optional steps are done too" if any(each.optional for each in others) else ""
    return replace(
        blank(at),
        id="start-programs-through-it",
        title="start a program that needs the library like this",
        commands=((wiring.run, wiring.python, "PROGRAM.py"),),
        done_when=(a_person("the program finds the GPUs"),),
        note=f"By you: {Why.PROGRAM.value}. A program that is started in another way does not get the library{unless}.",
    )


def _shell_files(at: At) -> tuple[str, ...]:
    """What new shells of this user read: the same files that a folder is taken out of where nobody knows who set it."""
    bashrc = f"{home_of(at)}/.bashrc"
    return (*login_files(at), *((bashrc,) if at.extras.text_of(bashrc) is not None else ()))


def _shell_lines(wiring: Wiring, at: At, paths: tuple[str, ...]) -> Iterator[Step]:
    script = shlex.quote(wiring.wire)
    line = f"[ ! -r {script} ] || . {script}"
    for path in (each for each in paths if dialect_of(each, "") is Dialect.SH):
        step = line_step(path, (line,), at, change=FileChange("", "", ""), title="let login shells wire it too")
        if path.endswith("/.bashrc"):
            step = replace(step, title="let other shells than login shells wire it too")
        if step.files and step.files[0].after == step.files[0].before:
            continue
        yield replace(
            step,
            id="wire-compat-in-login-shells",
            optional=True,
            note=f"Without it only programs started through the start script get the library. {step.note}",
        )


def start_files(facts: Facts) -> tuple[str, ...]:
    """The module and the .pth file in the environment that may be changed; () where there is none.

    The module comes first: a .pth file without it makes every start of Python complain.
    """
    environment = environment_to_change(facts)
    if environment is None or not environment.site_packages:
        return ()
    folder = environment.site_packages[0]
    return (f"{folder}/{MODULE}.py", f"{folder}/{LINE_FILE}")


def _start_file(way: WireCompat, wiring: Wiring, at: At) -> Iterator[Step]:
    paths = start_files(at.facts)
    if not paths or not at.extras.state:  # nobody looked at the machine's files: what lies there now is not known
        return
    texts = (start_module(wiring), START_LINE)
    changes = tuple(
        FileChange(path, at.extras.text_of(path) or "", text) for path, text in zip(paths, texts, strict=True)
    )
    yield replace(
        blank(at),
        id="wire-compat-in-python",
        kind=StepKind.FILE,
        title="let every start of this Python load it too",
        files=changes,
        commands=((wiring.python, "-m", "py_compile", paths[0]),),
        done_when=(
            *(written(change) for change in changes),
            succeeds(wiring.python, "-c", asks_cuda(_number(way.cuda))),
        ),
        back=(Back(BackKind.FORGET_COMPILED, (posixpath.dirname(paths[0]),)),),
        optional=True,
        note=f"For notebooks and services that no shell starts. It loads only a library that {wiring.run} or "
        f"{wiring.wire} saw working with the driver of that moment; pip, uv and venv are left alone.",
    )
