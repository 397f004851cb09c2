"""Rules about what the loader finds first: compat libraries, stubs, a driver inside the image, a lost search path."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.facts.known import Known
from firstlight.lint.host import compat_eligible, compat_serves, driver_of, gpu_words, machine_words
from firstlight.lint.images import Flavour, Image
from firstlight.lint.installs import apt_packages
from firstlight.lint.model import EnvSet, Place, Ran, Target
from firstlight.lint.rule import LintRule, Seen
from firstlight.lint.run_rules import uses_cuda
from firstlight.versions import CudaVersion

_COMPAT = re.compile(r"/compat(?:_orin|-orin)?(?:/lib)?/?$|/cuda-compat/?$")
_STUBS = re.compile(r"/stubs/?$")
_DRIVER_PACKAGES = re.compile(
    r"nvidia-driver-(?P<a>\d{3}).*|libnvidia-compute-(?P<b>\d{3}).*|nvidia-utils-(?P<c>\d{3}).*|"
    r"nvidia-headless-(?P<d>\d{3}).*|libcuda1|libnvidia-ml1|cuda-drivers(?:-(?P<e>\d{3}))?|nvidia-driver|"
    r"cuda(?:-\d+-\d+)?|nvidia-smi"
)
_DECIDED_AT_START = (
    "decide it when the container starts: `firstlight run -- CMD` as the entrypoint, or the container toolkit"
)
_STARTUP = ("/etc/ld.so.conf", ".bashrc", ".profile", "/etc/environment", "/etc/profile")


def compat_baked_in(target: Target, question: Question) -> Iterator[Seen]:
    """ENV LD_LIBRARY_PATH=/usr/local/cuda/compat:... is right for some drivers and breaks all newer ones."""
    for place, folder, how in _wired(target, _COMPAT):
        yield _compat_seen(Seen(place, f"{how} puts {folder} in front"), folder, target.image, question=question)


def _compat_seen(seen: Seen, folder: str, image: Image, *, question: Question) -> Seen:
    place, saw, cuda = seen.place, seen.saw, _cuda_in(folder) or image.cuda
    driver = driver_of(question)
    do = ("take it out of the image", _DECIDED_AT_START)
    if compat_eligible(question) is False:
        error = "CUDA error 804: forward compatibility was attempted on non supported HW"
        return Seen(place, f"{saw}; {gpu_words(question)} may not use it", do, error=error)
    if cuda is None or driver is None:
        return Seen(place, saw, do, severity=Severity.DEGRADES)
    branch = question.tables.branch_of(cuda)
    builds = question.tables.compat_builds(cuda)
    builds = tuple(row for row in builds if row.seen_in == f"image nvidia/cuda:{image.cuda}") or builds
    if branch is not None and branch < driver.branch:
        return Seen(place, f"{saw}: that of CUDA {cuda.release} is of branch {branch}; {machine_words(question)}", do)
    if branch == driver.branch and builds and builds[-1].driver < driver:
        return Seen(place, f"{saw}: the build known of it is {builds[-1].driver}; {machine_words(question)}", do)
    serves = compat_serves(question, cuda)
    if serves is False:
        return Seen(place, f"{saw}: the library of CUDA {cuda.release} does not take branch {driver.branch}", do)
    return Seen(
        place,
        f"{saw}; with {machine_words(question)} it {'works' if serves else 'may work'}, with a later one it does not",
        do,
        because="The path stays when the driver below it changes; a compat library older than the driver gives 803.",
        severity=Severity.DEGRADES,
    )


def stub_libcuda_on_path(target: Target, question: Question) -> Iterator[Seen]:
    """ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs: a libcuda that can only be linked against."""
    for place, folder, how in _wired(target, _STUBS):
        yield Seen(
            place,
            f"{how} puts {folder} on the search path of programs",
            ("for linking use LIBRARY_PATH, which only compilers read: ENV LIBRARY_PATH=" + folder,),
        )
    for ran in target.ran:
        linked = " ".join(ran.words)
        if (
            ran.command.program in ("ln", "cp")
            and "/stubs/libcuda.so" in linked
            and re.search(r"libcuda\.so\.1", linked)
        ):
            yield Seen(
                ran.place,
                f"{ran.shown} makes the stub the libcuda.so.1 that programs load",
                ("only for one build command: LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs CMD, then remove the link",),
                severity=None if _kept(target, ran) else Severity.NOTE,
            )


def _kept(target: Target, made: Ran) -> bool:
    """Whether a link stays: nothing later in the image removes it."""
    later = target.ran[target.ran.index(made) + 1 :]
    return not any(ran.command.program in ("rm", "unlink") and "libcuda.so.1" in " ".join(ran.words) for ran in later)


def library_path_lost(target: Target, question: Question) -> Iterator[Seen]:
    """ENV LD_LIBRARY_PATH=/opt/lib drops what the base image had in it: where some hosts mount the driver."""
    last = target.env.get("LD_LIBRARY_PATH")
    if last is None:
        return
    lost = [folder for folder in target.image.library_path.split(":") if folder and folder not in last.value.split(":")]
    if lost and not _driver_folder(question):
        saw = f"LD_LIBRARY_PATH={last.written} drops {', '.join(lost)} of {target.image.name}"
        do = f"end the value with {':'.join(lost)}, in a Dockerfile with :$LD_LIBRARY_PATH"
        yield Seen(last.place, saw, (do,))


def driver_folder_not_searched(target: Target, question: Question) -> Iterator[Seen]:
    """A host that mounts the driver under /usr/local/nvidia, and an image that does not look there."""
    folder, last = _driver_folder(question), target.env.get("LD_LIBRARY_PATH")
    searched = target.image.library_path if last is None else last.value
    if not folder or folder in searched.split(":") or any(_wired(target, re.compile(re.escape(folder)))):
        return
    if last is None and (target.image.flavour is Flavour.UNKNOWN or not uses_cuda(target, question)):
        return
    path = f"LD_LIBRARY_PATH={last.written}" if last is not None else f"{target.image.name} sets no LD_LIBRARY_PATH"
    yield Seen(
        target.place if last is None else last.place,
        f"{path}; on this machine libcuda is in {folder}",
        (f"ENV LD_LIBRARY_PATH={folder}" + (f":{last.written}" if last is not None and last.written else ""),),
    )


def _driver_folder(question: Question) -> str:
    """/usr/local/nvidia/lib64 where the machine has its libcuda there, reached or not; else ''."""
    libcuda = question.facts.libcuda
    paths = [libcuda.would_load.value.path] if isinstance(libcuda.would_load, Known) else []
    paths += [*(each.path for each in libcuda.candidates), *libcuda.out_of_reach]
    return next((path.rpartition("/")[0] for path in paths if path.startswith("/usr/local/nvidia/")), "")


def driver_inside_image(target: Target, question: Question) -> Iterator[Seen]:
    """apt-get install nvidia-driver-535: the host's kernel module is of another version."""
    driver = driver_of(question)
    for package, ran in apt_packages(target):
        match = _DRIVER_PACKAGES.fullmatch(package)
        if match is None:
            continue
        number = next((group for group in match.groups() if group), "")
        other = driver is not None and number and int(number) != driver.branch
        what = "brings a driver with it" if package.startswith("cuda") else "is part of a driver"
        instead = "cuda-toolkit-X-Y holds the toolkit alone" if package.startswith("cuda") else "leave it out"
        yield Seen(
            ran.place,
            f"{ran.shown}: {package} {what}; {machine_words(question)} is the host's",
            (instead,),
            severity=Severity.BLOCKS if other else Severity.DEGRADES,
        )


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
        "The driver's libraries must be of the version of the host's kernel module; those are mounted at start.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
    ),
)
