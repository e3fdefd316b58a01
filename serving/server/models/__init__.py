"""Versions of models: found, loaded, and run."""
