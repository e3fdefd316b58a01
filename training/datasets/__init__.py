"""Labelled data sets: the paper's twelve, two more, and users' own files; batches of them."""
