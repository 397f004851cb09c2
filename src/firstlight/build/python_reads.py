"""Which environment variables setup.py and the modules it imports read, by their syntax tree; nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from firstlight.build.reads import Read, ReadKind
from firstlight.frozen import dataclass

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{2,}")
_GETTERS = ("get", "pop", "setdefault", "__getitem__")


@dataclass(frozen=True, slots=True)
class Helper:
    """A function that reads the variable named by one of its arguments, e.g. check_env_flag, argument 0."""

    name: str
    position: int
    keyword: str


@dataclass(frozen=True, slots=True)
class Passed:
    """Variables that a file hands on to CMake as they are: those of some prefixes, and those it lists."""

    prefixes: tuple[str, ...]
    names: tuple[str, ...]


def parsed(text: str) -> ast.Module | None:
    """The syntax tree; None for what this Python cannot read, e.g. a file of Python 2."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def imported(tree: ast.Module) -> tuple[str, ...]:
    """The modules that a file imports anywhere, e.g. tools.setup_helpers.env."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.extend(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            joint = "" if base.endswith(".") or not base else "."
            found.extend((base, *(f"{base}{joint}{each.name}" for each in node.names)))
    return tuple(dict.fromkeys(found))


def helpers_of(tree: ast.Module, known: frozenset[Helper] = frozenset()) -> frozenset[Helper]:
    """The functions of a file through which it reads the environment."""
    return frozenset(
        helper
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for helper in _helpers_in(node, known)
    )


def _helpers_in(function: ast.FunctionDef | ast.AsyncFunctionDef, known: frozenset[Helper]) -> Iterator[Helper]:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    for key in (key for node in ast.walk(function) for key in _keys(node, known)):
        if isinstance(key, ast.Name) and key.id in names:
            bound = names[0] in ("self", "cls")
            yield Helper(function.name, names.index(key.id) - int(bound), key.id)


def environment_reads(tree: ast.Module, file: str, helpers: frozenset[Helper]) -> Iterator[Read]:
    """Every variable that is read by a constant name, directly or through a helper."""
    constants, looped = _constants(tree), _looped(tree)
    for node in ast.walk(tree):
        for key in _keys(node, helpers):
            for name in (*_values(key, constants), *_composed(key, looped)):
                yield Read(name, ReadKind.ENVIRONMENT, f"{file}:{getattr(node, 'lineno', 0)}", _default(node))


def passed_on(tree: ast.Module) -> Passed:
    """What a function that walks over the whole environment lets through, e.g. USE_* and BUILD_* of PyTorch."""
    prefixes: list[str] = []
    names: list[str] = []
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not _walks_environment(function):
            continue
        tested = [node for node in ast.walk(function) if _tests_text(node)]
        inside = {id(each) for call in tested for each in ast.walk(call)}
        for call in tested:
            if _called(call.func) == "startswith":
                prefixes.extend(each for each in _texts(call) if _VARIABLE.fullmatch(each))
        for node in ast.walk(function):
            if id(node) not in inside:
                names.extend(each for each in _listed_texts(node) if _VARIABLE.fullmatch(each))
    kept = tuple(dict.fromkeys(prefixes))
    return Passed(kept, tuple(dict.fromkeys(each for each in names if each not in kept)))


def _tests_text(node: ast.AST) -> TypeGuard[ast.Call]:
    """name.startswith(...), name.endswith(...)."""
    return isinstance(node, ast.Call) and _called(node.func) in ("startswith", "endswith")


def _listed_texts(node: ast.AST) -> list[str]:
    """The names in a list, and those that stand for another: of {"CUDNN_LIB_DIR": "CUDNN_LIBRARY"} the first alone."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if not isinstance(node, ast.Dict):
        return []
    return [
        key.value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(value, ast.Constant)
    ]


def _walks_environment(function: ast.AST) -> bool:
    """Whether a function goes through .items() of something called env or environ."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items":
            named = node.func.value
            last = named.attr if isinstance(named, ast.Attribute) else named.id if isinstance(named, ast.Name) else ""
            if "env" in last.lower():
                return True
    return False


def _texts(node: ast.AST) -> list[str]:
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _keys(node: ast.AST, helpers: frozenset[Helper]) -> Iterator[ast.expr]:
    """What names the variable where a node reads one."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environ(node.value):
        yield node.slice
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        if _is_environ(node.comparators[0]):
            yield node.left
    elif isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _GETTERS and _is_environ(function.value):
            yield from node.args[:1]
        called = _called(function)
        if called == "getenv":
            yield from node.args[:1]
        for helper in helpers:
            if helper.name == called and len(node.args) > helper.position >= 0:
                yield node.args[helper.position]
            elif helper.name == called:
                yield from (each.value for each in node.keywords if each.arg == helper.keyword)


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_environ(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("environ", "environb")
    return isinstance(node, ast.Name) and node.id in ("environ", "my_env", "env", "ENV")


def _constants(tree: ast.Module) -> dict[str, str]:
    """Names that a file gives one text to at its top, e.g. ENV_NAME = 'TORCH_CUDA_ARCH_LIST'."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update({each.id: node.value.value for each in node.targets if isinstance(each, ast.Name)})
    return found


def _looped(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """The texts that a name goes through: name -> ("CUDA", "OPENMP") of `for name in ("CUDA", "OPENMP")`."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            found[node.target.id] = (*found.get(node.target.id, ()), *_listed_texts(node.iter))
    return found


def _composed(key: ast.expr, looped: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """HASHJOIN_CUDA and HASHJOIN_OPENMP of f"HASHJOIN_{name}" in such a loop."""
    if not isinstance(key, ast.JoinedStr):
        return
    names = [""]
    for part in key.values:
        if isinstance(part, ast.Constant):
            texts: tuple[str, ...] = (str(part.value),)
        else:
            inner = part.value if isinstance(part, ast.FormattedValue) else None
            texts = looped.get(inner.id, ()) if isinstance(inner, ast.Name) else ()
        names = [before + text for before in names for text in texts]
    yield from (each for each in names if _VARIABLE.fullmatch(each))


def setup_words(tree: ast.Module) -> dict[str, str]:
    """What the call of setup() is given as plain text, or under a name that a file gives one text to: name, version."""
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func) == "setup":
            given = {each.arg: each.value for each in node.keywords if each.arg}
            words = {name: constants.get(value.id) if isinstance(value, ast.Name) else getattr(value, "value", None)
                     for name, value in given.items()}  # fmt: skip
            return {name: value for name, value in words.items() if isinstance(value, str)}
    return {}


def _values(key: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    text = (
        constants.get(key.id, "") if isinstance(key, ast.Name) else key.value if isinstance(key, ast.Constant) else ""
    )
    if isinstance(text, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        yield text


def _default(node: ast.AST) -> str:
    if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
        return str(node.args[1].value)
    return ""
