"""Rules about how the image runs: whether it gets the GPUs, who it runs as, and what it will be tomorrow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.lint.frameworks import frameworks
from firstlight.lint.host import driver_cuda
from firstlight.lint.images import CUDA_REPOSITORIES, Flavour
from firstlight.lint.installs import apt_packages
from firstlight.lint.meant import NO_DEVICES, for_cpu_alone, needs_gpu
from firstlight.lint.model import EnvSet, Ran, Target, UserSet
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.shell import whole_number
from firstlight.lint.torches import InImage, runs_there, torches, without_code
from firstlight.lint.written import ask, variables_in
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import InstallWheels, Package, UnsetVariables, UseImage, Variable, Why
from firstlight.ways.way import Chain, chain

_TOOLKIT_ENV = "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
_HOMES = re.compile(r"(?:HF_|TORCH|TRITON_|XDG_|TRANSFORMERS_|PIP_|UV_|NUMBA_|MPL|CUDA_)\w*(?:HOME|CACHE\w*|DIR|PATH)?")
_ASK_FOR_GPUS = (Variable("NVIDIA_VISIBLE_DEVICES", "all"), Variable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"))
_MASK = "CUDA_VISIBLE_DEVICES"
_ROOT = re.compile(r"(?:^|:)/root(?:/|:|$)")


def uses_cuda(target: Target, question: Question) -> bool:
    """Whether the image is for a GPU: by its base, or by the torch inside."""
    if target.image.is_cuda:
        return True
    torch = torches(target, question).last
    return torch is not None and torch.cuda is not None


# Programs and images that only look at GPUs, through NVML: utility is all they need.
_LOOKS = re.compile(r"nvidia-smi|nvtop|nvitop|gpustat|dcgmi|(?:.*[-_])?exporter|sleep|watch")
_LOOKING_IMAGE = re.compile(r"exporter|dcgm|nvtop|nvitop|gpustat|telegraf|netdata|nvidia-smi")
_CUDA_IN_NAME = re.compile(r"cuda|cublas|cudnn|torch|tensorflow|[-_:]gpu(?:$|[-_.])")


def computes(target: Target, question: Question) -> bool:
    """Whether it shows that CUDA runs in it, by its base, torch, another framework or its command; not a monitor."""
    name = target.image.name
    if _LOOKING_IMAGE.search(name):
        return False
    if target.starts and all(_LOOKS.fullmatch(ran.command.program) for ran in target.starts):
        return False
    if uses_cuda(target, question) or _CUDA_IN_NAME.search(name) or needs_gpu(target) is not None:
        return True
    return any(each.major for each in frameworks(target, question))


def gpus_not_asked_for(target: Target, question: Question) -> Iterator[SeenAt]:
    """python:3.12 with torch: nothing in the image asks the NVIDIA runtime for GPUs."""
    asked = target.env.get("NVIDIA_VISIBLE_DEVICES")
    service = target.service
    if service is not None and service.runtime != "nvidia":
        return  # a reservation asks by itself, and service-without-gpu speaks where there is none
    plain = target.image.flavour is Flavour.NONE and not target.image.asks_for_gpus
    if asked is None and plain and uses_cuda(target, question):
        place = target.place if service is None else service.place
        yield SeenAt(
            place,
            f"{target.image.name} sets no NVIDIA_VISIBLE_DEVICES, and the torch inside needs a GPU",
            (chain(variables_in(place, *_ASK_FOR_GPUS)),),
            severity=Severity.BLOCKS if service is not None else None,
        )


def gpus_switched_off(target: Target, question: Question) -> Iterator[SeenAt]:
    """ENV CUDA_VISIBLE_DEVICES="" or NVIDIA_VISIBLE_DEVICES=void: no GPU in the container."""
    if for_cpu_alone(target):
        return
    unmask = chain(UnsetVariables((_MASK,)), title="take it out; choose GPUs when the container is started")
    masked, given = target.env.get(_MASK), target.env.get("NVIDIA_VISIBLE_DEVICES")
    if masked is not None and masked.value.strip() in ("", "-1", "NoDevFiles"):
        saw = f"CUDA_VISIBLE_DEVICES={masked.written or '(empty)'} hides every GPU from CUDA"
        yield SeenAt(masked.place, saw, (unmask,))
    elif masked is not None:
        numbers = [number for each in masked.value.split(",") if (number := whole_number(each)) is not None]
        count = len(gpus_of(question))
        if numbers and count and min(numbers) >= count:
            saw = f"CUDA_VISIBLE_DEVICES={masked.value}: the machine has {count} GPU{'s' if count > 1 else ''}, from 0"
            yield SeenAt(masked.place, saw, (unmask,))
    if given is not None and given.value.strip() in NO_DEVICES:
        saw = f"NVIDIA_VISIBLE_DEVICES={given.value} asks for no GPU (`docker run --gpus` overrides it)"
        answers = (chain(variables_in(given.place, _ASK_FOR_GPUS[0])),)
        decides = target.service is not None and target.service.runtime == "nvidia"
        yield SeenAt(given.place, saw, answers, severity=Severity.BLOCKS if decides else Severity.DEGRADES)


def compute_left_out(target: Target, question: Question) -> Iterator[SeenAt]:
    """ENV NVIDIA_DRIVER_CAPABILITIES=graphics,utility: libcuda is not mounted."""
    given = target.env.get("NVIDIA_DRIVER_CAPABILITIES")
    if given is None or "$" in given.value or not computes(target, question):
        return
    names = {each.strip() for each in given.value.split(",") if each.strip()}
    if names and not names & {"compute", "all"}:
        saw = f"NVIDIA_DRIVER_CAPABILITIES={given.value} leaves out compute"
        missing = ("compute",) if "utility" in names else ("compute", "utility")
        yield SeenAt(given.place, saw, (_capabilities(given, ",".join((*missing, given.value))),))
    elif names and not names & {"utility", "all"}:
        saw = f"NVIDIA_DRIVER_CAPABILITIES={given.value} leaves out utility: no nvidia-smi, no NVML"
        answers = (_capabilities(given, f"{given.value},utility"),)
        yield SeenAt(given.place, saw, answers, severity=Severity.DEGRADES)


def _capabilities(given: EnvSet, value: str) -> Chain:
    return chain(variables_in(given.place, Variable("NVIDIA_DRIVER_CAPABILITIES", value)))


def user_without_access(target: Target, question: Question) -> Iterator[SeenAt]:
    """USER app, and HF_HOME=/root/.cache/huggingface: /root is closed to everybody else."""
    user = target.user
    if user is None or user.name.split(":")[0] in ("root", "0") or "$" in user.name:
        return
    for event in target.env.values():
        if _ROOT.search(event.value) and (event.name == "PATH" or _HOMES.fullmatch(event.name)):
            name = user.name.split(":")[0]
            where = f"put it where {user.name} may go, e.g. /opt or /home/{name}"
            yield SeenAt(
                event.place,
                f"{event.name}={event.written}, and the image runs as {user.name} (line {user.place.line})",
                (ask("put it where the user of the image may go", title=where),),
                severity=None if event.name == "PATH" else Severity.DEGRADES,
            )

    yield from _python_below_root(target, user)


# What puts a Python below the home of who runs it, and the variable that puts it elsewhere.
_AT_HOME = (
    (re.compile(r"uv python install\b.*"), "UV_PYTHON_INSTALL_DIR", "/root/.local/share/uv/python"),
    (re.compile(r"pyenv install\b.*"), "PYENV_ROOT", "/root/.pyenv"),
)
_STARTS_AS_OTHER = re.compile(r"mambaorg/.*|(?:quay\.io/)?jupyter/.*")  # images whose user is not root to begin with
_MAKES_ENVIRONMENT = re.compile(r"uv (?:venv|sync)\b.*")
_INSTALLER = re.compile(
    r".*(?:[Mm]ini(?:conda|forge)|[Mm]ambaforge|[Aa]naconda)\S*\.sh\b.*\s-p\s+(?:/root|~|\$HOME)/.*"
)
_OPENS_ROOT = re.compile(r"(?:chmod|chown|setfacl)\b.*\s/root(?:/[\w./-]*)?(?:\s.*)?")


def _python_below_root(target: Target, user: UserSet) -> Iterator[SeenAt]:
    """USER app, and a Python that root's `uv python install` put below /root (astral-sh/uv#13309)."""
    if any(_OPENS_ROOT.fullmatch(" ".join(ran.words)) for ran in target.ran):
        return
    by_root = _STARTS_AS_OTHER.fullmatch(target.image.repository) is None
    env: dict[str, str] = {}
    for event in target.events:
        if isinstance(event, EnvSet):
            env[event.name] = event.value
        elif isinstance(event, UserSet):
            by_root = event.name.split(":")[0] in ("root", "0")
        elif isinstance(event, Ran) and by_root and (folder := _put_below_root(event, env, target)):
            saw = f"USER {user.name}, and {event.shown} (line {event.place.line}) puts its Python below {folder}"
            where = f"put it where {user.name.split(':')[0]} may go: {_elsewhere(folder)} before that line"
            yield SeenAt(user.place, saw, (ask("put it where the user of the image may go", title=where),))
            return


