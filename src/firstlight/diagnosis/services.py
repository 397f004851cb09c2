"""Services by what they are for: the unit that this system has for it, or a person where the tables name none."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.tables.system_rows import Family, Role, RowKind
from firstlight.ways.kinds import AskPerson, InstallPackages, Service, SetUpRepository, StartService, Why
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import filled, name_row, names_for
from firstlight.ways.way import Way

FABRIC_MANAGER, IMEX, LICENCE = "fabric-manager", "imex", "licence"
_BY_IMAGE = (Family.IMAGE, Family.NIXOS, Family.OSTREE)  # nothing is installed on the running system
_CALLED = {
    FABRIC_MANAGER: "Fabric Manager",
    IMEX: "NVIDIA's IMEX service",
    LICENCE: "the licence daemon of the virtual GPU",
}


def unit(question: Question, of: str) -> str:
    """The unit of a service on this system, e.g. nvidia-imex; '' where the tables have none."""
    names = names_for(Role.SERVICE, platform_of(question.facts), question.tables, of=of)
    return names[0] if names else ""


def _called(role: Role) -> str:
    return role.value.replace("-", " ")


def start(question: Question, of: str, action: Service = Service.START) -> Way:
    """The service started, by its unit or by a person."""
    name = unit(question, of)
    return StartService(name, action) if name else AskPerson("service", Why.DECISION, of=(action.value, _CALLED[of]))


def comes_as_image(question: Question) -> bool:
    """Whether this system is changed by another image of it, and by nothing that runs on it."""
    return platform_of(question.facts).family in _BY_IMAGE


def packages(question: Question, role: Role, *, version: str = "", **slots: str) -> tuple[Way, ...]:
    """The packages of a role, after the repository that has them; a person where the tables name none."""
    platform = platform_of(question.facts)
    if comes_as_image(question):
        by_image = name_row(role, platform, question.tables, of=platform.image_based.value)
        if by_image is not None and by_image.kind is RowKind.SETTING:
            return (AskPerson("as-the-system-says", Why.IMAGE, of=(by_image.names[0],)),)
        return (AskPerson("take-image-that-has", Why.IMAGE, of=(_called(role),)),)
    branch = slots.get("branch", "0")
    row = name_row(role, platform, question.tables, number=int(branch))
    names = () if row is None else filled(row, platform, **slots)
    if row is None:
        return (AskPerson("install-nvidias", Why.DECISION, of=(_called(role), version.rstrip("*"))),)
    first = (SetUpRepository(),) if row.from_repository == "nvidia" else ()
    return (*first, InstallPackages(names, version=version))
