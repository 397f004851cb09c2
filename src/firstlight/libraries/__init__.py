"""The chain of shared libraries under torch, a file, a wheel or a folder: what is missing, why, and what closes it."""
