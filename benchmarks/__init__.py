"""Measurements beside peers, each a program that prints one report."""
