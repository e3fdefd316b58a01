"""The causal backbones and their layers, written with `keras.ops` alone."""
