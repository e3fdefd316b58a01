"""Answers rows of tables by a model: what the program `gpt1 predict` is made of."""
