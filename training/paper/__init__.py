"""The paper's published results and its zero-shot probes, as data."""
