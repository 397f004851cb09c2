"""The chain of shared libraries under what was installed: what the loader does not find, who has it, what closes it."""

from __future__ import annotations

import os
import shlex

from firstlight.build.keys import site_folders
from firstlight.build.spec import BuildSpec
from firstlight.errors import FirstlightError
from firstlight.frozen import dataclass
from firstlight.libraries.analysis import analyse
from firstlight.libraries.closing import ComesFrom, Need, close
from firstlight.libraries.target import find_target, surroundings
from firstlight.machine.live import LiveMachine
from firstlight.tables import load
from firstlight.ways.names import normal


@dataclass(frozen=True, slots=True)
class OpenChain:
    """Libraries that the loader does not find, each with who asks and who has it; "" where nothing was looked at."""

    looked_at: str  # 3 libraries of lightgbm 4.7.0
    missing: tuple[str, ...]  # libnccl.so.2
    of_driver: tuple[str, ...]  # libcuda.so.1: comes with the driver, where there is one
    words: tuple[str, ...]  # of each that is missing
    command: str  # that closes it


def chain_of(spec: BuildSpec) -> OpenChain:
    """The chain as the loader of a new process would build it, without the variables that the build took out."""
    machine = LiveMachine(environ={name: each for name, each in os.environ.items() if name not in spec.removed})
    around = surroundings(machine, python=spec.python)
    named = normal(spec.name)
    try:
        around, target = find_target(around, site_folders(spec)[0] if spec.prefix else named)
        analysis = analyse(around, target)
    except (FirstlightError, IndexError):
        return OpenChain("", (), (), (), "")  # pure Python: there is no chain
    needs = close(around, analysis, load()).needs
    lacking = [each for each in needs if each.way is not ComesFrom.DRIVER]
    command = shlex.join(("firstlight", "libs", named, "--fix", "--python", spec.python))
    count = len(target.openings)
    return OpenChain(
        f"{count} {'library' if count == 1 else 'libraries'} of {target.title}",
        tuple(each.missing.name for each in lacking),
        tuple(each.missing.name for each in needs if each.way is ComesFrom.DRIVER),
        tuple(_words(each) for each in lacking),
        command if lacking and not spec.prefix else "",
    )


def _words(need: Need) -> str:
    asking = os.path.basename(need.missing.requested_by[0]) if need.missing.requested_by else "it"
    if need.provided:
        has = f"{need.provided[0].project} has it" + (" and is installed" if need.way is ComesFrom.LINK else "")
    else:
        has = f"the system package {need.package} has it" if need.package else need.reason
    return f"{need.missing.name}, which {asking} asks for, is not found ({has})"
