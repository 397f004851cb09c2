"""What an option is called: its kind, its stable id and its title, from its ways."""

from __future__ import annotations

import re

from firstlight.plan.option import Kind, Option
from firstlight.ways import kinds
from firstlight.ways.asks import MAKE_ROOM
from firstlight.ways.platform import Platform
from firstlight.ways.way import Chain, Way, type_name
from firstlight.ways.words import at_a_word, title_of

LONGEST_TITLE = 70
# In this order: what leaves this system, what changes most, what only takes away. The first kind met decides.
_KINDS: tuple[tuple[Kind, tuple[type[Way], ...]], ...] = (
    (Kind.MACHINE, (kinds.OtherMachine,)),
    (Kind.CONTAINER, (kinds.UseImage, kinds.StartContainer)),
    (Kind.SOURCE, (kinds.BuildFromSource,)),
    (Kind.DRIVER, (kinds.InstallDriver,)),
    (Kind.COMPAT, (kinds.WireCompat, kinds.FetchCompat)),
    (Kind.WHEEL, (kinds.InstallWheels,)),
    (Kind.REMOVE, (kinds.Unwire, kinds.UnsetVariables, kinds.RemoveFiles, kinds.RemovePackages,
                   kinds.RemoveDistributions)),
)  # fmt: skip
# Set up for others of the chain; an option is not called by them.
_BESIDES = (kinds.SetUpRepository, kinds.MakeEnvironment, kinds.Restart, kinds.HoldPackages)


def kind_of(ways: tuple[Way, ...]) -> Kind:
    """The kind of option that a chain of ways is."""
    if not ways:
        return Kind.NOTHING
    if any(map(_is_for_building, ways)) and not (_torch(ways) or any(map(_builds, ways))):
        return Kind.TOOLKIT
    for kind, types in _KINDS:
        if any(isinstance(way, types) for way in ways):
            other = (kind is Kind.WHEEL and not _torch(ways)) or (kind is Kind.REMOVE and _is_replaced(ways))
            return Kind.REPAIR if other else kind
    return Kind.REPAIR


def _is_replaced(ways: tuple[Way, ...]) -> bool:
    """Whether system packages go so that others take their place: that is no removal alone."""
    types = (kinds.RemovePackages, kinds.InstallPackages)
    return all(any(isinstance(way, each) for way in ways) for each in types)


def _is_for_building(way: Way) -> bool:
    return isinstance(way, kinds.SetVariables) and way.scope is kinds.Scope.BUILD


def _builds(way: Way) -> bool:
    return isinstance(way, kinds.BuildFromSource) or (
        isinstance(way, kinds.InstallWheels) and way.manner is kinds.Manner.COMPILED
    )


def _torch(ways: tuple[Way, ...]) -> kinds.Package | None:
    installs = (way.package("torch") for way in ways if isinstance(way, kinds.InstallWheels))
    return next((each for each in installs if each is not None), None)


def name_of(kind: Kind, ways: tuple[Way, ...]) -> str:
    """The second half of an id: torch-2.9.0+cu128, cuda-compat-13-0, load-modules-nvidia-uvm."""
    torch = _torch(ways)
    if kind is Kind.NOTHING:
        return "as-it-is"
    if kind is Kind.MACHINE:
        return "any"
    if kind is Kind.WHEEL and torch is not None:
        return torch.requirement.replace("==", "-")
    for way in ways:
        if isinstance(way, kinds.InstallDriver):
            return str(way.branch)
        if isinstance(way, kinds.BuildFromSource):
            return way.project
    if kind is Kind.COMPAT:
        return _compat_name(ways)
    main = main_ways(ways)[0]
    return "-".join(filter(None, (type_name(type(main)), _first_argument(main))))


def _compat_name(ways: tuple[Way, ...]) -> str:
    for way in ways:
        if isinstance(way, kinds.InstallPackages):
            return way.packages[0]
        if isinstance(way, kinds.FetchCompat):
            return f"archive-{way.cuda.release}"
        if isinstance(way, kinds.InstallConda):
            return f"conda-{way.package.partition('=')[2]}"
    return next(way.folder for way in ways if isinstance(way, kinds.WireCompat))


