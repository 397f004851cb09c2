"""Scripts that the interpreter of the built environment runs."""
