"""An answer as changes to the lines of the file: what a person would type, so that the result can be linted again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from firstlight.frozen import dataclass
from firstlight.lint.dockerfile import Instruction, parse_dockerfile
from firstlight.lint.edits_gpus import start_otherwise
from firstlight.lint.edits_lists import in_list
from firstlight.lint.model import Syntax
from firstlight.lint.rule import LintFinding
from firstlight.lint.written import lines_of
from firstlight.ways.kinds import (
    ChangeImage,
    InstallPackages,
    InstallWheels,
    MakeEnvironment,
    RemoveFiles,
    RemovePackages,
    SetVariables,
    StartContainer,
    UnsetVariables,
    Unwire,
    UseImage,
    Variable,
    WireCompat,
)
from firstlight.ways.way import Chain, Way


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines in place of others: 3 to 5 by these; last = first - 1 puts them in front of `first`."""

    first: int
    last: int
    lines: tuple[str, ...]


def edited(text: str, edits: tuple[Edit, ...]) -> str:
    """The text after all edits, which do not overlap."""
    lines = text.splitlines()
    for edit in sorted(edits, key=lambda each: (each.first, each.last), reverse=True):
        lines[edit.first - 1 : edit.last] = edit.lines
    return "\n".join((*lines, ""))


def apply(text: str, finding: LintFinding, answer: Chain) -> str | None:
    """The file with an answer written into it; None where it is not for the file, e.g. a newer driver."""
    ways = [way for way in answer.ways if not isinstance(way, WireCompat)]  # that one is done when it starts
    if not ways:
        return None
    for way in ways:
        write = (_DOCKERFILE if finding.syntax is Syntax.DOCKERFILE else _OTHERS).get(type(way))
        changed = None if write is None else write(text, finding, way)
        if changed is None:
            return None
        text = changed
    return text


# -- Dockerfiles ------------------------------------------------------------------------------------------------------


def _at(text: str, finding: LintFinding) -> Instruction:
    """The instruction that a finding stands in; a line that moved is the last one before."""
    return [each for each in parse_dockerfile(text, finding.file) if each.line <= finding.line][-1]


def _last_line(text: str, instruction: Instruction) -> int:
    """Where an instruction ends, its heredocs and what continues it included."""
    later = [each.line for each in parse_dockerfile(text, "") if each.line > instruction.line]
    end = later[0] - 1 if later else len(text.splitlines())
    lines = text.splitlines()
    while end > instruction.line and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return end


def _body(text: str, instruction: Instruction) -> str:
    return "\n".join(text.splitlines()[instruction.line - 1 : _last_line(text, instruction)])


def _put(text: str, instruction: Instruction, body: str) -> str:
    """The text with another body of an instruction; '' takes it out."""
    lines = tuple(body.splitlines())
    return edited(text, (Edit(instruction.line, _last_line(text, instruction), lines),))


def _without_index(body: str) -> str:
    """A command without the options that name where torch comes from."""
    options = r"(?:--(?:extra-)?index-url|-i|--index|--default-index|--find-links|-f|--torch-backend)"
    # not past a quote: in a string of JSON or YAML it ends the command
    value = r"(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s\"']*(?:pytorch\.org|torch|auto|cu\d{3}|cpu)[^\s\"']*)"
    return re.sub(rf"\s(?:\\\n\s*)?{options}[ =]{value}", "", body)


# What is installed stands in a file beside: pyproject.toml, a lock, environment.yml.
_FROM_ANOTHER_FILE = re.compile(
    r"\buv\s+sync\b|\b(?:poetry|pdm|pixi|pipenv)\s+(?:install|sync)\b|\benv\s+(?:create|update)\b"
    r"|\s(?:-f|--file)[ =]\S+\.ya?ml\b"
)


def _install(text: str, finding: LintFinding, way: InstallWheels) -> str | None:
    at = _at(text, finding)
    if at.keyword != "RUN":
        return None
    body = _body(text, at)
    if _FROM_ANOTHER_FILE.search(body):
        return None
    if re.search(r"\b(?:conda|mamba|micromamba)\b.*\binstall\b", body) and way.packages[0].project == "torch":
        return _by_pip_instead(text, at, way)
    return _put(text, at, _command(body, way))


