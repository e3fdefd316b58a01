"""What the benchmarks share: the machine, models, workers, turns, servers, reports."""
