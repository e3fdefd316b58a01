"""Finds, loads and runs versions of models."""
