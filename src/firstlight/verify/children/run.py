"""Run one child script and print its answer as one line of JSON: python run.py NAME '{"work": "/tmp/x"}' MARK.

Started by path, so that the interpreter under proof needs no firstlight: the packages above are stood in for, which
also keeps this folder off sys.path. PYTHONPATH and the user's site-packages count, as they do in the user's programs.
"""

from __future__ import annotations

import sys

if sys.path and sys.path[0].endswith("children"):
    del sys.path[0]

import importlib
import json
import os
import time
import traceback
import types
from typing import Any


def main() -> None:
    _die_with_parent()
    name, question = sys.argv[1], json.loads(sys.argv[2])
    mark = sys.argv[3]  # tells our line from what shells and libraries print
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries and compilers print goes to stderr
    for package in ("firstlight", "firstlight.verify", "firstlight.verify.children"):
        module = types.ModuleType(package)
        module.__path__ = [os.path.dirname(os.path.abspath(__file__))] if package.endswith("children") else []
        sys.modules[package] = module
    started = time.monotonic()
    answer = _proved(name, question)
    answer["seconds"] = time.monotonic() - started
    said.write(f"\n{json.dumps({mark: answer}, default=str)}\n")
    said.flush()
    sys.stderr.flush()
    os._exit(0)  # a library that crashes while Python ends must not spoil an answer that was given


def _proved(name: str, question: dict[str, Any]) -> dict[str, Any]:
    from firstlight.verify.children.witness import Verdict, Witness

    witness = Witness()
    answer: dict[str, Any] = {"evidence": witness.evidence, "more": witness.more, "do": []}
    try:
        answer["says"] = importlib.import_module(f"firstlight.verify.children.{name}").prove(question, witness)
        answer["outcome"] = "ok"
    except Verdict as verdict:
        answer |= {"outcome": verdict.outcome, "says": verdict.says, "do": verdict.do}
    except Exception as error:  # noqa: BLE001 whatever torch throws is what this is here to find
        answer |= {"outcome": "failed", "says": _one_line(error)}
        traceback.print_exc()
    return answer


def _one_line(error: BaseException) -> str:
    """'RuntimeError: CUDA error: no kernel image is available for execution on the device'."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:400]}" if lines else type(error).__name__


def _die_with_parent() -> None:
    """Linux ends this process when firstlight ends: PR_SET_PDEATHSIG, SIGKILL."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


if __name__ == "__main__":
    main()
