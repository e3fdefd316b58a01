"""Labelled data sets: the paper's twelve, users' own files, and the models for them."""
