"""Limits: what one request may use, and how many requests may run and wait."""
