"""Network: graph, transport (one process or MPI), rank partition, message ledger and link models."""
