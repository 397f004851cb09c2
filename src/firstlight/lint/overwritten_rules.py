"""The rule about a torch that was chosen and that a later install replaces."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.lint.build_rules import cuda_builds
from firstlight.lint.model import Syntax, Target
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.torch_answers import begin_with
from firstlight.lint.torches import Replacement, fails, torches
from firstlight.lint.written import ask
from firstlight.specifiers import newest
from firstlight.ways.kinds import ChangeImage, InstallWheels, Package, Why
from firstlight.ways.way import Chain, chain


def torch_overwritten_later(target: Target, question: Question) -> Iterator[SeenAt]:
    """pip install torchvision, on its own line after a pinned torch, brings the newest torch with it."""
    for each in torches(target, question).replaced:
        ran = each.install.ran
        after = "" if each.after is None else f" by {each.after.shown}"
        asked = each.install.of(each.project)
        place = None if asked is None else asked.place
        by = ran.shown if place is None else each.by  # in a list of packages it is a line of its own that does it
        saw = f"{by} replaces {each.before.shown} (line {each.before.place.line}){after}: {each.why}"
        answers = _keeping(each, target, question)
        earlier = target.before(ran)
        compiled = next((built for built, _ in cuda_builds(target) if built in earlier), None)
        if compiled is None:
            yield SeenAt(place or ran.place, saw, answers)
            continue
        yield SeenAt(
            place or ran.place,
            f"{saw}. {compiled.shown} (line {compiled.place.line}) was compiled with the torch that is replaced",
            answers,
            because="An extension works with the torch that it was compiled with, and with no other.",
            error="ImportError: ... undefined symbol: _ZN3c10...",
            severity=Severity.BLOCKS,
        )


def _keeping(found: Replacement, target: Target, question: Question) -> tuple[Chain, ...]:
    """What to write so that the torch that was chosen stays; where it does not work there, the one that comes first."""
    if fails(found.before, question):
        return begin_with(found, target, question)
    hold = ChangeImage("RUN pip freeze | grep -i '^torch==' > /tmp/held && pip install -c /tmp/held ...")
    if found.project == "torch":
        lost = found.after is not None and fails(found.after, question)
        stays = f"leave torch out of this install: keep {found.before.shown} of line {found.before.place.line}"
        once = ask("install torch once, in one place", Why.PROGRAM, title=stays if lost else "")
        listed = found.install.ran.place.syntax in (Syntax.CONDA, Syntax.PIXI)  # one solve, with nothing to run between
        asked = found.install.of("torch")
        refused = asked is not None and bool(asked.exact or asked.address)  # by pip: two releases are asked for then
        return (once,) if listed or refused else (once, chain(hold, title="hold it"))
    chosen = f"torch {found.before.version.public}"
    rows = question.tables.companions_for(found.project, found.before.version)
    fitting = newest(tuple(row.version for row in rows))
    if fitting:
        package = Package(found.project, fitting)
        title = f"name the release that goes with {chosen}: {package.requirement}"
        return (chain(InstallWheels((package,)), title=title),)
    return (chain(hold, title=f"no {found.project} of the tables goes with {chosen}: hold torch"),)


OVERWRITTEN_LINT_RULES = (
    LintRule(
        "torch-overwritten-later",
        torch_overwritten_later,
        Severity.DEGRADES,
        "a later install replaces the torch that was chosen",
        "pip holds nothing that an earlier command installed: what is named last wins, with PyPI's CUDA.",
        "",
        "pip.pypa.io/en/stable/user_guide/#constraints-files",
    ),
)
