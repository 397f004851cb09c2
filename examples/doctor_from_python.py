"""Before a training run: is this machine fit for it, and if not, what is to be done?

    python examples/doctor_from_python.py                           this machine
    python examples/doctor_from_python.py example:h100-driver-570   one that comes along, or a facts file

It ends with 1 where something blocks. Nothing is changed, and torch is not imported.
"""

# ruff: noqa: T201 an example prints
from __future__ import annotations

import sys

from firstlight.api import diagnose, look, plan
from firstlight.errors import FirstlightError


def main(machine: str) -> int:
    try:
        looked = look(machine)
        found = diagnose(looked, goal="train")
    except FirstlightError as error:  # a file that is none, a machine that cannot be looked at
        print(error, file=sys.stderr)
        return error.exit_code
    print(looked.summary)
    if not found.blocked or found.primary is None:
        print("nothing blocks")
        return 0
    print(f"blocked by {found.primary.code}: {found.primary.title}")
    for number, option in enumerate(found.options, start=1):
        print(f"  {number}. {option.title}")
    print("the first of them is")
    for step in plan(looked, goal="train").steps:
        print(f"  - {step.title}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
