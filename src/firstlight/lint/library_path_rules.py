"""Rules about what the loader finds first: compat libraries, stubs, a driver inside the image, a lost search path."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.compat_answers import wired_release
from firstlight.diagnosis.finding import Question, Severity
from firstlight.facts.known import Known
from firstlight.lint.host import compat_eligible, compat_serves, driver_of, gpu_words, is_board, machine_words
from firstlight.lint.images import Flavour, Image
from firstlight.lint.installs import apt_packages
from firstlight.lint.model import EnvSet, Place, Ran, Syntax, Target, Where
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.run_rules import uses_cuda
from firstlight.lint.written import variables_in
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import (
    AskPerson,
    InstallPackages,
    RemoveFiles,
    RemovePackages,
    Scope,
    SetVariables,
    Unwire,
    Variable,
    Why,
    WiredBy,
)
from firstlight.ways.way import Chain, Way, chain

_COMPAT = re.compile(r"/compat(?:_orin|-orin)?(?:/lib)?/?$|/cuda-compat/?$")
_STUBS = re.compile(r"/stubs/?$")
_DRIVER_PACKAGES = re.compile(
    r"nvidia-driver-(?P<a>\d{3}).*|libnvidia-compute-(?P<b>\d{3}).*|nvidia-utils-(?P<c>\d{3}).*|"
    r"nvidia-headless-(?P<d>\d{3}).*|libcuda1|libnvidia-ml1|cuda-drivers(?:-(?P<e>\d{3}))?|nvidia-driver|"
    r"cuda(?:-\d+-\d+)?|nvidia-smi"
)
_DECIDED_AT_START = (
    "where an older driver needs it, decide when the container starts: `firstlight run -- CMD` as the entrypoint, or "
    "the container toolkit"
)
_FOR_ONE_BUILD = SetVariables((Variable("LD_LIBRARY_PATH", "/usr/local/cuda/lib64/stubs"),), Scope.PROGRAM)
_LINK_FOR_ONE_BUILD = "set this only for the one command that builds, then remove the link"
_STARTUP = ("/etc/ld.so.conf", ".bashrc", ".profile", "/etc/environment", "/etc/profile")


def compat_baked_in(target: Target, question: Question) -> Iterator[SeenAt]:
    """ENV LD_LIBRARY_PATH=/usr/local/cuda/compat:... is right for some drivers and breaks all newer ones."""
    for place, folder, how in _wired(target, _COMPAT):
        answers = _out_of_the_image(folder, how, _cuda_in(folder) or target.image.cuda, question=question)
        seen = SeenAt(place, f"{how} puts {folder} in front", answers)
        yield _compat_seen(seen, folder, target.image, question=question)


def _out_of_the_image(folder: str, how: str, cuda: CudaVersion | None, *, question: Question) -> tuple[Chain, ...]:
    out = _unwired(folder, how)
    if cuda is None:
        start = AskPerson("decide-at-start", Why.PROGRAM)
        return chain(out, title="take it out of the image"), chain(out, start, title=_DECIDED_AT_START)
    wire = wired_release(question, cuda, folder)
    return chain(out, title="take it out of the image"), chain(out, wire, title=_DECIDED_AT_START)


def _unwired(folder: str, how: str) -> Unwire:
    """A folder out of the variable, or out of the file in /etc/ld.so.conf.d that names it."""
    conf = how if how.startswith("/etc/ld.so.conf") else ""
    return Unwire((folder,), WiredBy.LOADER_CONF if conf else WiredBy.LIBRARY_PATH, conf)


def _compat_seen(seen: SeenAt, folder: str, image: Image, *, question: Question) -> SeenAt:
    place, saw, do, cuda = seen.place, seen.saw, seen.answers, _cuda_in(folder) or image.cuda
    driver = driver_of(question)
    jetson, orins = is_board(question), re.search(r"compat[_-]orin", folder) is not None
    if (jetson and not orins and "tegra" not in image.processors) or (orins and not jetson):
        return SeenAt(place, f"{saw}, which holds the library for {'servers' if jetson else 'Jetson'}", do)
    if compat_eligible(question) is False:
        error = "CUDA error 804: forward compatibility was attempted on non supported HW"
        return SeenAt(place, f"{saw}; {gpu_words(question)} may not use it", do, error=error)
    if cuda is None or driver is None:
        return SeenAt(place, saw, do, severity=Severity.DEGRADES)
    branch = question.tables.branch_of(cuda)
    builds = question.tables.compat_builds(cuda)
    builds = tuple(row for row in builds if row.seen_in == f"image nvidia/cuda:{image.cuda}") or builds
    if branch is not None and branch < driver.branch:
        return SeenAt(place, f"{saw}: that of CUDA {cuda.release} is of branch {branch}; {machine_words(question)}", do)
    if branch == driver.branch and builds and builds[-1].driver < driver:
        return SeenAt(place, f"{saw}: the build known of it is {builds[-1].driver}; {machine_words(question)}", do)
    serves = compat_serves(question, cuda)
    if serves is False:
        return SeenAt(place, f"{saw}: the library of CUDA {cuda.release} does not take branch {driver.branch}", do)
    return SeenAt(
        place,
        f"{saw}; with {machine_words(question)} it {'works' if serves else 'may work'}, with a later one it does not",
        do,
        because="The path stays when the driver below it changes; a compat library older than the driver gives 803.",
        severity=Severity.DEGRADES,
    )


def stub_libcuda_on_path(target: Target, question: Question) -> Iterator[SeenAt]:
    """ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs: a libcuda that can only be linked against."""
    for place, folder, how in _wired(target, _STUBS):
        linking = variables_in(place, Variable("LIBRARY_PATH", folder))
        title = "take it out; for linking use LIBRARY_PATH, which only compilers read"
        saw = f"{how} puts {folder} on the search path of programs"
        yield SeenAt(place, saw, (chain(_unwired(folder, how), linking, title=title),))
    for ran in target.ran:
        linked = " ".join(ran.words)
        if (
            ran.command.program in ("ln", "cp")
            and "/stubs/libcuda.so" in linked
            and re.search(r"libcuda\.so\.1", linked)
            and "/stubs/" not in ran.words[-1]  # found by no program there, unless the folder is on the path
        ):
            yield SeenAt(
                ran.place,
                f"{ran.shown} makes the stub the libcuda.so.1 that programs load",
                (chain(_FOR_ONE_BUILD, RemoveFiles((ran.words[-1],)), title=_LINK_FOR_ONE_BUILD),),
                severity=None if _kept(target, ran) else Severity.NOTE,
            )


def _kept(target: Target, made: Ran) -> bool:
    """Whether a link stays: nothing later in the image removes it."""
    later = target.ran[target.ran.index(made) + 1 :]
    return not any(ran.command.program in ("rm", "unlink") and "libcuda.so.1" in " ".join(ran.words) for ran in later)


def library_path_lost(target: Target, question: Question) -> Iterator[SeenAt]:
    """ENV LD_LIBRARY_PATH=/opt/lib drops what the base image had in it: where some hosts mount the driver."""
    last = target.env.get("LD_LIBRARY_PATH")
    if last is None:
        return
    lost = [folder for folder in target.image.library_path.split(":") if folder and folder not in last.value.split(":")]
    if lost and not _driver_folder(question):
        saw = f"LD_LIBRARY_PATH={last.written} drops {', '.join(lost)} of {target.image.name}"
        end = ":".join(lost) if last.place.syntax is not Syntax.DOCKERFILE else "$LD_LIBRARY_PATH"
        kept = Variable("LD_LIBRARY_PATH", ":".join((*_worth_keeping(last), end)))
        yield SeenAt(last.place, saw, (chain(variables_in(last.place, kept), title="keep what the base image has"),))


def driver_folder_not_searched(target: Target, question: Question) -> Iterator[SeenAt]:
    """A host that mounts the driver under /usr/local/nvidia, and an image that does not look there."""
    folder, last = _driver_folder(question), target.env.get("LD_LIBRARY_PATH")
    searched = target.image.library_path if last is None else last.value
    if not folder or folder in searched.split(":") or any(_wired(target, re.compile(re.escape(folder)))):
        return
    if last is None and (target.image.flavour is Flavour.UNKNOWN or not uses_cuda(target, question)):
        return
    path = f"LD_LIBRARY_PATH={last.written}" if last is not None else f"{target.image.name} sets no LD_LIBRARY_PATH"
    place = target.place if last is None else last.place
    value = ":".join((folder, *_worth_keeping(last)))
    answers = (chain(variables_in(place, Variable("LD_LIBRARY_PATH", value))),)
    yield SeenAt(place, f"{path}; on this machine libcuda is in {folder}", answers)


def _worth_keeping(written: EnvSet | None) -> tuple[str, ...]:
    """The parts of LD_LIBRARY_PATH, less what other rules tell to take out."""
    parts = () if written is None else written.written.split(":")
    return tuple(each for each in parts if each and not _COMPAT.search(each) and not _STUBS.search(each))


def _driver_folder(question: Question) -> str:
    """/usr/local/nvidia/lib64 where the machine has its libcuda there, reached or not; else ''."""
    libcuda = question.facts.libcuda
    paths = [libcuda.would_load.value.path] if isinstance(libcuda.would_load, Known) else []
    paths += [*(each.path for each in libcuda.candidates), *libcuda.out_of_reach]
    return next((path.rpartition("/")[0] for path in paths if path.startswith("/usr/local/nvidia/")), "")


def driver_inside_image(target: Target, question: Question) -> Iterator[SeenAt]:
    """apt-get install nvidia-driver-535: the host's kernel module is of another version."""
    driver = driver_of(question)
    if target.where is not Where.BUILD and not target.image.name:
        return  # a script that sets up the machine itself
    of_command: dict[Place, list[tuple[str, Ran]]] = {}
    for package, ran in apt_packages(target):
        if _DRIVER_PACKAGES.fullmatch(package):
            of_command.setdefault(ran.place, []).append((package, ran))
    for place, named in of_command.items():
        packages = tuple(dict.fromkeys(package for package, _ in named))
        other = driver is not None and any(_branch(each) not in (0, driver.branch) for each in packages)
        yield SeenAt(
            place,
            f"{named[0][1].shown}: {_driver_parts(packages)}; {machine_words(question)} is the host's",
            (_without(packages, target.image.cuda),),
            severity=Severity.BLOCKS if other else Severity.DEGRADES,
        )


