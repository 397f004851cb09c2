"""Rules about project files that fix another torch than the one that is installed."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.python_environments import ProjectFile
from firstlight.specifiers import satisfies
from firstlight.tables.torch_index import index_of_build
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import AskPerson, KeepInProject, Package, Why
from firstlight.ways.way import Chain, chain


def project_would_undo(question: Question) -> Iterator[Seen]:
    """`uv run` brings the environment in line with uv.lock first, and so replaces a torch put in by hand."""
    facts = question.facts
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    if torch is None or isinstance(torch.version, Unknown):
        return
    recorded = torch.recorded_version.value if isinstance(torch.recorded_version, Known) else torch.version.value.text
    for file in facts.python.project_files:
        said = _what_it_would_do(file, recorded)
        if said and _rules_the_environment(facts, file):
            yield Seen(
                saw=f"{file.path} {said}; installed is torch {recorded} ({torch.folder})",
                answers=_how_to_keep(file, recorded, cuda=value_or(torch.wheel_cuda, None)),
            )


def _what_it_would_do(file: ProjectFile, recorded: str) -> str:
    """What the file says of torch where that is not what is installed; '' where it is, or says nothing."""
    name, public = file.path.rpartition("/")[2], recorded.partition("+")[0]
    if name == "uv.lock":
        if not file.torch:
            return "has no torch, and `uv sync` removes what is not in it"
        return "" if recorded in file.torch else f"fixes torch {' or '.join(file.torch)}"
    if name == "pixi.lock":
        versions = [each.split(" ")[0] for each in file.torch]
        found = any(each in (recorded, public) for each in versions)
        return "" if found or not versions else f"fixes torch {' or '.join(file.torch)}"
    refused = [each for each in file.torch if satisfies(recorded, each) is False]
    return f"requires torch{' and torch'.join(refused)}" if refused and len(refused) == len(file.torch) else ""


def _rules_the_environment(facts: Facts, file: ProjectFile) -> bool:
    """Whether the environment that was judged is the project's own: below its folder, or found through it."""
    environment = facts.environment
    if environment is None:
        return False
    through = any(why.startswith(("project ", "UV_PROJECT_ENVIRONMENT")) for why in environment.found_by)
    return through or environment.prefix.startswith(file.path.rpartition("/")[0] + "/")


def _how_to_keep(file: ProjectFile, recorded: str, *, cuda: CudaVersion | None) -> tuple[Chain, ...]:
    """torch in the project's own files, or its tool told to leave the environment alone."""
    tag = cuda.release.tag if cuda is not None else recorded.partition("+")[2]
    keep = KeepInProject((Package("torch", recorded),), index_of_build(tag) if tag else "")
    without = "pixi run --frozen --no-install" if file.path.endswith("pixi.lock") else "uv run --no-sync"
    return chain(keep), chain(AskPerson("start-programs-with", Why.PROGRAM, of=(without,)))


PROJECT_RULES = (
    Rule(
        check=project_would_undo,
        severity=Severity.DEGRADES,
        depth=45,
        title="The project's lock file holds another torch and will bring it back.",
        fires_when="The uv.lock, pixi.lock or pyproject.toml of the environment's project names another torch alone.",
        looks_at=("python.project_files", "python.environments.found_by", "torch.version", "torch.recorded_version"),
        means="The next `uv run` or `uv sync` replaces the torch that was installed here, without asking.",
        source="talmolab/sleap-nn#662",
        ways=(KeepInProject, AskPerson),
    ),
)
