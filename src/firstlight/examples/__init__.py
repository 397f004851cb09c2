"""Machines that come with firstlight, to look at where there is no GPU."""
