"""The schemas bench-1, compare-1 and claim-1, from the result types."""

from __future__ import annotations

from pathlib import Path

from firstlight.bench.schema import bench_schema, claim_schema, compare_schema
from tools.generate import SCHEMAS, as_json


def made() -> dict[Path, str]:
    """Each schema with its place."""
    schemas = {"bench-1": bench_schema(), "compare-1": compare_schema(), "claim-1": claim_schema()}
    return {SCHEMAS / f"{name}.json": as_json(schema) for name, schema in schemas.items()}
