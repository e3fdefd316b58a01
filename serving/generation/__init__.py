"""Generates texts with a language model: samplers from options, and continuations of prompts."""