def _first_argument(way: Way) -> str:
    """Of what it is done to, as much as an id takes: nvidia-uvm of LoadModules(('nvidia_uvm',))."""
    value = next((getattr(way, name) for name in way.__match_args__), "")  # type: ignore[attr-defined]
    while isinstance(value, tuple) and value:
        value = value[0]
    if isinstance(value, kinds.Package):
        value = value.project
    if isinstance(value, kinds.Variable):
        value = value.name
    return re.sub(r"[^a-z0-9.+]+", "-", str(value).lower()).strip("-")[:40].rstrip("-") if value else ""


def main_ways(ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """The ways that an option is called by: what changes more than this system first, then what decides its kind."""
    types = dict(_KINDS).get(kind_of(ways), ())

    def replaced(way: Way) -> bool:
        return isinstance(way, kinds.RemovePackages) and _is_replaced(ways)

    main = sorted(
        (way for way in ways if not isinstance(way, _BESIDES) and not _makes_room(way)),
        key=lambda way: (not _changes_what_is_below(way), not isinstance(way, types), not _builds(way), replaced(way)),
    )
    return tuple(main) or tuple(sorted(ways, key=lambda way: not isinstance(way, kinds.Restart)))


def _makes_room(way: Way) -> bool:
    return isinstance(way, kinds.AskPerson) and way.what == MAKE_ROOM


def _changes_what_is_below(way: Way) -> bool:
    above = (kinds.Why.DECISION, kinds.Why.PROGRAM, kinds.Why.COOLING)
    return isinstance(way, kinds.AskPerson) and way.cures and way.why not in above


def title_in_words(ways: tuple[Way, ...], platform: Platform, parts: tuple[Chain, ...] = ()) -> str:
    """What is done, in at most 70 characters: all of it in the order of the steps, or what counts most of it.

    A part of the option that has a title of its own is called by it.
    """
    named = {way: part.title for part in parts if part.title for way in part.ways}
    main = main_ways(ways)
    in_order = [named.get(way) or title_of(way, platform) for way in ways if way in main]
    restarts = any(isinstance(way, kinds.Restart) for way in ways) and not isinstance(main[0], kinds.Restart)
    titles = [*dict.fromkeys(in_order), *(["restart"] if restarts else [])]
    whole = ", then ".join(titles)
    if len(whole) <= LONGEST_TITLE:
        return whole
    first = named.get(main[0]) or title_of(main[0], platform)
    return _fitted([first, *(each for each in titles if each != first)], most=1)


def titles_told_apart(options: tuple[Option, ...], platform: Platform) -> tuple[str, ...]:
    """The titles of options; where two are the same, each begins with what it alone does."""
    found: list[str] = []
    for option in options:
        same = [each for each in options if each.title == option.title and each is not option]
        own = [way for way in option.ways if same and not any(way in each.ways for each in same)]
        own += [way for way in option.ways if same and not all(way in each.ways for each in same)]
        lead = [title_of(way, platform) for way in own[:1]]
        title = _fitted(list(dict.fromkeys((*lead, option.title)))) if lead else option.title
        found.append(title if title not in found else f"{shortened(title, LONGEST_TITLE - 5)} ({len(found) + 1})")
    return tuple(found)


def shortened(title: str, room: int = LONGEST_TITLE) -> str:
    """A title that fits, cut between two words."""
    return title if len(title) <= room else f"{at_a_word(title[: room - 3])}..."


def _fitted(titles: list[str], most: int = LONGEST_TITLE) -> str:
    """The titles as one, as many as fit and are wanted: 'install torch 2.9.0, then restart'."""
    for count in range(min(most, len(titles)), 0, -1):
        title = ", then ".join(titles[:count]) + _more(len(titles) - count)
        if len(title) <= LONGEST_TITLE:
            return title
    rest = _more(len(titles) - 1)  # said in any case: who reads one step alone believes that there is no other
    room = LONGEST_TITLE - len(rest)
    return (titles[0] if len(titles[0]) <= room else f"{at_a_word(titles[0][: room - 3])}...") + rest


def _more(steps: int) -> str:
    return f" (+{steps} step{'s' if steps > 1 else ''})" if steps else ""
