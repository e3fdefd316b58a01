"""The causal backbones and their layers, written in `keras.ops`."""
