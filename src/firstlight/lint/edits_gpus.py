"""Answers about who gives GPUs and memory, written into compose files, manifests, jobs and devcontainer.json."""

from __future__ import annotations

import re

from firstlight.lint.model import Syntax
from firstlight.lint.rule import LintFinding
from firstlight.lint.written import lines_of
from firstlight.ways.kinds import StartContainer
from firstlight.ways.way import Chain

_NEAR = 8  # lines around a device in which its other keys stand
_OF_POD = re.compile(r"\s+# of the pod$")
_JOB = re.compile(
    r"(--(?:gres|tres-per-node|gpus(?:-per-node|-per-task)?)[= ](?:gres/)?(?:gpu:)?(?:[A-Za-z][\w.-]*:)?)\d+"
)


def start_otherwise(text: str, finding: LintFinding, way: StartContainer) -> str | None:
    """The file with a container started by other arguments: another count, or keys that it did not have."""
    if not way.gives_gpus and any(
        each.startswith(("--gpus", "--tensor", "--tp", "-tp", "--n")) for each in way.arguments
    ):
        return _fewer(text, finding, way)
    if finding.syntax is Syntax.KUBERNETES:
        return _in_pod(text, finding, way)
    if finding.syntax is Syntax.DEVCONTAINER:
        return _run_arguments(text, way)
    if finding.syntax is Syntax.SHELL:
        return _of_job(text, way)
    return _service_keys(text, finding, way) if finding.syntax is Syntax.COMPOSE else None


def _of_job(text: str, way: StartContainer) -> str | None:
    """#SBATCH lines below those that a job has; None for a script that is no job."""
    lines = text.splitlines()
    last = max((n for n, line in enumerate(lines) if line.startswith("#SBATCH")), default=None)
    if last is None:
        return None
    return "\n".join((*lines[: last + 1], *lines_of(Chain((way,)), Syntax.SHELL), *lines[last + 1 :], ""))


def _fewer(text: str, finding: LintFinding, way: StartContainer) -> str | None:
    for argument in way.arguments:
        name, _, value = argument.partition("=")
        changed = _fewer_asked(text, finding, value) if name == "--gpus" else _option(text, name, value)
        if changed == text:
            return None
        text = changed
    return text


def _option(text: str, name: str, value: str) -> str:
    """A program's option with another number, in a command or in a list of words."""
    between = r"(?:[= ]\s*|[\"']?,\s*[\"']?|[\"']?\s*\n\s*-\s*[\"']?|\s*\\?\n\s*)"
    return re.sub(rf"({re.escape(name)}{between}[\"']?)\d+", lambda m: m[1] + value, text)


def _fewer_asked(text: str, finding: LintFinding, value: str) -> str:
    """The count where GPUs are asked for: of a device, of a pod's limits and requests, of a job."""
    lines = text.splitlines()
    near = range(max(0, finding.line - 1 - _NEAR), min(len(lines), finding.line - 1 + _NEAR))
    if finding.syntax is Syntax.SHELL:
        lines[finding.line - 1] = _JOB.sub(lambda m: m[1] + value, lines[finding.line - 1])
    elif finding.syntax is Syntax.KUBERNETES:
        for number in near:
            lines[number] = re.sub(r"(nvidia\.com/gpu[\"']?:\s*[\"']?)\d+", lambda m: m[1] + value, lines[number])
    else:
        return _all_of_them(lines, finding.line - 1)
    return "\n".join((*lines, ""))


def _all_of_them(lines: list[str], at: int) -> str:
    """`count: all` in place of the count, or of the ids, of the device that begins at a line."""
    for number in range(at, min(len(lines), at + _NEAR)):
        changed = re.sub(r"\bcount:\s*[\"']?\d+[\"']?|\bdevice_ids:\s*\[[^\]]*\]", "count: all", lines[number], count=1)
        if changed != lines[number]:
            lines[number] = changed
            break
        if re.fullmatch(r"[\s-]*device_ids:\s*", lines[number]):
            lines[number] = lines[number].replace("device_ids:", "count: all").rstrip()
            while number + 1 < len(lines) and re.fullmatch(r"\s*-\s*[\"']?\w+[\"']?\s*", lines[number + 1]):
                del lines[number + 1]
            break
    return "\n".join((*lines, ""))


