"""python -m firstlight.explain SCRIPT [ARGS], or -m MODULE [ARGS]: run it, and explain the error that ends it."""

from __future__ import annotations

import os
import sys
import traceback
from types import ModuleType, TracebackType

_USAGE = "usage: python -m firstlight.explain SCRIPT [ARGS]...   or   python -m firstlight.explain -m MODULE [ARGS]..."


def main() -> None:
    """Run what is named as Python itself would; an exception that nobody catches is explained, then ends it as ever."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help") or words == ["-m"]:
        print(_USAGE, file=sys.stdout if words[:1] in (["-h"], ["--help"]) else sys.stderr)
        raise SystemExit(0 if words[:1] in (["-h"], ["--help"]) else 2)
    sys.excepthook = _say_and_explain
    if words[0] == "-m":
        import runpy

        sys.argv = words[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        _run_script(words[0])


def _run_script(path: str) -> None:
    """The script in a fresh __main__, with its own folder first on sys.path."""
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"firstlight.explain: can't open {path!a}: {error.strerror}. Give the path of a script.", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    module = ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102 the user's own script, as given


def _say_and_explain(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Python's own traceback without our frames, then the cause where it is known."""
    shown = _theirs(frames)
    text = "".join(traceback.format_exception(kind, error, shown))
    sys.stderr.write(text)
    if issubclass(kind, KeyboardInterrupt):
        return
    from firstlight.explain import known_cause

    if said := known_cause(text):
        sys.stderr.write(f"\n{said}")


def _theirs(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is neither ours nor runpy's; all of it where there is no other."""
    own = (os.path.dirname(os.path.abspath(__file__)), "<frozen runpy>", "<frozen importlib")
    at = frames
    while at is not None and (
        at.tb_frame.f_code.co_filename.startswith(own) or at.tb_frame.f_code.co_filename.endswith("/runpy.py")
    ):
        at = at.tb_next
    return at or frames


if __name__ == "__main__":
    main()
