"""Clients of a model server over gRPC and REST."""
