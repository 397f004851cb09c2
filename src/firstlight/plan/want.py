"""What is wanted: `--want "torch==2.9.0+cu130"` taken apart, one project each."""

from __future__ import annotations

import enum
import re

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.versions import canonical

# solved together; python is the interpreter they are for
PROJECTS = ("torch", "torchvision", "torchaudio", "triton", "vllm", "xformers", "flash-attn")
PYTHON = "python"
_EXAMPLE = 'e.g. --want "torch==2.9.0+cu130"'
_WANT = re.compile(r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?![A-Za-z0-9._-])\s*(?P<spec>[<>=!~].*)?", re.DOTALL)
_EXACT = re.compile(r"(?P<operator>===?)\s*(?P<public>[^\s,+*]+)\+(?P<local>[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*)")


class Channel(enum.Enum):
    """Where torch comes from: its releases, release candidates, or the build of last night."""

    STABLE = "stable"
    TEST = "test"
    NIGHTLY = "nightly"


@dataclass(frozen=True, slots=True)
class Want:
    """One project and its bounds: torch==2.9.0+cu130 has specifier ==2.9.0 and local cu130; "" takes any."""

    project: str  # normalised: flash-attn for flash_attn
    specifier: str  # PEP 440 without the local part
    local: str
    text: str  # as given

    @property
    def exact(self) -> str:
        """The one version that is asked for, 2.9.0 of ==2.9.0; "" for a range."""
        match = re.fullmatch(r"===?([^,*]+)", self.specifier)
        return match[1] if match else ""


def parse_want(text: str) -> Want:
    """A want as typed: 'flash_attn>=2.8' is the project flash-attn from 2.8 on."""
    match = _WANT.fullmatch(text)
    shown = ascii(text if len(text) <= 60 else text[:57] + "...")
    if match is None:
        raise BadInput(f"--want {shown}: accepted is a project with or without version bounds, {_EXAMPLE}.")
    project = canonical(match["name"])
    if project not in (*PROJECTS, PYTHON):
        raise BadInput(
            f"--want {shown}: {project[:40]} is not a project that firstlight plans for; accepted: "
            f"{', '.join((*PROJECTS, PYTHON))}, {_EXAMPLE}. "
            "Install other packages after these."
        )
    specifier, local = _taken_apart((match["spec"] or "").strip(), shown)
    return Want(project, specifier, local, text.strip())


def parse_wants(texts: tuple[str, ...]) -> tuple[Want, ...]:
    """All wants, one for each project: two bounds of one project are joined, two builds of it are refused."""
    found: dict[str, Want] = {}
    for want in map(parse_want, texts):
        before = found.get(want.project)
        found[want.project] = want if before is None else _joined(before, want)
    return tuple(found.values())


def _joined(first: Want, second: Want) -> Want:
    if first.local and second.local and first.local != second.local:
        raise BadInput(
            f"--want {first.text} and --want {second.text}: one environment holds one build of {first.project}. "
            "Leave one of them out."
        )
    if first.exact and second.exact and first.exact != second.exact:
        raise BadInput(
            f"--want {first.text} and --want {second.text} exclude each other: no release is both. Keep one."
        )
    bounds = dict.fromkeys(bound for each in (first, second) for bound in each.specifier.split(",") if bound)
    return Want(first.project, ",".join(bounds), first.local or second.local, f"{first.text}, {second.text}")


def _taken_apart(specifier: str, shown: str) -> tuple[str, str]:
    """'==2.9.0+cu130' as ('==2.9.0', 'cu130'); only == takes a local part, as PEP 440 has it."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    local = ""
    if match := _EXACT.fullmatch(specifier):
        local = re.sub(r"[-_.]", ".", match["local"]).lower()
        specifier = f"{match['operator']}{match['public']}"
    try:
        read = SpecifierSet(specifier)
    except InvalidSpecifier as error:
        raise BadInput(
            f"--want {shown}: {specifier[:40]!a} is not a version bound ({error}); accepted: ==2.9.0, >=2.8,<2.10, "
            f"~=3.5.0, or nothing, {_EXAMPLE}."
        ) from None
    if any("+" in each.version for each in read):
        raise BadInput(f"--want {shown}: a build such as +cu130 goes with one exact version, {_EXAMPLE}.")
    return ",".join(part.strip().replace(" ", "") for part in specifier.split(",") if part.strip()), local
