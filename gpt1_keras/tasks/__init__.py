"""The tasks: Keras models on raw strings around one backbone, each with its preprocessor."""
