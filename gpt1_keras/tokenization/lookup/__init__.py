"""Lookup tables and ragged tensors in core TensorFlow ops, linear in the size of their input."""
