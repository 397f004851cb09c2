"""What the variables of a shell file are where a command stands: bodies that may not run leave a doubt behind."""

from __future__ import annotations

from firstlight.shells.commands import Command, Shape
from firstlight.shells.path_value import Names, elements_of
from firstlight.shells.settings import HowSet, Setting

Values = dict[str, str | None]  # None: more than one value is possible


class Variables:
    """Follows a file from its first command to its last; each body sees what was set before it."""

    def __init__(self, shape: Shape, at_start: dict[str, str]) -> None:
        self._parents = shape.parents
        self._many = {name for _, name in shape.loops}
        self._scopes: dict[int, Values] = {0: dict(at_start)}
        self._current = 0

    def at(self, body: int) -> Values:
        """The variables as a command of that body sees them."""
        ancestors = [body]
        while ancestors[-1] != 0:
            ancestors.append(self._parents[ancestors[-1]])
        while self._current not in ancestors:
            self._leave()
        for each in reversed(ancestors[: ancestors.index(self._current)]):
            self._scopes[each] = dict(self._scopes[self._current])
            self._current = each
        return self._scopes[body]

    def _leave(self) -> None:
        parent = self._parents[self._current]
        outer = self._scopes[parent]
        for name, value in self._scopes.pop(self._current).items():
            outer[name] = value if outer.get(name, value) == value else None
        self._current = parent

    def note(self, command: Command, setting: Setting, names: Names) -> None:
        """Learn what a command sets."""
        values = self.at(command.body)
        if setting.way is HowSet.NAMES or setting.name == names.itself:
            return
        value: str | None = None
        if setting.way is HowSet.SETS and not setting.array and setting.name not in self._many:
            written = (":".join(each.text for each in elements_of(word.text)) for word in setting.values)
            value = names.resolved(":".join(written)).strip("\r")
        if command.before in ("&&", "||") and values.get(setting.name, value) != value:
            value = None
        values[setting.name] = value
