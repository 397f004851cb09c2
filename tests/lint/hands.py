"""What a person types who follows advice that is words alone: the line taken out, another image, another runner."""

from __future__ import annotations

import re
from collections.abc import Callable

from firstlight.lint.dockerfile import parse_dockerfile
from firstlight.lint.edits import apply
from firstlight.lint.model import Syntax
from firstlight.lint.rule import LintFinding, LintReport
from firstlight.lint.written import says
from firstlight.ways.kinds import InstallWheels, UseImage
from firstlight.ways.way import Chain, chain

IGPU = "nvcr.io/nvidia/pytorch:25.03-py3-igpu"
JETPACK = "nvcr.io/nvidia/l4t-jetpack:r36.4.0"
FOR_SERVERS = "nvcr.io/nvidia/pytorch:25.04-py3"
_AMDS = re.compile(r"in place of (?:/dev/kfd|amd\.com|--rocm)")
_TORCH_WORDS = (
    r"(?:torch|pytorch|torchvision|torchaudio|cudatoolkit|pytorch-cuda)(?:\[[^\]]*\])?(?:[=<>!~][^\s'\"\\]*)?"
)


def followed(text: str, report: LintReport, finding: LintFinding, answer: Chain, machine: str) -> str | None:
    """The file with an answer followed, by its types or as a person types its words; None where neither is enough."""
    words = says(answer, finding.syntax)
    changed = apply(text, finding, answer)
    if changed is not None:
        return _nvidias(changed, finding, words) if _AMDS.search(words) else changed
    changed = _by_words(text, report, finding, words)
    return changed if changed is None or machine == "orin" else changed.replace(IGPU, FOR_SERVERS)


def _by_words(text: str, report: LintReport, finding: LintFinding, words: str) -> str | None:
    if (see := re.fullmatch(r"pin one that runs there: see ([\w-]+)", words)) is not None:
        return _as_there(text, report, finding, see.group(1))
    hands = [does for pattern, does in _HANDS if re.search(pattern, words) is not None]
    for does in hands:
        changed = does(text, finding, words)
        if changed is None or changed == text:
            return None
        text = changed
    return text if hands else None


def _as_there(text: str, report: LintReport, finding: LintFinding, code: str) -> str | None:
    """The answer of the finding that this one sends to."""
    there = next((each for each in report.findings if each.code == code and each.file == finding.file), None)
    pins = [each for each in there.answers if isinstance(each.ways[0], InstallWheels)] if there is not None else []
    found = (apply(text, there, answer) for answer in pins if there is not None)
    return next((each for each in found if each is not None), None)


def _body_out(text: str, finding: LintFinding, words: str) -> str:
    """A Dockerfile without the instruction at the line: what it proved is proved when the container runs."""
    starts = [each.line for each in parse_dockerfile(text, "")]
    first = max(line for line in starts if line <= finding.line)
    end = min((line for line in starts if line > first), default=len(text.splitlines()) + 1)
    lines = text.splitlines()
    return "\n".join((*lines[: first - 1], *lines[end - 1 :], ""))


def _image(name: str) -> Callable[[str, LintFinding, str], str | None]:
    return lambda text, finding, words: apply(text, finding, chain(UseImage(name)))


def _named_image(text: str, finding: LintFinding, change: Callable[[str], str]) -> str | None:
    """The image of the finding, or the last one above it, under another tag."""
    above = "\n".join(text.splitlines()[: finding.line])
    images = re.findall(r"nvcr\.io[/#][\w./-]+:[\w.-]+", above) or re.findall(r"nvcr\.io[/#][\w./-]+:[\w.-]+", text)
    return text.replace(images[-1], change(images[-1])) if images else None


def _later(text: str, finding: LintFinding, words: str) -> str | None:
    return _named_image(text, finding, lambda image: re.sub(r":\d\d\.\d\d", ":25.09", image))


def _igpu(text: str, finding: LintFinding, words: str) -> str | None:
    return _named_image(text, finding, lambda image: f"{re.sub(r':2[0-4][.][0-9]{2}', ':25.03', image)}-igpu")


def _install_out(text: str, finding: LintFinding, words: str) -> str | None:
    """torch and its companions out of the command at the line, or the whole command where nothing is left."""
    starts = [each.line for each in parse_dockerfile(text, "")] if "FROM " in text else [finding.line]
    first = max((line for line in starts if line <= finding.line), default=finding.line)
    end = min((line for line in starts if line > first), default=first + 1)
    lines = text.splitlines()
    body = "\n".join(lines[first - 1 : end - 1])
    less = re.sub(rf"(?<=[\s'\"]){_TORCH_WORDS}(?=[\s'\"]|$)", "", body)
    less = re.sub(r"\s--(?:extra-)?index-url[ =][^\s\"']*pytorch\.org[^\s\"']*", "", less)
    if not re.search(r"\binstall\b(?:\s+-\S+)*\s+[\w'\"]", less):
        less = "" if body.startswith("RUN") else re.sub(r"pip3? install[^\"&]*", "true ", less)
    return "\n".join((*lines[: first - 1], *less.splitlines(), *lines[end - 1 :], ""))


