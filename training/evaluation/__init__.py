"""Metrics, likelihoods, n-gram models, plots and throughput."""
