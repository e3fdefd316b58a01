"""Half an hour of load and faults: `python -m benchmarks.soak`."""
