"""The tasks: Keras models on raw strings around one decoder, each with its preprocessor."""
