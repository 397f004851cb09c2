"""Write the schemas bench-1, compare-1 and claim-1 from the result types, or check them (--check)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from firstlight.bench.schema import bench_schema, claim_schema, compare_schema

FOLDER = Path(__file__).parents[1] / "src" / "firstlight" / "schemas"


def main() -> int:
    stale = []
    made = (("bench-1.json", bench_schema()), ("compare-1.json", compare_schema()), ("claim-1.json", claim_schema()))
    for name, schema in made:
        text, path = json.dumps(schema, indent=1) + "\n", FOLDER / name
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        print(f"{', '.join(stale)}: not what the types give; run python -m tools.make_bench_schemas")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
