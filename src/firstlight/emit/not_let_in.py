"""What of a class of machines the gates refuse: a compat library takes some driver branches and not those between."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.emit.gates import Gates
from firstlight.emit.imagined import oldest_driver
from firstlight.emit.packages import cuda_of
from firstlight.emit.subject import Subject
from firstlight.facts.known import Known
from firstlight.plan.solve import solve
from firstlight.plan.want import Channel, parse_want
from firstlight.versions import DriverVersion, TorchVersion


def not_let_in(subject: Subject, gates: Gates) -> tuple[str, ...]:
    """None or one sentence: the driver branches of the class that are refused, and the torch that runs on all."""
    oldest, alone = oldest_driver(subject.facts), gates.min_driver_alone
    if oldest is None or not isinstance(alone, Known):
        return ()
    named = {row.branch for row in subject.tables.driver_branches} | {oldest.branch}
    between = {branch for branch in named if oldest.branch <= branch < alone.value.branch}
    refused = sorted(between - set(gates.compat_branches))
    if not refused:
        return ()
    branches = " or ".join((", ".join(map(str, refused[:-1])), str(refused[-1]))) if refused[1:] else str(refused[0])
    said = f"Of these machines those with driver {branches} are refused: no compat library inside is known to fit them."
    other = _for_all(subject, gates, oldest)
    return (said + (f' To let in all: --want "{other}".' if other else ""),)


def _for_all(subject: Subject, gates: Gates, oldest: DriverVersion) -> str:
    """The same release of torch in a build that the oldest driver of the class runs by itself; '': none is known."""
    if subject.requirements[1:]:
        return ""  # what comes beside torch may be of one build alone
    question = Question(subject.facts, subject.tables, subject.goal, ())
    wants = (parse_want(f"torch=={gates.torch.public}"),)
    for each in solve(question, wants, channel=Channel.STABLE).sets:
        cuda = cuda_of(TorchVersion.parse(each.torch.version), subject.target.machine, subject.tables)
        floor = subject.tables.oldest_driver(cuda.value) if isinstance(cuda, Known) else None
        if floor is not None and floor <= oldest and not each.torch.from_source:
            return each.torch.requirement
    return ""