def _command(body: str, way: InstallWheels) -> str:
    """A command that installs, with these packages and their index in place of what it names."""
    for package in way.packages:
        project = re.match(r"[\w.-]+", package.project)
        assert project is not None, package
        name = re.sub(r"[-_.]", "[-_.]", project.group())
        for family in (name, name.removesuffix("[-_.]gpu"), re.sub(r"cuda\d+x", r"cuda\\d+x", name)):
            pattern = rf"(?<=[\s'\"])(['\"]?){family}(?:\[[^\]\s]*\])?(?:[=<>!~][^\s'\";&|\\]*)?\1(?=[\s'\";&|\\]|$)"
            body, count = re.subn(pattern, shlex.quote(package.requirement), body, count=1)
            if count:
                break
        else:
            body = re.sub(r"(\binstall\b(?:\s+--system)?)", rf"\1 {shlex.quote(package.requirement)}", body, count=1)
    if way.packages[0].project == "torch":
        body = _without_index(body)
        named = re.search(re.escape(shlex.quote(way.packages[0].requirement)), body)
        if way.index and named is not None:
            body = f"{body[: named.end()]} --index-url {way.index}{body[named.end() :]}"
    return body


def _by_pip_instead(text: str, at: Instruction, way: InstallWheels) -> str:
    """conda's pytorch taken out of its command, and the wheels installed by pip behind it."""
    names = r"(?:pytorch|torchvision|torchaudio|pytorch-cuda|cudatoolkit|cuda-version|torch)"
    body = re.sub(rf"(?<=\s)['\"]?(?:[\w-]+::)?{names}(?:[=<>][^\s'\"]*)?['\"]?(?=\s|$)", "", _body(text, at))
    packages = shlex.join(package.requirement for package in way.packages)
    index = f" --index-url {way.index}" if way.index else ""
    return _put(text, at, f"{body}\nRUN pip install {packages}{index}")


def _use_image(text: str, finding: LintFinding, way: UseImage) -> str | None:
    at = _at(text, finding)
    froms = [each for each in parse_dockerfile(text, "") if each.keyword == "FROM" and each.line <= at.line]
    words = froms[-1].argument.split()
    return _put(text, froms[-1], " ".join(("FROM", way.image, *words[1:])))


def _change_image(text: str, finding: LintFinding, way: ChangeImage) -> str | None:
    keyword, _, rest = way.line.partition(" ")
    at = _at(text, finding)
    if keyword == "ENV":
        name = rest.partition("=")[0]
        if at.keyword == "ENV" and re.search(rf"(?:^|\s){name}[= ]", at.argument):
            return _put(text, at, _replaced(_body(text, at), name, rest.partition("=")[2]))
    first = at.line + 1 if at.keyword == "FROM" else at.line
    first = _last_line(text, at) + 1 if at.keyword == "ENV" else first
    return edited(text, (Edit(first, first - 1, (way.line,)),))


def _replaced(body: str, name: str, value: str) -> str:
    """An ENV, ARG or command with another value of a variable."""
    pattern = rf"(?<![\w]){name}(?:=(?:\"[^\"]*\"|'[^']*'|[^\s\\]*)|[ ]+\S+)"
    return re.sub(pattern, lambda _: f"{name}={value}", body, count=1)


def _set_variables(text: str, finding: LintFinding, way: SetVariables) -> str | None:
    at = _at(text, finding)
    body = _body(text, at)
    for variable in way.variables:
        value = variable.value if re.fullmatch(r"[\w.$/:,{}=-]*", variable.value) else f'"{variable.value}"'
        body = _replaced(body, variable.name, value)
    return _put(text, at, body)


def _unset(text: str, finding: LintFinding, way: UnsetVariables) -> str | None:
    at = _at(text, finding)
    body = _body(text, at)
    for name in way.names:
        body = re.sub(rf"\s*(?<![\w]){name}(?:=(?:\"[^\"]*\"|'[^']*'|[^\s\\]*)|[ ]+\S+)", "", body, count=1)
    return _put(text, at, body if "=" in body or len(body.split()) > 1 else "")


def _unwire(text: str, finding: LintFinding, way: Unwire) -> str | None:
    at = _at(text, finding)
    body = _body(text, at)
    if at.keyword not in ("ENV", "ARG"):
        return _put(text, at, "RUN true") if at.keyword == "RUN" else None
    for folder in way.folders:
        spelled = rf"{re.escape(folder.rstrip('/'))}/?"
        if folder.rstrip("/") not in body:  # by a variable: ${CUDA_HOME}/compat
            spelled = rf"[^\s:=\"']*/{re.escape(folder.rstrip('/').rpartition('/')[2])}/?"
        body = re.sub(rf"{spelled}:|:{spelled}(?=[\s\"':]|$)|{spelled}(?=[\s\"']|$)", "", body, count=1)
    return _put(text, at, body)


