"""What benchmarks share: the machine's description, processes that take turns, clients' load."""
