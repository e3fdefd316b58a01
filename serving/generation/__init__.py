"""Texts from a language model: samplers by their options, and continuations of prompts."""
