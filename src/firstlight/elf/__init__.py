"""ELF files: what the dynamic loader reads of one, and which file it would take for a name."""
