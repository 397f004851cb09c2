"""Reports to look at: one file, no network, with the data inside."""
