"""SEE INSIDE: Nsight Compute's counters of one case or command, held against the least traffic and against tiers."""
