"""python -m firstlight.explain SCRIPT [ARGS], or -m MODULE [ARGS]: run it, and explain the error that ends it."""

from __future__ import annotations

import builtins
import os
import pkgutil
import runpy
import sys
import traceback
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType, TracebackType

_USAGE = "usage: python -m firstlight.explain SCRIPT [ARGS]...   or   python -m firstlight.explain -m MODULE [ARGS]..."
# What `python -m MODULE` and `python FOLDER` call themselves: words for what is not there are Python's. None is public.
_run_as_main = runpy._run_module_as_main  # type: ignore[attr-defined]


def main() -> None:
    """Run what is named as Python itself would; an exception that nobody catches is explained, then ends it as ever."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help") or words == ["-m"]:
        print(_USAGE, file=sys.stdout if words[:1] in (["-h"], ["--help"]) else sys.stderr)
        raise SystemExit(0 if words[:1] in (["-h"], ["--help"]) else 2)
    sys.excepthook = _say_and_explain
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        _new_main()
        _run_as_main(words[1])
    else:
        sys.argv = words
        _run_script(os.path.join(os.getcwd(), words[0]))


def _run_script(path: str) -> None:
    """The script, folder or zip archive in a fresh __main__; a script has its own folder first on sys.path."""
    if pkgutil.get_importer(path) is not None:
        _first_on_path(path)
        _new_main()
        _run_as_main("__main__", alter_argv=False)
        return
    code = _code_of(path)
    _first_on_path(os.path.dirname(os.path.realpath(path)))
    module = _new_main()
    module.__file__ = path
    module.__cached__ = None  # type: ignore[attr-defined]  # Python has it in a script
    module.__loader__ = (SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader)("__main__", path)
    exec(code, module.__dict__)  # noqa: S102 the user's own script, as given


def _code_of(path: str) -> CodeType:
    """The compiled script; our own `from __future__` lines are not part of it."""
    try:
        with open(path, "rb") as file:
            compiled: CodeType | None = pkgutil.read_code(file) if path.endswith(".pyc") else None
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)  # noqa: T201 in Python's own words
        raise SystemExit(2) from None
    return compiled or compile(source, path, "exec", dont_inherit=True)


def _new_main() -> ModuleType:
    """A __main__ as Python makes it, in place of ours."""
    ours, module = sys.modules["__main__"], ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    if "__annotations__" in vars(ours):  # until Python 3.13
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    return module


def _first_on_path(folder: str) -> None:
    """Put it in the place of the folder that Python put first for us, unless it was told to put none there (-P, -I)."""
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return
    sys.path[0] = folder


def _say_and_explain(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Python's own traceback without our frames, then the cause where it is known."""
    shown = _theirs(frames)
    sys.__excepthook__(kind, error.with_traceback(shown), shown)
    if issubclass(kind, KeyboardInterrupt):
        return
    from firstlight.explain import known_cause

    if said := known_cause("".join(traceback.format_exception(kind, error, shown))):
        sys.stderr.write(f"\n{said}")


def _theirs(frames: TracebackType | None) -> TracebackType | None:
    """The traceback behind our own frames, which come first; none of it where the fault is in the script's syntax."""
    theirs = at = frames
    while at is not None:
        if at.tb_frame.f_globals is globals():
            theirs = at.tb_next
        at = at.tb_next
    return theirs


if __name__ == "__main__":
    main()
