"""Measurements beside peers; each is a program that prints one report."""
