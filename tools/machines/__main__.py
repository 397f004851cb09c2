"""Write the rebuilt machines to tests/machines, and the examples into the package: python -m tools.machines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tools.machines import (
    beside_machines,
    build_machines,
    compat_machines,
    driver_machines,
    evidence_machines,
    fabric_machines,
    field_reports,
    library_machines,
    noted_machines,
    place_machines,
    platform_machines,
    server_machines,
    torch_machines,
)

ROOT = Path(__file__).parents[2]
MACHINES = (
    *field_reports.MACHINES,
    *driver_machines.MACHINES,
    *place_machines.MACHINES,
    *platform_machines.MACHINES,
    *compat_machines.MACHINES,
    *torch_machines.MACHINES,
    *library_machines.MACHINES,
    *build_machines.MACHINES,
    *evidence_machines.MACHINES,
    *server_machines.MACHINES,
    *fabric_machines.MACHINES,
    *beside_machines.MACHINES,
    *noted_machines.TAUGHT,
)
EXAMPLES = (
    field_reports.h100_driver_570,
    library_machines.thor_missing_libraries,
    place_machines.wsl2_linux_libcuda,
    evidence_machines.l40_seven_of_eight,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.machines", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("wanted", metavar="NAME", nargs="*", help="machines to write; default: all")
    wanted = parser.parse_args().wanted
    for make in MACHINES:
        machine = make()
        if not wanted or machine.name in wanted:
            machine.write(ROOT / "tests" / "machines" / machine.name)
            print(f"wrote {machine.name}")
    for make in EXAMPLES:
        machine = make()
        path = ROOT / "src" / "firstlight" / "examples" / f"{machine.name}.json"
        path.write_text(json.dumps(machine.document(), indent=1) + "\n")


if __name__ == "__main__":
    main()
