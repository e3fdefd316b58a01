"""The calls: gRPC's methods, and REST's paths with their JSON."""
