"""Lookup tables of code points, pairs and strings, as plain tensors in core TensorFlow ops."""