def _apt(text: str, finding: LintFinding, way: RemovePackages | InstallPackages) -> str | None:
    at = _at(text, finding)
    body = _body(text, at)
    if isinstance(way, InstallPackages) and not re.search(r"\b(?:apt|apt-get|dnf|yum)\b", body):
        line = f"RUN apt-get update && apt-get install --yes {' '.join(way.packages)}"
        return edited(text, (Edit(at.line, at.line - 1, (line,)),))
    if isinstance(way, InstallPackages):
        return _put(text, at, re.sub(r"(\binstall\b)", rf"\1 {' '.join(way.packages)}", body, count=1))
    for name in way.packages:
        body = re.sub(rf"(?<=\s){re.escape(name)}(?:=\S+)?(?=\s|$)", "", body, count=1)
    left = [
        word for word in re.sub(r".*\binstall\b", "", body, count=1, flags=re.DOTALL).split() if word[0] not in "-\\&"
    ]
    return _put(text, at, body if left else "RUN true")


def _remove_files(text: str, finding: LintFinding, way: RemoveFiles) -> str | None:
    at = _at(text, finding)
    return edited(text, (Edit(_last_line(text, at) + 1, _last_line(text, at), (f"RUN rm -f {' '.join(way.paths)}",)),))


def _environment(text: str, finding: LintFinding, way: MakeEnvironment) -> str | None:
    at = _at(text, finding)
    base = [each for each in parse_dockerfile(text, "") if each.keyword == "FROM" and each.line <= at.line][-1]
    words = base.argument.split()
    image = re.fullmatch(r"(.*\bpython:)3\.\d+(.*)", words[0])
    if image is not None:
        return _put(text, base, " ".join(("FROM", f"{image.group(1)}{way.python}{image.group(2)}", *words[1:])))
    lines = (
        "COPY --from=ghcr.io/astral-sh/uv:0.9.9 /uv /bin/uv",
        f"RUN uv venv --seed --python {way.python} /opt/venv",
        "ENV VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH",
    )
    return edited(text, (Edit(at.line, at.line - 1, lines),))


_Writers = dict[type[Way], Callable[[str, LintFinding, Any], "str | None"]]
_DOCKERFILE: _Writers = {
    ChangeImage: _change_image,
    InstallPackages: _apt,
    InstallWheels: _install,
    MakeEnvironment: _environment,
    RemoveFiles: _remove_files,
    RemovePackages: _apt,
    SetVariables: _set_variables,
    UnsetVariables: _unset,
    Unwire: _unwire,
    UseImage: _use_image,
}


# -- Compose files, manifests and lists of packages -------------------------------------------------------------------


def _line(text: str, finding: LintFinding) -> str:
    return text.splitlines()[finding.line - 1]


def _one_line(text: str, finding: LintFinding, line: str) -> str:
    return edited(text, (Edit(finding.line, finding.line, (line,) if line else ()),))


def _image_line(text: str, finding: LintFinding, way: UseImage) -> str | None:
    if finding.syntax is Syntax.SHELL:
        changed = _IN_COMMAND.sub(lambda m: m[1] + way.image, _line(text, finding), count=1)
        return _one_line(text, finding, changed) if way.image in changed else None
    pattern = r"((?:image|container)\"?\s*:\s*)([\"']?)\S+?\2(,?)$"
    changed = re.sub(pattern, lambda m: f"{m[1]}{m[2]}{way.image}{m[2]}{m[3]}", _line(text, finding))
    return _one_line(text, finding, changed) if way.image in changed else None


# An image that a job names: docker://..., --container-image=nvcr.io#nvidia/..., IMAGE=..., or a word of `docker run`.
_IN_COMMAND = re.compile(r"((?:docker://|[=\s])[\"']?)[a-z][\w.-]*(?:[/#][\w.-]+)+:\w[\w.-]*")


def _variable_line(text: str, finding: LintFinding, way: SetVariables) -> str | None:
    line = _line(text, finding)
    if finding.syntax is Syntax.KUBERNETES and (below := _below(text, finding, way.variables[0])) is not None:
        return below
    for each in way.variables:
        if each.name not in line:
            return None
        head = re.match(rf".*?{each.name}\"?\s*[:=]\s*", line)
        before = line if head is None else head.group()
        quoted = re.match(r"([\"'])[^\"']*\1(?=\s*,?\s*$)", line[len(before) :])  # of JSON, with the comma behind it
        behind = "" if quoted is None else line[len(before) + quoted.end() :]
        mark = "" if quoted is None else quoted[1]
        line = f"{before}{mark}{each.value}{mark}{behind}"
    return _one_line(text, finding, line)