def _pixis_cuda(text: str, finding: LintFinding, words: str) -> str:
    """The line of system-requirements as it is written between the backticks."""
    lines = text.splitlines()
    lines[finding.line - 1] = words.split("`")[1]
    return "\n".join((*lines, ""))


def _runner(text: str, finding: LintFinding, words: str) -> str:
    lines = text.splitlines()
    lines[finding.line - 1] = re.sub(r"runs-on:.*", "runs-on: [self-hosted, gpu]", lines[finding.line - 1])
    return "\n".join((*lines, ""))


def _capabilities(text: str, finding: LintFinding, words: str) -> str:
    """`capabilities: [gpu]` in the device that begins at the line, in place of what it has."""
    lines = text.splitlines()
    at = finding.line - 1
    width = len(lines[at]) - len(lines[at].lstrip("- "))
    block = next((n for n in range(at + 1, len(lines)) if len(lines[n]) - len(lines[n].lstrip()) < width), len(lines))
    inside = [line for line in lines[at:block] if not re.match(r"\s*(?:- )?capabilities:", line)]
    if "{" in lines[at]:
        lines[at] = re.sub(r",?\s*capabilities: \[[^\]]*\]", "", lines[at]).replace("}", ", capabilities: [gpu]}", 1)
        return "\n".join((*lines, ""))
    inside = [line for line in inside if not re.fullmatch(r"\s*- (?:utility|compute|gpu|nvidia)", line)]
    return "\n".join((*lines[:at], *inside, " " * width + "capabilities: [gpu]", *lines[block:], ""))


def _one_of_two(text: str, finding: LintFinding, words: str) -> str:
    lines = text.splitlines()
    near = next(n for n in range(finding.line - 1, len(lines)) if re.search(r"\bcount:", lines[n]))
    first = re.sub(r"count:\s*\S+", "", lines[near])
    lines[near : near + 1] = [] if first.strip() in ("", "-") and not first.strip() else [first]
    return "\n".join((*lines, ""))


def _where_they_may_go(text: str, finding: LintFinding, words: str) -> str:
    """/opt in place of the folder of root; before a Python of uv's the variable that says where."""
    if "UV_PYTHON_INSTALL_DIR" in words:
        lines = text.splitlines()
        at = next(n for n, line in enumerate(lines) if line.startswith("FROM") and n < finding.line)
        return "\n".join((*lines[: at + 1], "ENV UV_PYTHON_INSTALL_DIR=/opt/python", *lines[at + 1 :], ""))
    return text.replace("/root", "/opt")


def _no_platform(text: str, finding: LintFinding, words: str) -> str:
    return re.sub(r"--platform=\S+\s+", "", text)


def _nvidias(text: str, finding: LintFinding, words: str) -> str:
    """What asks for AMD's GPUs, asking for NVIDIA's."""
    text = text.replace("amd.com/gpu", "nvidia.com/gpu").replace("singularity exec ", "singularity exec --nv ")
    return re.sub(r"(?m)^(\s*)devices:\n(?:\s*- /dev/(?:kfd|dri)\n)+", r"\1gpus: all\n", text)


def _same_program(text: str, finding: LintFinding, words: str) -> str | None:
    """vllm/vllm-openai in place of rocm/vllm: of a release that has code for every GPU of the six machines."""
    vllm = "vllm" in finding.saw
    return apply(text, finding, chain(UseImage("vllm/vllm-openai:v0.11.0"))) if vllm else None


def _torch_inside(text: str, finding: LintFinding, words: str) -> str | None:
    """An image that has torch, and no torch in what is installed in it."""
    if finding.syntax in (Syntax.DOCKERFILE, Syntax.SHELL, Syntax.WORKFLOW, Syntax.DEVCONTAINER):
        text = _install_out(text, finding, words) or text
        image = chain(UseImage(IGPU))
        return apply(text, finding, image) if finding.syntax is Syntax.DOCKERFILE else text
    lines = text.splitlines()
    name = r"(?:py)?torch(?:vision|audio)?(?:-gpu|-cuda)?"
    kept = [line for line in lines if not re.match(rf"\s*(?:- )?['\"]?{name}\s*(?:[=<>!~\[,'\"@]|$)", line)]
    return "\n".join((*kept, ""))


