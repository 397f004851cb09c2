"""Whether a call steps off what the policy pins: architectures, the toolkit, CUTLASS."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from firstlight.frozen import dataclass
from firstlight.guard.archs import asked_archs, definitions
from firstlight.guard.call import HOLE, Call
from firstlight.guard.managers import Change
from firstlight.guard.policy import Policy, arch_of
from firstlight.guard.programs import PLAIN, compiler
from firstlight.guard.protect import git_folder

_CUDA_FOLDER = re.compile(r"/cuda-(\d+\.\d+)")
_CUDA_PACKAGE = re.compile(
    r"(cuda(?:-[a-z]+)*|libcu[a-z]+(?:-dev)?|libnpp(?:-dev)?|libnv[a-z0-9]+(?:-dev)?)-(\d+)-(\d+)"
)
_LOOSE = {
    "cuda",
    "cuda-toolkit",
    "cudatoolkit",
    "cuda-nvcc",
    "cuda-compiler",
    "nvidia-cuda-toolkit",
    "cuda-version",
    "cuda-runtime",
}
_CU = re.compile(r"cu(\d{2})(\d)\b")
_IMAGE = re.compile(r"nvidia/cuda:(\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class StepsOff:
    """A pin that a call does not keep: its key in the policy, what was asked for, what is pinned."""

    key: str
    asked: str
    pinned: str


def off_pins(call: Call, policy: Policy) -> Iterator[StepsOff]:
    """Every pin that a call steps off by its words or its variables."""
    name = call.words[0].rsplit("/", 1)[-1]
    yield from _archs(call, name, policy)
    yield from _toolkit(call, name, policy)
    if policy.cutlass and name == "git":
        yield from _cutlass(call, policy)
    for variable, value in call.sets:
        wanted = dict(policy.env).get(variable)
        if wanted is not None and value not in (wanted, HOLE):
            yield StepsOff("require", f"{variable}={value}", wanted)


def _archs(call: Call, name: str, policy: Policy) -> Iterator[StepsOff]:
    if not policy.archs:
        return
    for asked in asked_archs(call, name):
        if arch_of(re.sub(r"-(?:real|virtual)$", "", asked)) not in policy.archs:
            yield StepsOff("archs", asked.replace(HOLE, "?"), ", ".join(f"sm_{each}" for each in policy.archs))


def _toolkit(call: Call, name: str, policy: Policy) -> Iterator[StepsOff]:
    if not policy.toolkit:
        return
    steers = {
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDACXX",
        "CUDA_ROOT",
        "PATH",
        "LD_LIBRARY_PATH",
        "NVCC",
        "CUDA_TOOLKIT_ROOT_DIR",
    }
    texts = [value for variable, value in call.sets if variable in steers]
    if name == "ln" or (name == "update-alternatives" and ("--set" in call.words or "--install" in call.words)):
        texts += call.words[1:]
    if compiler(name):
        texts.append(call.words[0])
    steered = {"CUDA_HOME", "CUDA_PATH", "NVCC", "CUDAToolkit_ROOT", "CMAKE_CUDA_COMPILER", "CUDA_TOOLKIT_ROOT_DIR"}
    texts += [value for variable, value in definitions(call.words[1:]) if name not in PLAIN and variable in steered]
    if name in ("make", "gmake", "cmake", "nvcc", "python", "pip"):
        texts += [word for word in call.words[1:] if _CUDA_FOLDER.search(word)]
    for text in texts:
        for folder in _CUDA_FOLDER.finditer(text):
            if folder[1] != policy.toolkit:
                yield StepsOff("toolkit", text if len(text) < 80 else folder[0], policy.toolkit)
    for word in call.words[1:]:
        if (image := _IMAGE.search(word)) and image[1] != policy.toolkit:
            yield StepsOff("toolkit", word, policy.toolkit)


def change_off_pins(change: Change, policy: Policy) -> Iterator[StepsOff]:
    """Every pin that an installation steps off: another toolkit, wheels of another CUDA, another CUTLASS."""
    if policy.toolkit:
        major, minor = policy.toolkit.split(".")
        for index in change.indexes:
            if (found := _CU.search(index)) and (found[1], found[2]) != (major, minor):
                yield StepsOff("toolkit", index, policy.toolkit)
        if change.everything and change.manager in ("apt", "dnf", "zypper"):
            yield StepsOff("toolkit", f"{change.verb} of everything", policy.toolkit)
        names = [(each.name, each.spec, each.url) for each in change.wants] + [
            (each, "removed", "") for each in change.removes
        ]
        for name, spec, url in names:
            if reason := _of_toolkit(name, spec, url, policy.toolkit, change.manager):
                yield StepsOff("toolkit", reason, policy.toolkit)
    if policy.cutlass:
        for each in change.wants:
            version = re.fullmatch(r"==v?([\d.]+)\S*", each.spec)
            if each.name in ("nvidia-cutlass", "nvidia-cutlass-dsl", "cutlass") and (
                not version or version[1] != policy.cutlass.lstrip("v")
            ):
                yield StepsOff("cutlass", f"{each.name}{each.spec}", policy.cutlass)


def _of_toolkit(name: str, spec: str, url: str, pinned: str, manager: str) -> str:
    if found := _CUDA_PACKAGE.fullmatch(name):
        version = f"{found[2]}.{found[3]}"
        return name if (version != pinned) == (spec != "removed") else ""
    cu = _CU.search(spec) or _CU.search(url)
    if cu is not None:
        return f"{name}{spec}" if f"{cu[1]}.{cu[2]}" != pinned else ""
    if name in _LOOSE and manager in ("apt", "dnf", "zypper", "conda", "pixi", "apk", "pacman"):
        exact = re.match(r"==\s*(\d+\.\d+)", spec)
        return "" if exact and exact[1] == pinned else f"{name}{spec if spec != 'removed' else ''}"
    return ""


def _cutlass(call: Call, policy: Policy) -> Iterator[StepsOff]:
    folder, rest = git_folder(list(call.words[1:]))
    operands = [word for word in rest[1:] if not word.startswith("-")]
    wanted = {policy.cutlass, policy.cutlass.lstrip("v")}
    if rest[:1] == ["clone"] and any(re.search(r"cutlass(?:\.git)?/?$", word) for word in operands):
        branches = [rest[at + 1] for at, word in enumerate(rest[:-1]) if word in ("-b", "--branch")]
        branches += [word.partition("=")[2] for word in rest if word.startswith("--branch=")]
        if not branches or branches[-1] not in wanted:
            yield StepsOff("cutlass", f"cutlass at {branches[-1] if branches else 'its newest commit'}", policy.cutlass)
    if (
        rest[:1]
        and rest[0] in ("checkout", "switch", "reset", "pull", "merge")
        and "cutlass" in os.path.join(*(call.cwds[:1] or ("",)), folder).split("/")
    ) and not set(operands) & wanted:
        yield StepsOff("cutlass", f"cutlass moved by git {rest[0]}", policy.cutlass)
    if rest[:2] == ["submodule", "update"] and "--remote" in rest:
        yield StepsOff("cutlass", "submodules at their newest commit", policy.cutlass)
