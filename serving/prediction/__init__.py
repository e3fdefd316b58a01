"""Answers rows of tables by a model: the parts of the program `gpt1 predict`."""
