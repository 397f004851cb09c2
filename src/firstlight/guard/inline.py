"""Code on a command line (python -c, perl -e): the commands it hands on, the names it mentions, and what it hides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from firstlight.frozen import dataclass
from firstlight.guard.call import HOLE

_HIDERS = re.compile(
    r"\b(?:exec|eval|compile|__import__|b64decode|a85decode|fromhex|unhexlify|codecs|marshal|zlib|importlib|runpy|ctypes|pty)\b"
)
_RUNS = {"system", "popen", "run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"}
_EXECS = re.compile(r"(?:exec|spawn|posix_spawn)[lvpe]*")
_OTHER_RUNS = re.compile(
    r"\b(?:system\w*|exec\w*|popen\w*|proc_open|spawn\w*|qx|pack|child_process|Open3|passthru|shell_exec|open[23])\b"
    r"|`|%x|[\"'](?:-\||\|-)[\"']"
)
_OF_A_LIST = re.compile(r"(?:[\s,\[(]|\bc\()*")  # between the words of system("pip", ["install", "x"])
_WORD_LISTS = re.compile(r"(?:\bqw|%[wWiI])\s*[\[({<|/!](.*?)[\])}>|/!]", re.S)
_COMMANDS = re.compile(r"(?:\bqx|%x)\s*[\[({<|/!](.*?)[\])}>|/!]|`(.*?)`", re.S)
_STRINGS = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
_WRITES = {"write", "write_text", "write_bytes", "unlink", "remove", "rmtree", "rename", "replace", "truncate", "touch",
           "copy", "copyfile", "copy2", "move", "symlink", "symlink_to", "chmod", "rmdir", "link", "open", "copytree",
           "removedirs", "hardlink_to", "link_to", "fileinput"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that code does: a command as words or as text, paths it may write, or what cannot be seen."""

    words: tuple[str, ...] = ()
    text: str = ""
    mentions: tuple[str, ...] = ()
    hidden: str = ""


def found_in(code: str, *, python: bool) -> Iterator[Found]:
    """What code does, as far as its own text says it."""
    if HOLE in code:
        yield Found(hidden="code that only the running shell knows")
        code = code.replace(HOLE, "None")
    if python:
        yield from _python(code)
    else:
        yield from _other(code)


def _other(code: str) -> Iterator[Found]:
    strings = [one or two for one, two in _STRINGS.findall(code)]
    joined = (*strings, "".join(strings))
    if _OTHER_RUNS.search(code):
        for text in (*strings, *(one or two for one, two in _COMMANDS.findall(code))):
            yield Found(text=text)
        yield from (Found(words=words) for words in _lists(code))
        yield Found(mentions=("--runs", *joined))
        if "pack" in code or not strings:
            yield Found(hidden="code that makes a command at run time")
    yield Found(mentions=tuple(joined)) if strings else Found(mentions=(code,))


def _lists(code: str) -> Iterator[tuple[str, ...]]:
    """Strings that stand beside each other as the words of one command."""
    yield from (tuple(words.split()) for words in _WORD_LISTS.findall(code) if words.split())
    words: list[str] = []
    end = 0
    for match in _STRINGS.finditer(code):
        if words and not _OF_A_LIST.fullmatch(code[end : match.start()]):
            yield tuple(words)
            words = []
        if match[0][1:-1] not in ("-|", "|-"):  # how perl's open says that the words behind are a command
            words.append(match[1] or match[2] or "")
        end = match.end()
    if words:
        yield tuple(words)


def _python(code: str) -> Iterator[Found]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield Found(hidden="code that is not Python as we read it")
        return
    nodes = list(ast.walk(tree))
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }
    modules = {name.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for name in node.names} | {
        (node.module or "").split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)
    }
    if hiders := sorted((names | modules) & set(_HIDERS.findall(" ".join(names | modules)))):
        yield Found(hidden=f"code that uses {', '.join(hiders)}")
    if modules & {"pip", "conda", "uv"}:
        yield Found(hidden="a package manager imported as a module")
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from _call(node)
    if strings and names & _WRITES and not _only_reads(nodes):
        yield Found(mentions=(*strings, "".join(strings)))


def _only_reads(nodes: list[ast.AST]) -> bool:
    """Whether every open() of the code opens to read, and nothing else of it writes."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in _WRITES - {"open", "replace", "copy"}:
            return False
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "open":
            modes = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
            if isinstance(node.func, ast.Attribute):
                modes = [*node.args[:2], *modes]
            if any(not isinstance(mode, ast.Constant) or set(str(mode.value)) & set("wax+") for mode in modes):
                return False
    return True


def _call(node: ast.Call) -> Iterator[Found]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    runs = name in _RUNS and (isinstance(node.func, ast.Name) or _of_a_module(node.func))
    if not runs and not _EXECS.fullmatch(name):
        return
    if name == "exec":
        return  # a hider, said already
    given = node.args
    if _EXECS.fullmatch(name):
        given = (
            [node.args[1]]
            if len(node.args) == 2 and isinstance(node.args[1], ast.List | ast.Tuple)
            else [ast.List(elts=list(node.args[1:]), ctx=ast.Load())]
        )
    if not given:
        return
    first = given[0]
    if isinstance(first, ast.List | ast.Tuple):
        words = tuple(_text(each) for each in first.elts)
        yield Found(words=words) if words else Found(hidden="a command that is made at run time")
        return
    text = _text(first)
    yield Found(text=text) if text.strip(HOLE) else Found(hidden="a command that is made at run time")


def _of_a_module(func: ast.expr) -> bool:
    """os.system and subprocess.run, not model.run."""
    base = func.value if isinstance(func, ast.Attribute) else None
    if isinstance(base, ast.Name):
        return base.id in ("os", "subprocess", "sp", "asyncio", "pty", "commands", "sh", "s", "o")
    return isinstance(base, ast.Call)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) for each in node.values)
    return HOLE