def _branch(package: str) -> int:
    """550 of nvidia-utils-550; 0 where the name has none."""
    match = _DRIVER_PACKAGES.fullmatch(package)
    return next((int(group) for group in match.groups() if group), 0) if match is not None else 0


def _driver_parts(packages: tuple[str, ...]) -> str:
    """'cuda-12-4 brings a driver with it'; 'libnvidia-compute-550 and nvidia-utils-550 are part of a driver'."""
    whole = [f"{each} brings a driver with it" for each in packages if each.startswith("cuda")]
    parts = [each for each in packages if not each.startswith("cuda")]
    if parts:
        whole.insert(0, f"{' and '.join(parts)} {'is' if len(parts) == 1 else 'are'} part of a driver")
    return ", ".join(whole)


def toolkit_packages(cuda: CudaVersion) -> InstallPackages:
    """The toolkit alone, by apt of NVIDIA's images: cuda-toolkit-12-4."""
    return InstallPackages((f"cuda-toolkit-{cuda.major}-{cuda.minor}",))


def _without(packages: tuple[str, ...], cuda: CudaVersion | None) -> Chain:
    """The packages left out; in place of cuda-12-4, which brings a driver, the toolkit alone."""
    whole = [each for each in packages if each.startswith("cuda") and not each.startswith("cuda-drivers")]
    if not whole:
        return chain(RemovePackages(packages), title="leave it out" if len(packages) == 1 else "leave them out")
    own = f"{cuda.major}-{cuda.minor}" if cuda is not None else ""
    release = next((each.removeprefix("cuda-") for each in whole if each != "cuda"), own)
    if not release:
        toolkit: Way = AskPerson("take-toolkit-alone", Why.DECISION)
    else:
        toolkit = InstallPackages((f"cuda-toolkit-{release}",))
    place = "its" if len(packages) == 1 else "their"
    title = f"take cuda-toolkit-{release or 'X-Y'} in {place} place, which holds the toolkit alone"
    return chain(RemovePackages(packages), toolkit, title=title)