def _put_below_root(ran: Ran, env: dict[str, str], target: Target) -> str:
    """The folder below /root that a command puts a Python in; '' where it does not."""
    env = {**env, **dict(ran.command.assigned)}
    if not env.get("HOME", "/root").startswith("/root"):
        return ""
    said = " ".join((ran.command.program, *ran.words[1:]))
    for pattern, variable, folder in _AT_HOME:
        if pattern.fullmatch(said) and env.get(variable, "/root").startswith("/root") and "--install-dir" not in said:
            return folder
    if _MAKES_ENVIRONMENT.fullmatch(said) and not _has_python(target) and "UV_PYTHON_INSTALL_DIR" not in env:
        return _AT_HOME[0][2]
    return "/root" if _INSTALLER.fullmatch(said) else ""


def _has_python(target: Target) -> bool:
    """Whether the image has a Python before uv fetches one of its own."""
    return target.image.has_python or any(re.match(r"python3|python$", package) for package, _ in apt_packages(target))


def _elsewhere(folder: str) -> str:
    variable = next((variable for _, variable, each in _AT_HOME if each == folder), "")
    return f"set {variable}=/opt/python" if variable else "give -p a folder such as /opt/conda"


def base_not_pinned(target: Target, question: Question) -> Iterator[SeenAt]:
    """FROM pytorch/pytorch:latest is another torch and another CUDA next month."""
    image = target.image
    if image.pinned or "$" in image.name or image.name in ("", "scratch") or image.tag not in ("", "latest"):
        return
    if target.service is not None and not uses_cuda(target, question):
        return
    if image.repository in CUDA_REPOSITORIES:
        return  # image_does_not_exist speaks for these
    yield SeenAt(target.place, f"{image.name} names no version", (ask("name a version, best with its @sha256 digest"),))


