"""Metrics, likelihoods and pictures."""
