"""A batch script for Slurm: a shared folder, no root, and what is asked of a machine asked on every node of the job."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.emit.bash import environment_key, pythons_of, state_folder, wiring_in
from firstlight.emit.bench_job import NOT_RUN, PORT, bench_name, bench_words
from firstlight.emit.document import Emitted, EmittedFile, ToRun, made_by
from firstlight.emit.gates import CompatPart, gates_of
from firstlight.emit.header import header_lines
from firstlight.emit.preflight import preflight_functions
from firstlight.emit.quoting import Quoted, sh_words
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject, shipped_digest
from firstlight.emit.tool import REQUIREMENT, emitted_wheel, tool_key, wheel_functions, where_from
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.tables.compat_rows import CompatDownload
from firstlight.ways.compat_steps import REDIST
from firstlight.ways.start_script import Wiring, run_script, wire_script

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REDIST = "NVIDIA redist"  # channel of the table compat_downloads
_PLATFORMS = {"x86_64": "linux-x86_64", "aarch64": "linux-sbsa"}
# xz need not be installed on a node; Python has it built in, or says that it has not.
_UNPACK = """\
import hashlib, os, shutil, sys, tarfile, urllib.request
address, wanted, folder = sys.argv[1:]
work = "%s.new.%d" % (folder, os.getpid())
os.makedirs(work)
try:
    archive, digest = work + "/archive", hashlib.sha256()
    with urllib.request.urlopen(address, timeout=60) as there, open(archive, "wb") as here:
        while block := there.read(1 << 20):
            digest.update(block)
            here.write(block)
    if digest.hexdigest() != wanted:
        sys.exit("firstlight: %s: its SHA-256 is not %s, which is on record; it is not used" % (address, wanted))
    with tarfile.open(archive) as files:
        for member in files:
            name = os.path.basename(member.name)
            if not name.startswith("lib") or ".so" not in name:
                continue
            if member.issym():
                os.symlink(os.path.basename(member.linkname), work + "/" + name)
            elif member.isfile():
                with open(work + "/" + name, "wb") as out:
                    shutil.copyfileobj(files.extractfile(member), out)
    os.remove(archive)
    if not os.path.exists(work + "/libcuda.so.1"):
        found = sorted(name for name in os.listdir(work) if name.startswith("libcuda.so."))
        os.symlink(found[0], work + "/libcuda.so.1")
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(work, folder)
finally:
    shutil.rmtree(work, ignore_errors=True)