def image_does_not_exist(target: Target, question: Question) -> Iterator[SeenAt]:
    """nvidia/cuda:latest and nvidia/cuda:12.4-devel: NVIDIA's tags have three numbers; those of CUDA 10 are gone."""
    image = target.image
    if image.repository not in CUDA_REPOSITORIES or image.pinned or "$" in image.name:
        return
    if image.tag in ("", "latest"):
        saw = f"{image.name}: NVIDIA publishes no tag `latest`"
    elif image.cuda is not None and image.cuda.major <= 10:
        saw = f"{image.name}: the images of CUDA 10 and older were removed"
    elif image.cuda is not None and image.cuda.patch < 0:
        saw = f"{image.name}: tags name three numbers, e.g. {image.cuda}.1"
    else:
        return
    title = "take a tag of hub.docker.com/r/nvidia/cuda/tags, for example"
    own = driver_cuda(question)
    example = "12.4.1" if own is not None and own < CudaVersion(12, 8) else "12.8.1"
    yield SeenAt(target.place, saw, (chain(UseImage(f"nvidia/cuda:{example}-base-ubuntu22.04"), title=title),))


def torch_not_pinned(target: Target, question: Question) -> Iterator[SeenAt]:
    """pip install torch: what it gives changes with every release, and with it the oldest driver."""
    torch = torches(target, question).last
    if torch is None or torch.pinned or torch.install is None or torch.install.tool == "conda":
        return
    if target.image.vendor_torch:  # which is to stay: vendor-torch-replaced
        return
    pinned = Package("torch", torch.version.public)
    pin = chain(InstallWheels((pinned,), torch.install.index), title=f"pin it: {pinned.requirement}")
    yield SeenAt(
        torch.place,
        f"{torch.how} names no version; on {question.tables.newest_date()} it gives torch {torch.version}",
        (_pin_another(torch, question) or pin,),
    )