def _service_keys(text: str, finding: LintFinding, way: StartContainer) -> str | None:
    """Keys of a compose service, behind the line that names it."""
    keys = lines_of(Chain((way,)), finding.syntax)
    lines, named = text.splitlines(), text.splitlines()[finding.line - 1]
    inside = next((line for line in lines[finding.line :] if line.strip()), f"{named}  ")
    indent = inside[: len(inside) - len(inside.lstrip())]
    names = {key.partition(":")[0] for key in keys}
    end = _block_end(lines, finding.line, len(indent))
    old = [
        n
        for n in range(finding.line, end)
        if lines[n].startswith(indent) and lines[n].strip().partition(":")[0] in names
    ]
    if any(lines[n].strip().endswith(":") for n in old):
        return None
    kept = [line for number, line in enumerate(lines) if number not in old]
    return "\n".join((*kept[: finding.line], *(indent + key for key in keys), *kept[finding.line :], ""))


def _in_pod(text: str, finding: LintFinding, way: StartContainer) -> str | None:
    """Keys of a container and of its pod, each once: what is there already gets one more entry."""
    lines = text.splitlines()
    first = _item_start(lines, finding.line - 1)
    if first is None:
        return None
    width = len(lines[first]) - len(lines[first].lstrip()) + len(re.match(r"-\s*", lines[first].lstrip())[0])  # type: ignore[index]
    for key in lines_of(Chain((way,)), finding.syntax):
        plain = _OF_POD.sub("", key)
        if plain != key:
            pod = _pod_of(lines, first)
            if pod is None:
                return None
            end = _block_end(lines, pod, len(lines[pod]) - len(lines[pod].lstrip()))
            if not _merged(lines, plain, range(_pod_start(lines, pod), end), _width(lines[pod])):
                lines.insert(pod, " " * _width(lines[pod]) + plain)
                first += 1
            first = _item_start(lines, first) or first
        elif not _merged(lines, plain, range(first, _block_end(lines, first + 1, width)), width):
            lines.insert(first + 1, " " * width + plain)
    return "\n".join((*lines, ""))


def _merged(lines: list[str], key: str, within: range, width: int) -> bool:
    """Whether a key that is there already took the new entry: resources, volumes, volumeMounts."""
    name, _, value = key.partition(": ")
    limit = value.removeprefix("{limits: {").removesuffix("}}")  # nvidia.com/gpu: 4, of the key `resources`
    for number in within:
        line = lines[number]
        if line.strip() != f"{name}:" or _width(line.replace("- ", "  ", 1)) != width:
            continue
        flow = next((n for n in within if n > number and re.match(r"\s*limits:\s*\{", lines[n])), None)
        if name == "resources" and flow is not None:
            lines[flow] = lines[flow].replace("{", f"{{{limit}, ", 1)
        elif name == "resources":
            limits = next((n for n in within if n > number and lines[n].strip() == "limits:"), None)
            entry = limit if limits is not None else f"limits: {{{limit}}}"
            at = number if limits is None else limits
            lines.insert(at + 1, " " * (_width(lines[at]) + 2) + entry)
        else:
            item = lines[number + 1]
            lines.insert(number + 1, f"{' ' * _width(item)}- {value.strip('[]')}")
        return True
    return False


def _item_start(lines: list[str], at: int) -> int | None:
    """The line where the entry of a list begins that a line is in."""
    width = _width(lines[at])
    for number in range(at, -1, -1):
        if lines[number].lstrip().startswith("- ") and _width(lines[number]) <= width:
            return number
    return None


def _pod_of(lines: list[str], container: int) -> int | None:
    """The line `containers:` above a container."""
    width = _width(lines[container])
    found = (n for n in range(container, -1, -1) if re.fullmatch(r"\s*(?:- )?(?:initC|c)ontainers:\s*", lines[n]))
    number = next(found, None)
    return number if number is not None and _width(lines[number]) <= width else None


def _pod_start(lines: list[str], containers: int) -> int:
    """The first line of the mapping that `containers` is a key of."""
    width = _width(lines[containers])
    number = containers
    while number > 0 and (not lines[number - 1].strip() or _width(lines[number - 1]) >= width):
        number -= 1
    return number


def _run_arguments(text: str, way: StartContainer) -> str:
    """runArgs of devcontainer.json: a list that is there gets the arguments, else it is the first key."""
    words = ", ".join(f'"{each}"' for each in way.arguments)
    if re.search(r'"runArgs"\s*:\s*\[', text):
        return re.sub(
            r'("runArgs"\s*:\s*\[)(\s*\]?)',
            lambda m: f"{m[1]}{words}{m[2] if ']' in m[2] else ',' + m[2]}",
            text,
            count=1,
        )
    return text.replace("{", f'{{\n  "runArgs": [{words}],', 1)


def _block_end(lines: list[str], start: int, width: int) -> int:
    """The index behind the block that is indented by so much from a line on."""
    for number in range(start, len(lines)):
        stripped = lines[number].strip()
        if stripped and _width(lines[number]) < width:
            return number
    return len(lines)


def _width(line: str) -> int:
    return len(line) - len(line.lstrip())
