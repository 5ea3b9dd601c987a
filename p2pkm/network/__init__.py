"""Graph, transport (one process or MPI), partition of devices over ranks, message ledger, link models."""
