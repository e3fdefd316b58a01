"""Compares values and gradients with torch's autograd in float64."""

import keras
import numpy as np
import torch


def in_double(array):
    """Makes a leaf of torch's graph, float64, of an array of any type on any backend."""
    return torch.tensor(np.array(keras.ops.cast(array, "float32"), np.float64), requires_grad=True)


def assert_close(found, expected, tolerance=1e-5):
    """Compares arrays, each by its largest value."""
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        # Some gradients are 0 because terms of about 1 cancel.
        atol = tolerance * max(np.abs(theirs).max(), 0.1)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)
