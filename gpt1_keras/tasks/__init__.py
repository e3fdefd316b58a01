"""The tasks: Keras models of raw strings, each with a backbone and a preprocessor."""
