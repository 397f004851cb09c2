"""Scripts that run in a process of their own, with the standard library alone."""