def _wired(target: Target, pattern: re.Pattern[str]) -> Iterator[tuple[Place, str, str]]:
    """Where a folder gets onto the loader's path for good: ENV, ld.so.conf, a start-up file."""
    last = target.env.get("LD_LIBRARY_PATH")
    for folder in last.value.split(":") if last is not None else ():
        if last is not None and pattern.search(folder):
            yield _origin(target, folder), folder, "LD_LIBRARY_PATH"
    for ran in target.ran:
        file = next((each for each in ran.command.writes if any(name in each for name in _STARTUP)), "")
        if not file and ran.command.program == "tee":
            file = next((word for word in ran.words[1:] if any(name in word for name in _STARTUP)), "")
        if file:
            text = " ".join(ran.words[1:])
            for folder in re.findall(r"/[\w./+-]+", text):
                if pattern.search(folder):
                    yield ran.place, folder, file


def _origin(target: Target, folder: str) -> Place:
    """The first line from which on LD_LIBRARY_PATH holds a folder to the end."""
    place = target.place
    held = False
    for event in target.events:
        if isinstance(event, EnvSet) and event.name == "LD_LIBRARY_PATH":
            now = folder in event.value.split(":")
            if now and not held:
                place = event.place
            held = now
    return place


def _cuda_in(folder: str) -> CudaVersion | None:
    match = re.search(r"/cuda-(\d+)\.(\d+)", folder)
    return None if match is None else CudaVersion(int(match.group(1)), int(match.group(2)))


