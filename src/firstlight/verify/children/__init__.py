"""Scripts that the interpreter under proof runs: standard library and torch alone, started by run.py."""
