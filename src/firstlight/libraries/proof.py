"""Whether a target loads for real: opened in a child process of the environment's own Python."""

from __future__ import annotations

import json
import posixpath
import secrets

from firstlight.frozen import dataclass
from firstlight.libraries.analysis import Analysis
from firstlight.libraries.target import FIRST_OF_TORCH, Surroundings, Target, TargetKind
from firstlight.machine.interface import Outcome

LIMIT_S = 180.0
_MOST_OPENINGS = 64
# The folder a user stands in may hold a `torch` of its own; what it would shadow is not what is proved.
_OPEN = """\
import ctypes, json, os, sys
mark = sys.argv.pop(1)
sys.path = [each for each in sys.path if each not in ("", ".")]
names, imports, paths = json.loads(sys.argv[1])
error = ""
try:
    for each in imports:
        __import__(each)
    for each in paths:
        ctypes.CDLL(each, mode=ctypes.RTLD_GLOBAL)
except BaseException as failure:
    error = f"{type(failure).__name__}: {failure}"
loaded = {}
for line in open("/proc/self/maps", encoding="utf-8", errors="surrogateescape"):
    path = line.rstrip("\\n").split(" ", 5)[-1].strip()
    name = path.rpartition("/")[2]
    for each in names:
        if name == each or name.startswith(each + "."):
            loaded[each] = path
with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
    out.write("\\n" + mark + json.dumps({"error": error[:2000], "loaded": loaded}) + "\\n")
"""


@dataclass(frozen=True, slots=True)
class Proof:
    """What loading for real gave, e.g. import torch: ok, with libcudss.so.0 from nvidia/cu13/lib."""

    what: str
    ok: bool
    error: str
    loaded: tuple[tuple[str, str], ...]  # name and file, of the names that were missing before


def prove(around: Surroundings, target: Target, before: Analysis) -> tuple[Proof, ...]:
    """Load what lacked something before, each in a process of its own."""
    names = tuple(each.name for each in before.missing)
    askers = {path for each in before.missing for path in each.requested_by}
    hit = [opening for opening in target.openings if len(target.openings) == 1 or askers & set(opening)]
    return tuple(_opened(around, target, opening, names=names) for opening in (hit or target.openings)[:_MOST_OPENINGS])


def _opened(around: Surroundings, target: Target, opening: tuple[str, ...], *, names: tuple[str, ...]) -> Proof:
    imports: tuple[str, ...] = ()
    paths = opening
    what = f"open {posixpath.basename(opening[-1])}"
    if target.kind is TargetKind.TORCH:
        imports, paths, what = ("torch",), (), "import torch"
    elif posixpath.basename(opening[0]) == FIRST_OF_TORCH:
        torch = posixpath.dirname(posixpath.dirname(opening[0]))
        after = tuple(path for path in opening if not path.startswith(f"{torch}/")) or opening[-1:]
        imports, paths, what = ("torch",), after, f"import torch, then {what}"
    mark = secrets.token_hex(16)  # what torch, a sitecustomize or a .pth prints on the same pipe cannot hold it
    argv = (around.interpreter, "-c", _OPEN, mark, json.dumps([names, imports, paths]))
    done = around.machine.run(argv, timeout_s=LIMIT_S)
    answers = [line[len(mark) :] for line in done.stdout.splitlines() if line.startswith(mark)]
    if not done.ok or not answers:
        why = f"ended after {LIMIT_S:.0f} s" if done.outcome is Outcome.TIMED_OUT else done.complaint
        return Proof(what, ok=False, error=why, loaded=())
    said = json.loads(answers[0])
    files = tuple((str(name), str(path)) for name, path in said["loaded"].items())
    return Proof(what, ok=not said["error"], error=str(said["error"]), loaded=files)
