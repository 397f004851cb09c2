"""Which kind of file is at hand: by what the user says, else by its name, else by what is in it."""

from __future__ import annotations

import posixpath
import re

from firstlight.errors import BadInput
from firstlight.lint.model import Syntax
from firstlight.lint.yaml_tree import Tree, is_yaml

# What --kind takes. Slurm scripts are shell scripts with #SBATCH lines.
KINDS = {
    "dockerfile": Syntax.DOCKERFILE,
    "compose": Syntax.COMPOSE,
    "kubernetes": Syntax.KUBERNETES,
    "devcontainer": Syntax.DEVCONTAINER,
    "workflow": Syntax.WORKFLOW,
    "slurm": Syntax.SHELL,
    "shell": Syntax.SHELL,
    "requirements": Syntax.REQUIREMENTS,
    "pyproject": Syntax.PYPROJECT,
    "uv-lock": Syntax.LOCK,
    "conda": Syntax.CONDA,
    "pixi": Syntax.PIXI,
}
ACCEPTED = (
    "a Dockerfile, a compose file, a Kubernetes manifest, devcontainer.json, a GitHub workflow, a Slurm or shell "
    "script, requirements.txt, pyproject.toml, uv.lock, environment.yml or pixi.toml"
)
_NAMES: tuple[tuple[str, Syntax], ...] = (
    (r"(?:.*/)?(?:dockerfile|containerfile)(?:[.-][^/]*)?|.*\.(?:dockerfile|containerfile)", Syntax.DOCKERFILE),
    (r"(?:.*/)?\.?devcontainer\.json|(?:.*/)?\.devcontainer/[^/]+\.json", Syntax.DEVCONTAINER),
    (r"(?:.*/)?pyproject\.toml", Syntax.PYPROJECT),
    (r"(?:.*/)?pixi\.toml", Syntax.PIXI),
    (r"(?:.*/)?uv\.lock", Syntax.LOCK),
    (r"(?:.*/)?[^/]*(?:requirements|constraints)[^/]*\.(?:txt|in)", Syntax.REQUIREMENTS),
    (r"(?:.*/)?requirements/[^/]+\.(?:txt|in)", Syntax.REQUIREMENTS),
    (r".*\.(?:sh|bash|sbatch|slurm|job)", Syntax.SHELL),
)  # fmt: skip
_SOURCE = re.compile(r"(?i).*\.(?:py|j2|jinja2?|tmpl|tpl|md|rst|go|rs|rb|java|[cm]?[jt]sx?|c|h|cc|cpp|html|css|svg)")
_YAML = re.compile(r"(?i).*\.ya?ml")
# Top-level keys that tell a YAML file: all of a row must be there.
_KEYS: tuple[tuple[frozenset[str], Syntax], ...] = (
    (frozenset(("jobs", "on")), Syntax.WORKFLOW),
    (frozenset(("apiVersion", "kind")), Syntax.KUBERNETES),
    (frozenset(("services",)), Syntax.COMPOSE),
    (frozenset(("dependencies",)), Syntax.CONDA),
)
# YAML by its name, with the key that it then needs.
_YAML_NAMES: tuple[tuple[str, str, Syntax], ...] = (
    (r"(?:.*/)?\.github/workflows/.*", "jobs", Syntax.WORKFLOW),
    (r"(?i)(?:.*/)?(?:docker-)?compose[^/]*\.ya?ml", "services", Syntax.COMPOSE),
    (r"(?i)(?:.*/)?environment[^/]*\.ya?ml", "dependencies", Syntax.CONDA),
)
_KEY = re.compile(r"""^(?:\ufeff)?["']?([A-Za-z_][\w.-]*)["']?\s*:(?=\s|$)""", re.MULTILINE)
# Lines that tell a file whose name does not.
_CONTENTS: tuple[tuple[str, Syntax], ...] = (
    (r"(?m)^\[\[package\]\][ \t]*$", Syntax.LOCK),
    (r"(?m)^\[(?:project|build-system|dependency-groups|tool\.[\w.-]+)\][ \t]*$", Syntax.PYPROJECT),
    (r"(?m)^\[(?:workspace|pypi-dependencies|dependencies)\][ \t]*$", Syntax.PIXI),
    (r"(?m)^#SBATCH\s", Syntax.SHELL),
    (r"\A#!.*\b(?:ba|da|z)?sh\b", Syntax.SHELL),
)
# The first line that is neither blank nor a comment.
_FIRST_LINES: tuple[tuple[str, Syntax], ...] = (
    (r"(?i)(?:FROM|ARG)\s+\S", Syntax.DOCKERFILE),
    (r"\{|//", Syntax.DEVCONTAINER),
    (r"(?:-r|-i|-f|--(?:extra-)?index-url|--find-links)[ =]", Syntax.REQUIREMENTS),
    (r"[A-Za-z0-9][\w.-]*(?:\[[\w, -]*\])?\s*(?:[=~><!]=|<|>)=?\s*\d", Syntax.REQUIREMENTS),
)


