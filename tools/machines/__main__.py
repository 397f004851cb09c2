"""Write the rebuilt machines to tests/machines, and the example into the package: python -m tools.machines."""

from __future__ import annotations

import json
from pathlib import Path

from tools.machines.field_reports import MACHINES, h100_driver_570

ROOT = Path(__file__).parents[2]
EXAMPLES = (h100_driver_570,)


def main() -> None:
    for make in MACHINES:
        machine = make()
        machine.write(ROOT / "tests" / "machines" / machine.name)
        print(f"wrote {machine.name}")
    for make in EXAMPLES:
        machine = make()
        path = ROOT / "src" / "firstlight" / "examples" / f"{machine.name}.json"
        path.write_text(json.dumps(machine.document(), indent=1) + "\n")


if __name__ == "__main__":
    main()
