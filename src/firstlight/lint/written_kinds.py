"""Answers as the other kinds of files take them: a requirements file, TOML, manifests, workflows, job scripts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from firstlight.lint.model import Syntax
from firstlight.ways.kinds import ChangeImage, InstallWheels, Package, SetVariables, StartContainer, UseImage
from firstlight.ways.way import Way

Writes = dict[type[Way], Callable[[Any], Iterator[str]]]
_OF_POD = "  # of the pod"
_SHM = "{emptyDir: {medium: Memory, sizeLimit: 16Gi}, name: shm}"


def pip_line(way: InstallWheels) -> str:
    """pip install torch==2.9.0+cu126 --index-url ..."""
    names = shlex.join(package.requirement for package in way.packages)
    return f"pip install {names}" + (f" --index-url {way.index}" if way.index else "")


def _listed(way: InstallWheels) -> Iterator[str]:
    """An extra index, since the rest of the list comes from PyPI; only that one has the version with a local part."""
    if way.index:
        yield f"--extra-index-url {way.index}"
    yield from (package.requirement for package in way.packages)


def _is_there(package: Package, way: InstallWheels) -> bool:
    """Whether a package is of the index: on PyTorch's all have a local part, which vllm==0.26.0 has not."""
    return "/whl/" not in way.index or not package.version or "+" in package.version


def _project(way: InstallWheels) -> Iterator[str]:
    """The dependency, and for uv the index that it comes from."""
    yield from (f'"{package.requirement}",' for package in way.packages)
    if way.index:
        name = _name_of(way.index)
        yield "[tool.uv.sources]  # only once in a file: where it is there, write this below, in place of its lines"
        yield from (
            f'{package.project} = {{ index = "{name}" }}' for package in way.packages if _is_there(package, way)
        )
        yield "[[tool.uv.index]]"
        yield f'name = "{name}"'
        yield f'url = "{way.index}"'
        yield "explicit = true"


def _name_of(index: str) -> str:
    """What an index is called: pytorch-cu128, jetson-cu126, pypi."""
    last = index.rstrip("/").rpartition("/")[2]
    maker = "pytorch" if "/whl/" in index else "jetson" if "jetson" in index else ""
    return f"{maker}-{last}" if maker else "pypi"


def _pixi(way: InstallWheels) -> Iterator[str]:
    yield "[pypi-dependencies]"
    for package in way.packages:
        index = f', index = "{way.index}"' if way.index and _is_there(package, way) else ""
        yield f'{package.project} = {{ version = "{package.requirement.removeprefix(package.project)}"{index} }}'


def _pod(way: StartContainer) -> Iterator[str]:
    for argument in way.arguments:
        if argument.startswith("--gpus"):
            yield f"resources: {{limits: {{nvidia.com/gpu: {_count(argument)}}}}}"
        elif argument.startswith("--shm-size"):
            yield "volumeMounts: [{name: shm, mountPath: /dev/shm}]"
            yield f"volumes: [{_SHM}]{_OF_POD}"
        elif argument == "--ipc=host":
            yield f"hostIPC: true{_OF_POD}"


def in_manifest(words: str, lines: tuple[str, ...]) -> str:
    """Where lines of a manifest go: in the container, in the pod, or some in each."""
    of_pod = [line.endswith(_OF_POD) for line in lines]
    if all(of_pod):
        return "write in the pod, beside `containers`"
    return f"{words}, and beside `containers` what is marked as of the pod" if any(of_pod) else words


def _job(way: StartContainer) -> Iterator[str]:
    for argument in way.arguments:
        if argument.startswith("--gpus"):
            yield f"#SBATCH --gpus-per-node={_count(argument)}"


def _count(argument: str) -> str:
    """The count of --gpus=4 as a pod and a job name it; 1 of --gpus=all, which neither knows."""
    value = argument.partition("=")[2]
    return value if value.isdigit() else "1"


def _command(way: ChangeImage) -> Iterator[str]:
    """A line of a Dockerfile as a shell takes it: RUN apt-get ... without its RUN; of the rest only ENV has a form."""
    keyword, _, rest = way.line.partition(" ")
    if keyword in ("RUN", "ENV"):
        yield rest if keyword == "RUN" else f"export {rest}"


def _yaml(way: SetVariables) -> Iterator[str]:
    return (f"{each.name}: {json.dumps(each.value)}" for each in way.variables)


BY_KIND: dict[Syntax, Writes] = {
    Syntax.REQUIREMENTS: {InstallWheels: _listed},
    Syntax.PYPROJECT: {InstallWheels: _project},
    Syntax.CONDA: {
        InstallWheels: lambda way: (f"- {line}" for line in _listed(way)),
        SetVariables: _yaml,
    },
    Syntax.PIXI: {InstallWheels: _pixi},
    Syntax.KUBERNETES: {
        UseImage: lambda way: iter((f"image: {way.image}",)),
        SetVariables: lambda way: (
            f"- {{name: {each.name}, value: {json.dumps(each.value)}}}" for each in way.variables
        ),
        StartContainer: _pod,
    },
    Syntax.DEVCONTAINER: {
        ChangeImage: _command,
        InstallWheels: lambda way: iter((pip_line(way),)),
        UseImage: lambda way: iter((f'"image": "{way.image}",',)),
        SetVariables: lambda way: (f"{json.dumps(each.name)}: {json.dumps(each.value)}," for each in way.variables),
        StartContainer: lambda way: iter((f'"runArgs": {json.dumps(list(way.arguments))},',)),
    },
    Syntax.WORKFLOW: {
        ChangeImage: _command,
        InstallWheels: lambda way: iter((pip_line(way),)),
        UseImage: lambda way: iter((f"image: {way.image}",)),
        SetVariables: _yaml,
        StartContainer: lambda way: iter((f"options: {' '.join(way.arguments)}",)),
    },
    Syntax.SHELL: {
        ChangeImage: _command,
        InstallWheels: lambda way: iter((pip_line(way),)),
        UseImage: lambda way: iter((way.image,)),
        SetVariables: lambda way: (f"export {each.name}={shlex.quote(each.value)}" for each in way.variables),
        StartContainer: _job,
    },
}
# Where such lines go, in words; a kind of way that is not here is named by what it does.
UNDER: dict[Syntax, dict[type[Way], str]] = {
    Syntax.COMPOSE: {SetVariables: "write under `environment`", StartContainer: "write in the service"},
    Syntax.REQUIREMENTS: {InstallWheels: "write in the requirements file"},
    Syntax.PYPROJECT: {InstallWheels: "write among the dependencies, and the index where uv looks for it"},
    Syntax.CONDA: {
        InstallWheels: "write under `pip`, in place of every line of torch and its CUDA",
        SetVariables: "write under `variables`",
    },
    Syntax.PIXI: {InstallWheels: "take torch from PyTorch's index"},
    Syntax.KUBERNETES: {
        SetVariables: "write under `env` of the container",
        StartContainer: "write in the container",
    },
    Syntax.DEVCONTAINER: {
        ChangeImage: "run before it",
        SetVariables: "write under `containerEnv`",
        StartContainer: "write in devcontainer.json",
    },
    Syntax.WORKFLOW: {
        ChangeImage: "run before it",
        SetVariables: "write under `env`",
        StartContainer: "write under `container`",
    },
    Syntax.SHELL: {
        ChangeImage: "run before it",
        SetVariables: "write above the commands",
        StartContainer: "ask the scheduler for GPUs",
    },
}
