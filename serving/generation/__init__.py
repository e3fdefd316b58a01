"""Generates texts with a language model: its options, and texts in pieces."""
