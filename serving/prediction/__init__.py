"""Answers rows of tables by a model: what the program `serving.predict` is made of."""
