"""`python -m firstlight` and the `firstlight` command: what takes longest is begun before the rest is imported."""

from __future__ import annotations

import gc
import sys

from firstlight import ahead


def main() -> None:
    """The command line of this process."""
    try:
        ahead.begin_for(sys.argv[1:])
        gc.disable()  # what is imported stays
        from firstlight.cli.main import main as answer

        gc.enable()
        answer()
    finally:
        ahead.end_unasked()


if __name__ == "__main__":
    main()