def _pin_another(torch: InImage, question: Question) -> Chain | None:
    """Not the one of today, where another finding says that it does not work there, and what does; else None."""
    if torch.cuda is not None and not runs_there(torch, question):
        other = "torch-needs-newer-driver"
    elif torch.cuda is not None and without_code(torch, question):
        other = "torch-has-no-code-for-gpu"
    elif torch.variant == "cpu" and gpus_of(question) and not torch.from_index:  # not asked for: an arm64 wheel of PyPI
        other = "torch-is-cpu-only"
    else:
        return None
    return ask(f"pin one that runs there: see {other}", Why.PROGRAM)


RUN_LINT_RULES = (
    LintRule(
        "gpus-not-asked-for",
        gpus_not_asked_for,
        Severity.DEGRADES,
        "nothing in the image asks for GPUs",
        "`docker run --gpus` asks by itself; where nvidia is the default runtime (Kubernetes, many rented machines) "
        "the image's variable decides.",
        "RuntimeError: Found no NVIDIA driver on your system",
        _TOOLKIT_ENV,
    ),
    LintRule(
        "gpus-switched-off",
        gpus_switched_off,
        Severity.BLOCKS,
        "a variable of the image hides the GPUs",
        "The variable is set for every program in the container.",
        "RuntimeError: No CUDA GPUs are available",
        _TOOLKIT_ENV,
    ),
    LintRule(
        "compute-left-out",
        compute_left_out,
        Severity.BLOCKS,
        "NVIDIA_DRIVER_CAPABILITIES leaves out what CUDA needs",
        "The container toolkit mounts only the libraries of the capabilities named: libcuda belongs to compute, "
        "nvidia-smi and NVML to utility.",
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        _TOOLKIT_ENV,
    ),
    LintRule(
        "user-without-access",
        user_without_access,
        Severity.BLOCKS,
        "the user of the image cannot use a folder of root's",
        "/root has mode 700: another user can neither read nor write below it.",
        "PermissionError: [Errno 13] Permission denied: '/root/...'",
        "docs.docker.com/reference/dockerfile/#user",
    ),
    LintRule(
        "base-not-pinned",
        base_not_pinned,
        Severity.NOTE,
        "the base image names no version",
        "What is inside, and with it the oldest driver, changes without a change in the file.",
        "",
        "docs.docker.com/build/building/best-practices/#pin-base-image-versions",
    ),
    LintRule(
        "image-does-not-exist",
        image_does_not_exist,
        Severity.BLOCKS,
        "the build fails: NVIDIA has no image of this name",
        "Every image is named by three numbers, content and system; old ones are removed.",
        "manifest for nvidia/cuda:... not found: manifest unknown",
        "github.com/NVIDIA/nvidia-docker/issues/1454, 1735 and 1768",
    ),
    LintRule(
        "torch-not-pinned",
        torch_not_pinned,
        Severity.NOTE,
        "torch is installed without a version",
        "The next build may bring a torch for a CUDA that the driver does not run.",
        "",
        "pip.pypa.io/en/stable/user_guide/#pinned-version-numbers",
    ),
)
