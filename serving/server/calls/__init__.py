"""What each call does: gRPC's methods, and REST's paths with their JSON."""
