"""What `--json` prints, as types: the builders are held to them by mypy, and the schemas are made from them.

Nothing imports these when a command runs.
"""
