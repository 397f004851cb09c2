"""GPUs that work together: collectives and pairs, started by torchrun, checked by known values, held to their link."""