def _below(text: str, finding: LintFinding, variable: Variable | None) -> str | None:
    """A pod's variable by the two lines that it may stand on, name and value, with another value; None: not both."""
    lines = text.splitlines()
    first = finding.line - (2 if re.match(r"\s*value:", lines[finding.line - 1]) else 1)
    if not re.match(r"\s*- name:", lines[first]) or not re.match(r"\s*value:", "".join(lines[first + 1 : first + 2])):
        return None
    value = "" if variable is None else f"{re.sub(r'- name:.*', '  value: ', lines[first])}{json.dumps(variable.value)}"
    return edited(text, (Edit(first + 1, first + 2, () if variable is None else (lines[first], value)),))


def _variable_out(text: str, finding: LintFinding, way: UnsetVariables) -> str | None:
    if finding.syntax is Syntax.KUBERNETES and (both := _below(text, finding, None)) is not None:
        return both
    return _one_line(text, finding, "") if way.names[0] in _line(text, finding) else None


def _folder_out(text: str, finding: LintFinding, way: Unwire) -> str | None:
    line = _line(text, finding)
    for folder in way.folders:
        line = re.sub(rf"{re.escape(folder)}/?:?", "", line).rstrip(":")
    return _one_line(text, finding, line if not line.endswith("LD_LIBRARY_PATH") else f'{line}: ""')


def _requirement_line(text: str, finding: LintFinding, way: InstallWheels) -> str | None:
    """A line of a list of packages, or a command of a script; None where the list says the index elsewhere."""
    line = _line(text, finding)
    if finding.syntax in _SCRIPTS:
        return _one_line(text, finding, _command(line, way)) if re.search(r"\binstall\b", line) else None
    if finding.syntax in (Syntax.CONDA, Syntax.PIXI) or (finding.syntax is Syntax.PYPROJECT and way.index):
        return in_list(text, finding, way)
    if finding.syntax is not Syntax.REQUIREMENTS and way.index:
        return None
    package = way.packages[0]
    name = re.sub(r"[-_.]", "[-_.]", package.project)
    name = re.sub(r"cuda\d+x", r"cuda\\d+x", name)  # of CuPy each major is a project
    quoted = r"(?<=['\"])" if finding.syntax is Syntax.PYPROJECT else r"(?<![\w-])"
    pattern = rf"{quoted}{name}(?:\[[^\]]*\])?(?:\s*[=<>!~][^'\";#]*)?(?=['\";#\s]|$)"
    changed, count = re.subn(pattern, package.requirement, line, count=1)
    if not count or (finding.syntax not in (Syntax.REQUIREMENTS, Syntax.PYPROJECT)):
        return None
    whole = _one_line(text, finding, changed)
    if not way.index:
        return whole
    kept = [each for each in whole.splitlines() if "pytorch.org" not in each]
    return "\n".join((f"--extra-index-url {way.index}", *kept, ""))


def _command_before(text: str, finding: LintFinding, way: ChangeImage) -> str | None:
    """A command of its own before the one at the line: in a step with `run: |`, or above it in a script."""
    lines, line = lines_of(Chain((way,)), finding.syntax), _line(text, finding)
    start = re.match(r"(\s*)(- )?run:\s*(?![|>])(\S.*)$", line)
    if finding.syntax is Syntax.DEVCONTAINER or not lines:
        return None
    if start is None:
        indent = line[: len(line) - len(line.lstrip())]
        return edited(text, (Edit(finding.line, finding.line - 1, tuple(indent + each for each in lines)),))
    lead, dash, command = start[1], start[2] or "", start[3]
    inner = " " * (len(lead) + len(dash) + 2)
    step = (f"{lead}{dash}run: |", *(inner + each for each in (*lines, command)))
    return _one_line(text, finding, "\n".join(step))


_SCRIPTS = (Syntax.SHELL, Syntax.WORKFLOW, Syntax.DEVCONTAINER)
_OTHERS: _Writers = {
    ChangeImage: _command_before,
    InstallWheels: _requirement_line,
    SetVariables: _variable_line,
    StartContainer: start_otherwise,
    UnsetVariables: _variable_out,
    Unwire: _folder_out,
    UseImage: _image_line,
}
