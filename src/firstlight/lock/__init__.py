"""KEEP. The proven stack as a file, what has drifted from it, and what keeps package managers from changing it."""