def kind_named(name: str) -> Syntax:
    """The kind that --kind names; another word is bad input."""
    if name not in KINDS:
        raise BadInput(f"--kind {name[:40]!a}: accepted: {', '.join(KINDS)}. Give one of these.")
    return KINDS[name]


def known_kind(file: str, text: str) -> Syntax | None:
    """The kind by the name, of YAML and of a name that does not tell by the content; None: none of ours."""
    if _YAML.fullmatch(file):
        return _of_yaml(file, text)
    if _SOURCE.fullmatch(file):
        return None  # dockerfile.py reads Dockerfiles, and Dockerfile.j2 is not one yet
    named = next((syntax for pattern, syntax in _NAMES if re.fullmatch(pattern, file.lower())), None)
    if named is not None or "." in posixpath.basename(file).strip("."):
        return named or _of_content(text)
    return _of_content(text) or (_of_yaml(file, text) if _KEY.search(text) else None)


def kind_of(file: str, text: str) -> Syntax:
    """The kind of a file that the user named; one that cannot be told is bad input."""
    found = known_kind(file, text)
    if found is not None:
        return found
    if _YAML.fullmatch(file):
        _of_yaml_or_refused(file, text)
    first = next(
        (line.split()[0] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), ""
    )
    begins = f"; it begins with {first[:30]!a}" if first else "; it is empty"
    raise BadInput(f"{file}: not a file that lint knows by its name or content{begins}. Accepted: {ACCEPTED}. "
                   f"Say which it is with --kind: {', '.join(KINDS)}.")  # fmt: skip


def _of_yaml_or_refused(file: str, text: str) -> None:
    Tree(text, file, Syntax.COMPOSE)  # what is no YAML is refused there, with the line
    keys = sorted(set(_KEY.findall(text)))
    shown = f"it has {', '.join(keys[:6])}" if keys else "no keys in it"
    raise BadInput(
        f"{file}: {shown}; accepted: services: of a compose file, apiVersion: and kind: of a Kubernetes manifest, "
        "on: and jobs: of a GitHub workflow, dependencies: of a conda environment. Say which it is with --kind."
    )


def _of_yaml(file: str, text: str) -> Syntax | None:
    keys = set(_KEY.findall(text))
    named = next((row for row in _YAML_NAMES if re.fullmatch(row[0], file)), None)
    if named is not None and named[1] in keys:
        return named[2]
    found = next((syntax for wanted, syntax in _KEYS if wanted <= keys), None)
    return named[2] if found is None and named is not None and not is_yaml(text) else found  # to be refused as such


def _of_content(text: str) -> Syntax | None:
    found = next((syntax for pattern, syntax in _CONTENTS if re.search(pattern, text)), None)
    first = _first_line(text)
    return found or next((syntax for pattern, syntax in _FIRST_LINES if re.match(pattern, first)), None)


def _first_line(text: str) -> str:
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")
