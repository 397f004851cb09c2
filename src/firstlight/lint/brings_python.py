"""What may bring a Python into an image that has none: packages, copied folders, and commands that are not known."""

from __future__ import annotations

import re

from firstlight.lint.images import CUDA_REPOSITORIES, Image
from firstlight.lint.installs import apt_packages
from firstlight.lint.model import Copied, EnvSet, Event, Install, Ran, Target

_PLAIN = re.compile(r"(?:[\w.:-]+/(?:[\w.-]+/)*library/)?(?:ubuntu|debian|alpine)")
# Commands that bring no program, and those that need a Python themselves: these are what is looked for.
_HARMLESS = frozenset((
    ":", "addgroup", "adduser", "cat", "cd", "chmod", "chown", "echo", "exit", "export", "groupadd", "id",
    "ldconfig", "locale-gen", "ls", "mkdir", "printf", "rm", "rmdir", "set", "sleep", "touch", "true",
    "useradd", "usermod",
))  # fmt: skip
_MANAGERS = ("apt-get", "apt", "apk")
_MANAGING = frozenset((
    "update", "upgrade", "clean", "autoclean", "autoremove", "remove", "purge", "install", "add", "dist-upgrade",
))  # fmt: skip
# Packages that bring no Python with what they recommend: apt-get -s install of all, Debian 12, 2026-11-16. ffmpeg does.
_NEUTRAL = frozenset((
    "apt-transport-https", "apt-utils", "bash", "build-essential", "bzip2", "ca-certificates", "cmake", "coreutils",
    "curl", "dumb-init", "g++", "gcc", "git", "git-lfs", "gnupg", "gnupg2", "gzip", "htop", "jq", "less",
    "libgl1", "libgl1-mesa-glx", "libglib2.0-0", "libgomp1", "libsm6", "libsndfile1", "libssl-dev", "libxext6",
    "libxrender1", "locales", "make", "nano", "net-tools", "openssl", "patch", "pkg-config", "procps", "sudo", "tar",
    "tini", "tmux", "tzdata", "unzip", "wget", "xz-utils", "zip", "zlib1g-dev",
))  # fmt: skip
NEEDS_PYTHON = re.compile(r"(?:python|pip)(?:3(?:\.\d+)?)?|uvx?")


def surely_without(image: Image) -> bool:
    """Whether an image is one that is known to come without Python: Ubuntu, Debian, Alpine, and NVIDIA's on those."""
    of_nvidia = image.repository in CUDA_REPOSITORIES and image.system.startswith(("ubuntu", "debian"))
    return of_nvidia or _PLAIN.fullmatch(image.repository) is not None


def apt_brings_python(stage: Target) -> bool:
    return any(re.match(r"python|pip", package) for package, _ in apt_packages(stage))


def own_python(target: Target) -> bool:
    """Whether the image gets a Python that apt does not manage, or makes an environment."""
    if any(event.name in ("VIRTUAL_ENV", "CONDA_PREFIX") for event in target.events if isinstance(event, EnvSet)):
        return True
    for ran in target.ran:
        text = " ".join(ran.words)
        if re.search(r"-m venv|virtualenv|uv venv|conda|pyenv|get-pip\.py|deadsnakes|EXTERNALLY-MANAGED", text):
            return True
    path = target.env.get("PATH")
    return path is not None and re.search(r"venv|conda", path.value) is not None


def may_bring(event: Event, target: Target) -> bool:
    """Whether a Python may be there after it; only of what is known to bring none it is False."""
    if isinstance(event, Copied):
        if event.sources:
            return not all(is_packages_alone(source, target) for source in event.sources)
        in_system = re.match(r"/(?:$|bin|sbin|usr|opt/?$|root/\.local)|\$", event.destination)
        return "PATH" in target.env or in_system is not None or bool(re.search(r"venv|conda|python", event.destination))
    if not isinstance(event, Ran):
        return isinstance(event, Install)
    program = event.command.program
    known = program in _MANAGERS or program in _HARMLESS or NEEDS_PYTHON.fullmatch(program) is not None
    if event.mounts or (event.words and not known):
        return True
    if program not in _MANAGERS:
        return False
    named = [word for word in event.words[1:] if not word.startswith("-")]
    return not all(word.partition("=")[0] in _MANAGING | _NEUTRAL for word in named)


def is_packages_alone(source: str, target: Target) -> bool:
    """Whether a folder of another stage holds packages for a Python, and none itself: site-packages, pip's --prefix."""
    folder = source.rstrip("/")
    if re.search(r"/(?:site|dist)-packages$|\.(?:whl|txt|py|toml|json|ya?ml)$", folder):
        return True
    return any(_gets_packages(ran, folder) for stage in target.copied_from for ran in stage.ran)


def _gets_packages(ran: Ran, folder: str) -> bool:
    option = rf"(?:--prefix|--target|--root|--wheel-dir|-t|-w)[= ]{re.escape(folder)}/?(?:\s|$)"
    text = " ".join(ran.words)
    return re.match(r"(?:\S*/)?(?:pip\S*|python\S* -m pip) ", text) is not None and re.search(option, text) is not None


def maker_of(folder: str, target: Target) -> Target | None:
    """The stage in which `python -m venv FOLDER` or virtualenv made an environment; None: it is not seen."""
    made = rf"(?:-m venv|virtualenv)(?: -\S+)* {re.escape(folder.rstrip('/'))}/?$"
    for stage in target.copied_from:
        said = (" ".join(ran.words) for ran in stage.ran)
        if any(re.search(made, text) and "--copies" not in text for text in said):
            return stage
    return None