LIBRARY_PATH_LINT_RULES = (
    LintRule(
        "compat-baked-in",
        compat_baked_in,
        Severity.BLOCKS,
        "a forward-compat library is wired into the image",
        "A compat libcuda that is older than the kernel driver, or does not list its branch, does not start.",
        "Error 803: system has unsupported display driver / cuda driver combination",
        "docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    ),
    LintRule(
        "stub-libcuda-on-path",
        stub_libcuda_on_path,
        Severity.BLOCKS,
        "programs will load the stub of libcuda",
        "The stub has the names of the functions and none of the code; it hides the host's libcuda.",
        "CUDA error 34: CUDA driver is a stub library",
        "docs.nvidia.com/cuda/cuda-runtime-api, cudaErrorStubLibrary",
    ),
    LintRule(
        "library-path-lost",
        library_path_lost,
        Severity.NOTE,
        "LD_LIBRARY_PATH of the base image is overwritten",
        "Hosts that mount the driver under /usr/local/nvidia (GKE) rely on the image's value; others do not.",
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        "docs.cloud.google.com/kubernetes-engine/docs/how-to/gpus",
    ),
    LintRule(
        "driver-folder-not-searched",
        driver_folder_not_searched,
        Severity.BLOCKS,
        "the driver's folder of this machine is not searched",
        "This machine mounts the driver's libraries under /usr/local/nvidia, which no loader searches by itself.",
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        "docs.cloud.google.com/kubernetes-engine/docs/how-to/gpus",
    ),
    LintRule(
        "driver-inside-image",
        driver_inside_image,
        Severity.DEGRADES,
        "parts of a driver are installed into the image",
        "The driver's libraries must have the version of the host's kernel module; those are mounted at start.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
    ),
)
