"""A model server for one machine that speaks TensorFlow Serving's gRPC and REST."""

from serving.server.server import Server

__all__ = ["Server"]
