"""Shell text read in its order: variables, functions, pipes and redirections, down to the calls that it makes."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from firstlight.guard.call import HOLE, SEP, Call, Opaque, Unreadable
from firstlight.guard.expand import expanded, filled, words_of
from firstlight.guard.place import Place, text_of
from firstlight.guard.syntax import text_of_node, tree_of

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_CALLS = 4_000
DEEPEST = 12  # shells inside of shells, files inside of files
_CONDITIONAL = {"if_statement", "elif_clause", "else_clause", "case_statement", "case_item"}
_LOOPS = {"while_statement", "until_statement", "for_statement", "c_style_for_statement"}
_GROUPS = {"program", "compound_statement", "do_group", "negated_command", "list", "else_clause"}
_SUBSTITUTIONS = {"command_substitution", "process_substitution"}


class Shell:
    """One shell while its text is read; `calls` and `opaque` are what came of it."""

    def __init__(self, place: Place, run: Callable[[Shell, Call], str]) -> None:
        self.place, self.run = place, run
        self.calls: list[Call] = []
        self.opaque: list[Opaque] = []
        self.variables: dict[str, tuple[str, ...]] = {}
        self.functions: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.written: dict[str, str | None] = {}  # files that the text itself writes, and their text
        self.folders: set[str] = set()  # that the text itself makes
        self.renamed: dict[str, str] = {}  # a new name of a program: by ln, cp or mv
        self.links: dict[str, str] = {}  # a new name of a file or folder, and what it stands for
        self.cwds: tuple[str, ...] = (place.cwd,)
        self.trail: tuple[str, ...] = ()
        self.contained = False
        self.depth = 0
        self._maybe = 0  # more than 0: inside of what may not happen
        self._visited: set[int] = set()
        self._kept: list[Node] = []

    # what a word asks for

    def value(self, name: str) -> tuple[str, ...]:
        if name in self.variables:
            return self.variables[name]
        if name == "PWD":
            return self.cwds
        if name in self.place.env and not name.isdigit():
            return (self.place.env[name],)
        return (HOLE,)

    def give(self, name: str, values: tuple[str, ...]) -> None:
        before = self.variables.get(name, ()) if self._maybe else ()
        self.variables[name] = tuple(dict.fromkeys((*before, *values)))[:24]

    def printed(self, node: Node) -> str:
        self._visited.add(node.id)
        return self.aside(lambda: self._children(node, None))

    def aside(self, act: Callable[[], str]) -> str:
        """What a subshell prints: its variables and folder end with it."""
        kept = copy.copy(self.variables), copy.copy(self.functions), self.cwds, self.aliases.copy()
        try:
            return act()
        finally:
            self.variables, self.functions, self.cwds, self.aliases = kept

    # texts

    def read(self, text: str, through: str, stdin: str | None = None) -> str:
        """Follow a text as this shell would run it; what it prints, with holes."""
        if HOLE in text and not text.replace(HOLE, "").strip():
            self.hide(through)
            return HOLE
        if self.depth >= DEEPEST:
            raise Unreadable(f"{self.depth} shells inside of each other")
        trail, self.depth = self.trail, self.depth + 1
        self.trail = (*trail, through) if through else trail
        try:
            root = tree_of(text)
            self._kept.append(root)
            said = self._children(root, stdin)
            self._leftovers(root)
            return said
        finally:
            self.trail, self.depth = trail, self.depth - 1

    def file(self, path: str, cwds: tuple[str, ...] = ()) -> str | None:
        """The text of a file as it will be then: what the text wrote before it counts."""
        for cwd in cwds or self.cwds:
            full = os.path.normpath(os.path.join(cwd, path))
            if full in self.written:
                return self.written[full]
            if (text := text_of(full)) is not None:
                return text
        return None

    def hide(self, what: str) -> None:
        self.opaque.append(Opaque(what, self.trail, self.contained))

    def _leftovers(self, root: Node) -> None:
        """Substitutions that stand where no word was asked for, e.g. inside of [[ ]] or $(( ))."""
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node.type == "function_definition":
                continue
            if node.type in _SUBSTITUTIONS and node.id not in self._visited:
                self.printed(node)
            waiting.extend(node.children)

    # statements

    def statement(self, node: Node, stdin: str | None) -> str:
        kind = node.type
        if kind == "command":
            return self._command(node, stdin, ())
        if kind == "redirected_statement":
            return self._redirected(node, stdin)
        if kind == "pipeline":
            return self._pipeline(node, stdin)
        if kind == "list":
            return self._list(node, stdin)
        if kind == "subshell":
            return self.aside(lambda: self._children(node, stdin))
        if kind in ("variable_assignment", "variable_assignments", "declaration_command", "unset_command"):
            return self._assign(node)
        if kind == "function_definition":
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if name is not None and body is not None:
                self.functions[text_of_node(name)] = body
                self._kept.append(body)
            return ""
        if kind in _LOOPS:
            return self._loop(node, stdin)
        if kind in _CONDITIONAL:
            return self.perhaps(lambda: self._children(node, stdin))
        if kind in _GROUPS:
            return self._children(node, stdin)
        return ""

    @property
    def after_another(self) -> bool:
        """Whether what is read runs only where the command before it went well, as behind &&."""
        return self._maybe > 0

    def perhaps(self, act: Callable[[], str]) -> str:
        self._maybe += 1
        try:
            return act()
        finally:
            self._maybe -= 1

    def _children(self, node: Node, stdin: str | None) -> str:
        return "".join(self.statement(child, stdin) for child in node.named_children)

    def _list(self, node: Node, stdin: str | None) -> str:
        first, *others = node.named_children
        said = self.statement(first, stdin)
        either = any(child.type == "||" for child in node.children)
        for other in others:
            before = self.cwds
            said += self.perhaps(lambda other=other: self.statement(other, stdin))  # type: ignore[misc]
            if either:
                self.cwds = tuple(dict.fromkeys((*before, *self.cwds)))
        return said

    def _pipeline(self, node: Node, stdin: str | None) -> str:
        said: str | None = stdin
        for child in node.named_children:
            said = self.aside(lambda child=child, said=said: self.statement(child, said))  # type: ignore[misc]
        return said or ""

    def _loop(self, node: Node, stdin: str | None) -> str:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            values = [
                word
                for child in node.children_by_field_name("value")
                for words in words_of(child, self)
                for word in words
            ]
            self.give(text_of_node(variable), tuple(values) or (HOLE,))
            body = node.child_by_field_name("body")
            parts = [body] if body is not None else []
        else:
            parts = list(node.named_children)
        for _ in range(2):  # what the first turn sets, the second one uses
            self.perhaps(lambda: "".join(self.statement(part, stdin) for part in parts))
        return HOLE

    def _assign(self, node: Node) -> str:
        if node.type == "unset_command":
            for child in node.named_children:
                self.give(text_of_node(child), ("",))
            return ""
        own = [node] if node.type == "variable_assignment" else list(node.named_children)
        sets: list[tuple[str, str]] = []
        for each in own:
            if each.type == "variable_assignment":
                name, values = self._assignment(each)
                self.give(name, values)
                sets.extend((name, value) for value in values)
            elif each.type != "variable_name":
                for words in words_of(each, self):  # declare "X=pip"
                    for word in words:
                        name, equals, value = word.partition("=")
                        if equals:
                            self.give(name, (value,))
                            sets.append((name, value))
        if sets:
            self._record(Call(("export",), tuple(sets)))
        return ""

    def _assignment(self, node: Node) -> tuple[str, tuple[str, ...]]:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            return "", (HOLE,)
        values = ("",) if value is None else tuple(expanded(value, self))
        if value is not None and value.type not in ("array",):
            values = tuple(text.replace(SEP, " ") for text in values)
        if any(child.type == "+=" for child in node.children):
            values = tuple(old + new for old in self.value(text_of_node(name)) for new in values)
        return text_of_node(name), values

    # commands

    def _redirected(self, node: Node, stdin: str | None) -> str:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        stdin, writes, after = self._redirects(redirects, stdin)
        if body is None:
            self._record(Call((":",), writes=writes))
            said = ""
        elif body.type == "command":
            said = self._command(body, stdin, writes)
        else:
            said = self.statement(body, stdin)
            if writes:
                self._record(Call((":",), writes=writes))
        if writes:
            self._wrote(writes, said)
            said = ""
        for each, piped in after:
            said = self.perhaps(lambda each=each, said=said, piped=piped: self.statement(each, said if piped else None))  # type: ignore[misc]
        return said

    def _redirects(
        self, nodes: list[Node], stdin: str | None
    ) -> tuple[str | None, tuple[str, ...], list[tuple[Node, bool]]]:
        writes: list[str] = []
        after: list[tuple[Node, bool]] = []
        for node in nodes:
            if node.type == "herestring_redirect":
                stdin = "\n".join(text.replace(SEP, " ") for text in expanded(node.named_children[-1], self)) + "\n"
            elif node.type == "heredoc_redirect":
                stdin = self._heredoc(node)
                inner = [
                    child for child in node.named_children if child.type in ("file_redirect", "herestring_redirect")
                ]
                stdin, more, _ = self._redirects(inner, stdin)
                writes.extend(more)
                for child in node.named_children:
                    if child.type == "pipeline":
                        after.extend((each, True) for each in child.named_children)
                    elif child.type in ("command", "list", "redirected_statement", "subshell", "compound_statement"):
                        after.append((child, False))
            else:
                stdin = self._file_redirect(node, stdin, writes)
        return stdin, tuple(writes), after

    def _file_redirect(self, node: Node, stdin: str | None, writes: list[str]) -> str | None:
        operator = next((child.type for child in node.children if child.type[:1] in "<>&"), ">")
        targets = [
            word
            for child in node.children_by_field_name("destination")
            for words in words_of(child, self)
            for word in words
        ]
        if operator == "<":
            texts = [self.file(path) for path in targets if HOLE not in path]
            return texts[0] if texts and texts[0] is not None else HOLE
        if operator not in ("<&", ">&") or not all(target.isdigit() or target == "-" for target in targets):
            writes.extend(targets)
        return stdin

    def _heredoc(self, node: Node) -> str:
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        start = next((text_of_node(child) for child in node.children if child.type == "heredoc_start"), "")
        if body is None:
            return ""
        if start[:1] in "'\"\\" or "'" in start or '"' in start:
            return text_of_node(body)
        return "\n".join(filled(body, self))

    def _wrote(self, writes: tuple[str, ...], said: str) -> None:
        for path in writes:
            for cwd in self.cwds:
                self.written[os.path.normpath(os.path.join(cwd, path))] = None if HOLE in said else said

    def _command(self, node: Node, stdin: str | None, writes: tuple[str, ...]) -> str:
        sets: list[tuple[str, str]] = []
        rows: list[tuple[str, ...]] = [()]
        for child in node.children:
            if child.type == "variable_assignment":
                name, values = self._assignment(child)
                sets.extend((name, value) for value in values)
            elif child.type in ("herestring_redirect", "heredoc_redirect", "file_redirect"):
                stdin, more, _ = self._redirects([child], stdin)
                writes = (*writes, *more)
            elif child.is_named or child.type not in ("&",):
                rows = [row + words for row in rows for words in words_of(child, self)][:24]
        said = ""
        for row in rows:
            said = self._record(Call(row or ("export",), tuple(sets), writes, stdin=stdin))
        if writes and node.parent is not None and node.parent.type != "redirected_statement":
            self._wrote(writes, said)
            return ""
        return said if len(rows) == 1 else HOLE

    def _record(self, call: Call) -> str:
        if len(self.calls) > MOST_CALLS:
            raise Unreadable(f"more than {MOST_CALLS} commands in one action")
        full = Call(call.words, call.sets, call.writes, self.cwds, self.trail, call.stdin, self.contained)
        return self.run(self, full)
