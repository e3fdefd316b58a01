"""The paper's experiments: their programs, published results, tables, grids and probes."""
