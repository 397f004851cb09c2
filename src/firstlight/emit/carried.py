"""Which option of a plan goes into files, and what is said where none can: no file brings a driver or a machine."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.emit.packages import OTHER_MACHINES
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.plan.machine_class import parse_machine_class
from firstlight.plan.option import Kind, Option
from firstlight.plan.plan import choose
from firstlight.plan.request import Ranked
from firstlight.tables.gpu_rows import GpuKind
from firstlight.ways.kinds import (
    AskPerson,
    FetchCompat,
    InstallConda,
    InstallDriver,
    InstallPackages,
    InstallWheels,
    Why,
    WireCompat,
)
from firstlight.ways.way import Way

# What a file can bring to another machine; of repairs and removals a new machine has no need.
_CARRIED = (Kind.NOTHING, Kind.REMOVE, Kind.REPAIR, Kind.WHEEL, Kind.COMPAT, Kind.TOOLKIT)
_NOT_CARRIED = {
    Kind.DRIVER: "another driver",
    Kind.MACHINE: "another machine",
    Kind.CONTAINER: "a container that is started in another way",
    Kind.SOURCE: "a build from source",
}


def carried(ranked: Ranked, asked: str, *, wants: tuple[str, ...], question: Question) -> Option:
    """The option that is asked for, else the best that files can carry and that holds every want."""
    if asked or ranked.impossible:
        option = choose(ranked, asked)
        if option.kind not in _CARRIED:
            takes = f"--option {option.id}: that takes {_takes(option.kind, question)}, which no file brings."
            raise BadInput(f"{takes} Accepted: {_accepted(ranked, question)}.")
        return option
    options = [option for option in ranked.options if option.kind in _CARRIED]
    holding = [each for each in options if set(wants) <= set(each.satisfies) and not (wants and _asks_for_more(each))]
    if not holding:
        raise BadInput(_why_none(ranked, wants, question=question))
    # NVIDIA's package takes more driver branches than the archives on record, and is had where root is.
    packaged = (each for each in holding if _wires(each) and _brings_by(each, InstallPackages))
    fetched = _wires(holding[0]) and _brings_by(holding[0], FetchCompat, InstallConda)
    return next(packaged, holding[0]) if fetched else holding[0]


def instead_of(ranked: Ranked, option: Option) -> str:
    """The title of doctor's first option, where another is taken."""
    first = ranked.options[0] if ranked.options else option
    return first.title if first.id != option.id else ""


def _why_none(ranked: Ranked, wants: tuple[str, ...], *, question: Question) -> str:
    first = next((_takes(each.kind, question) for each in ranked.options if each.kind in _NOT_CARRIED), "")
    takes = (
        f"on this machine that takes {first}, which no file brings" if first else "no file brings it to this machine"
    )
    why = "".join(f" {option.title}: {option.why_not.rstrip('.')}." for option in ranked.rejected[:2])
    return f"{', '.join(wants) or 'torch'}: {takes}.{why} Accepted: {_accepted(ranked, question)}."


def _accepted(ranked: Ranked, question: Question) -> str:
    kinds = {*_CARRIED} - {Kind.REPAIR}  # one that leaves a want out brings a torch of no index
    others = [option for option in ranked.options if option.kind in kinds and not _asks_for_more(option)]
    near = "".join(f"--option {option.id} ({option.title}), or " for option in others[:3])
    return near + _other_machines(ranked.options, question)


def _other_machines(options: tuple[Option, ...], question: Question) -> str:
    """The same GPUs with the driver that an option would install, in the words of --for; else only how to name some."""
    driver = next((way for each in options for way in each.ways if isinstance(way, InstallDriver)), None)
    names = [gpu.name.value for gpu in question.facts.gpus.devices if isinstance(gpu.name, Known)]
    models = dict.fromkeys(_class_name(name, question) for name in names)
    if driver is None or not models or "" in models or _has_board(question):
        return OTHER_MACHINES
    return f'files for machines that have that driver already: --for "{", ".join(models)}, driver >= {driver.branch}"'


def _class_name(name: str, question: Question) -> str:
    """How --for spells a device, e.g. H100 of NVIDIA H100 80GB HBM3; a row of a whole series is no name there."""
    row = question.tables.gpu_named(name)
    for spelling in () if row is None else (row.model, name.removeprefix("NVIDIA ")):
        try:
            parse_machine_class(f"{spelling}, driver 580", question.tables)
        except BadInput:
            continue
        return spelling
    return ""


def _has_board(question: Question) -> bool:
    names = [gpu.name.value for gpu in question.facts.gpus.devices if isinstance(gpu.name, Known)]
    rows = [question.tables.gpu_named(name) for name in names]
    return any(row is not None and row.kind is GpuKind.JETSON for row in rows)


def _takes(kind: Kind, question: Question) -> str:
    return "a later Jetson Linux" if kind is Kind.DRIVER and _has_board(question) else _NOT_CARRIED[kind]


def _asks_for_more(option: Option) -> bool:
    """Whether it takes another system image of the board, a driver in Windows, or a torch without a number."""
    if any(isinstance(way, AskPerson) and way.why in (Why.BOARD, Why.WINDOWS) for way in option.ways):
        return True
    torches = (way.package("torch") for way in option.ways if isinstance(way, InstallWheels))
    return any(torch is not None and not torch.version for torch in torches)


def _wires(option: Option) -> bool:
    return any(isinstance(way, WireCompat) for way in option.ways)


def _brings_by(option: Option, *types: type[Way]) -> bool:
    return any(isinstance(way, types) for way in option.ways)
