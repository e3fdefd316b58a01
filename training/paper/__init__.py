"""The paper's experiments: published results, tables, ablations and zero-shot probes."""
