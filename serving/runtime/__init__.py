"""TensorFlow's C++ runtime, called through its C API, without Python TensorFlow."""