def _newer_toolkit(text: str, finding: LintFinding, words: str) -> str:
    """The base of CUDA 12.8 in place of an older one."""
    text = re.sub(r"nvidia/cuda:1[123]\.[\d.]+-(?:cudnn8-)?", "nvidia/cuda:12.8.1-", text)
    return re.sub(r"pytorch/pytorch:2\.\d\.\d-cuda1[12]\.\d-cudnn\d", "pytorch/pytorch:2.8.0-cuda12.8-cudnn9", text)


def _arch_too(text: str, finding: LintFinding, words: str) -> str:
    named = re.search(r"and name ([\d.]+) too", words)
    assert named is not None, words
    return re.sub(r"(TORCH_CUDA_ARCH_LIST[= ][\"']?)", rf"\g<1>{named[1]};", text)


def _python(text: str, finding: LintFinding, words: str) -> str:
    version = words.removeprefix("use Python ")
    text = re.sub(r"(- python\s*[=<>~]+\s*)[\d.]+\*?", rf"\g<1>{version}", text)
    return re.sub(r"requires-python = \".*\"", f'requires-python = "=={version}.*"', text)


def _python_copied(text: str, finding: LintFinding, words: str) -> str:
    """The folder in which uv keeps its Python, set in the stage with uv and copied behind the environment."""
    stage = re.search(r"(?m)^COPY --from=(\w+) (\S+venv)\b.*$", text)
    if stage is None:
        return text
    text = text.replace(stage[0], f"{stage[0]}\nCOPY --from={stage[1]} /opt/python /opt/python")
    return re.sub(rf"(?m)^(FROM .* AS {stage[1]})$", r"\1\nENV UV_PYTHON_INSTALL_DIR=/opt/python", text)


def _tagged(text: str, finding: LintFinding, words: str) -> str:
    lines = text.splitlines()
    lines[finding.line - 1] = re.sub(r"(image:\s*[\w./-]+?)(?::latest)?$", r"\1:v0.11.0", lines[finding.line - 1])
    return "\n".join((*lines, ""))


def _nvidias_tensorflow(text: str, finding: LintFinding, words: str) -> str | None:
    """NVIDIA's image, and no framework in what is installed in it."""
    image = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
    if finding.syntax is Syntax.REQUIREMENTS:
        lines = text.splitlines()
        return "\n".join((*lines[: finding.line - 1], *lines[finding.line :], ""))
    if finding.syntax is not Syntax.DOCKERFILE:
        return apply(text, finding, chain(UseImage(image)))
    frameworks = r"(?:onnxruntime-gpu|tensorflow)(?:\[[^\]]*\])?(?:[=<>!~][^\s'\"\\]*)?"
    return apply(re.sub(rf"(?<=\s)['\"]?{frameworks}['\"]?(?=\s|$)", "", text), finding, chain(UseImage(image)))


def _tgi(text: str, finding: LintFinding, words: str) -> str:
    return re.sub(r"(text-generation-inference):\d[\w.-]*", r"\1:3.3.4", text)


_HANDS: tuple[tuple[str, Callable[[str, LintFinding, str], str | None]], ...] = (
    (r"^prove it when the container runs", _body_out),
    (r"^write `cuda = ", _pixis_cuda),
    (r"^take an image made for Jetson, e", _image(JETPACK)),
    (r"take an image made for Jetson that has torch", _image(IGPU)),
    (r"^take an image that is published for this processor$", _image("python:3.12")),
    (r"^leave --platform out|and, as .* is for that processor alone", _no_platform),
    (r"take a later date of (?:it|the image)", _later),
    (r"take the -igpu tag", _igpu),
    (r"remove this install", _install_out),
    (r"^name a runner with a GPU", _runner),
    (r"^write `capabilities: \[gpu\]`", _capabilities),
    (r"^keep one of them", _one_of_two),
    (r"^put it where", _where_they_may_go),
    (r"^take the image with CUDA of the same program", _same_program),
    (_AMDS.pattern, _nvidias),
    (r"^take an image with torch for this processor", _torch_inside),
    (r"^use CUDA 1[12]\.\d(?: to|$|,)", _newer_toolkit),
    (r"and name (?:7\.0|12\.0) too", _arch_too),
    (r"^use Python 3\.\d+$", _python),
    (r"^set UV_PYTHON_INSTALL_DIR=/opt/python in the stage", _python_copied),
    (r"^name a version, best with", _tagged),
    (r"nvcr\.io/nvidia/tensorflow", _nvidias_tensorflow),
    (r"^take TGI 3\.3\.1", _tgi),
)
