"""Write src/firstlight/schemas/facts-1.json from the fact types, or check that it is current (--check)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from firstlight.facts.schema import facts_schema

PATH = Path(__file__).parents[1] / "src" / "firstlight" / "schemas" / "facts-1.json"


def main() -> None:
    text = json.dumps(facts_schema(), indent=1) + "\n"
    if "--check" in sys.argv:
        sys.exit(0 if PATH.read_text() == text else f"{PATH} is not current; run: python {Path(__file__).name}")
    PATH.write_text(text)
    print(f"wrote {PATH.name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