"""


@dataclass(frozen=True, slots=True)
class _Install:
    index: str
    words: Quoted


@dataclass(frozen=True, slots=True)
class _Compat:
    """What the template writes about compat."""

    file: str
    address: str
    sha256: str
    folder: str
    branches: str
    wire: Quoted
    run: Quoted
    unpack: Quoted


def emit_slurm(subject: Subject) -> Emitted:
    """NAME.sbatch: prepares once under a lock, then starts the command on every node behind the gates."""
    planned = subject
    subject, archive = _without_root(planned)
    name, state = bench_name(subject, _job_name(subject)), state_folder(subject)
    bench = subject.bench
    on_node = render(
        "on_node.sh.j2",
        made_by=made_by(),
        gates=preflight_functions(subject.gates, subject.target.machine),
        asks_for_gpu=subject.gates.asks_for_gpu,
        compat=bool(subject.compat),
        run=f"{state}/slurm/run",
        library=f"{_wiring(subject, state).folder}/libcuda.so.1" if subject.compat else "",
    )
    text = render(
        "slurm.sh.j2",
        header=header_lines(subject, "slurm"),
        name=Quoted(name),
        state=state,
        tool=tool_key(subject),
        requirement=REQUIREMENT,
        own_wheel=wheel_functions(subject),
        key=environment_key(subject),
        pythons=" ".join(pythons_of(subject)),
        asks_for_gpu=subject.gates.asks_for_gpu,
        nodes=1 if bench is None else bench.nodes,
        gpus=1 if bench is None else bench.gpus,
        bench="" if bench is None else sh_words(bench_words(subject)),
        port=PORT,
        parts=tuple(_installs(subject)),
        numpy=subject.numpy,
        compat=_compat(subject, archive, state=state) if archive is not None else None,
        on_node=Quoted(on_node),
    )
    return Emitted(
        "slurm",
        (EmittedFile(f"{name}.sbatch", text, 0o755),),
        subject.gates,
        subject.plan.digest,
        _notes(subject, archive, state),
        to_run=_to_measure(name) if bench else _to_run(f"sbatch {name}.sbatch"),
        what=_what(subject, archive) if planned.compat else "",
        compat=subject.compat,
        wheel=emitted_wheel(subject),
    )


def _notes(subject: Subject, archive: CompatDownload | None, state: str) -> tuple[str, ...]:
    """What has to be known before the script is used."""
    notes = [
        f"{state} must be seen by every node; another: --volume FOLDER. Account and partition are the site's to name.",
        where_from(subject),
    ]
    if subject.bench is not None:
        notes.append(NOT_RUN)
    if archive is not None:
        notes.append(
            f"Without root compat comes from NVIDIA's archive {archive.file}, not from the package of the plan."
        )
    return tuple(notes)


def _to_run(sbatch: str) -> tuple[ToRun, ...]:
    return ToRun("Prove the environment", sbatch), ToRun("Your own program", f"{sbatch} python train.py")


def _to_measure(name: str) -> tuple[ToRun, ...]:
    return (
        ToRun("Measure", f"sbatch {name}.sbatch"),
        ToRun("Less of it", f"sbatch {name}.sbatch --effort quick --max-size 16MiB"),
        ToRun("Compare two of its files", f"firstlight bench compare {name}-1.json {name}-2.json"),
    )


def _what(subject: Subject, archive: CompatDownload | None) -> str:
    """What the script brings where the plan has a package that needs root."""
    packages = ", ".join(subject.requirements)
    if archive is None:
        return f"{packages}, without a compat library: no archive on record fits, and the package needs root"
    return f"the CUDA {archive.cuda} compat library of NVIDIA's archive, wired at each start; and {packages}"


def _without_root(subject: Subject) -> tuple[Subject, CompatDownload | None]:
    """The subject with a compat library that needs no root: an archive on record, and the gates that go with it."""
    if not subject.compat:
        return subject, None
    found = [
        (part, row)
        for row in subject.tables.compat_downloads(_REDIST, subject.target.machine)
        if row.sha256 and row.cuda.major == subject.compat[0].cuda.major and row.cuda >= subject.compat[0].cuda
        for part in (_part_of(subject, row),)
        if part.branches
    ]
    kernel = subject.facts.driver.kernel_version
    branch = kernel.value.branch if isinstance(kernel, Known) else 0
    if not found:
        return _gated(subject, ()), None
    part, row = max(found, key=lambda each: (branch in each[0].branches, len(each[0].branches), -each[0].cuda.minor))
    return _gated(subject, (part,)), row


def _part_of(subject: Subject, row: CompatDownload) -> CompatPart:
    tables, alone = subject.tables, subject.gates.min_driver_alone
    accepted = {branch for each in tables.accepts_kernel_branch(row.cuda, 0).rows for branch in each.accepts}
    floor = alone.value.branch if isinstance(alone, Known) else 0
    return CompatPart(row.file, row.cuda, tuple(sorted(branch for branch in accepted if branch < floor)))


def _gated(subject: Subject, compat: tuple[CompatPart, ...]) -> Subject:
    gates = subject.gates
    again = gates_of(
        gates.torch, gates.wheel_cuda, machine=subject.target.machine, compat=compat, tables=subject.tables
    )
    digest = shipped_digest(subject.plan.digest, subject.parts, compat=compat, target=subject.target)
    return replace(subject, compat=compat, gates=again, plan=replace(subject.plan, digest=digest))


def _job_name(subject: Subject) -> str:
    name = subject.choices.name or f"torch-{subject.gates.torch}".replace("+", "-")
    if not _JOB.fullmatch(name):
        raise BadInput(f"--name {name[:40]!a}: accepted for a job are up to 64 letters, digits and . _ -.")
    return name


def _installs(subject: Subject) -> list[_Install]:
    """One run of pip for each index; what was installed before is named again so that it stays."""
    found: list[_Install] = []
    before: tuple[str, ...] = ()
    for part in subject.parts:
        found.append(_Install(part.index, sh_words((*part.requirements, *before))))
        before += part.requirements
    return found


def _wiring(subject: Subject, state: str) -> Wiring:
    """Beside that of pod_setup.sh, whose library may be another; the environment's own python3 is first in PATH."""
    return replace(wiring_in(subject, state, python="python3"), here=f"{state}/slurm")


def _compat(subject: Subject, row: CompatDownload, *, state: str) -> _Compat:
    wiring = _wiring(subject, state)
    return _Compat(
        file=row.file,
        address=f"{REDIST}/{_PLATFORMS[subject.target.machine]}/{row.file}",
        sha256=row.sha256,
        folder=wiring.folder,
        branches=" ".join(str(branch) for branch in wiring.branches),
        wire=Quoted(wire_script(wiring)),
        run=Quoted(run_script(wiring)),
        unpack=Quoted(_UNPACK),
    )
