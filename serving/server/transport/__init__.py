"""The transport of requests and replies: addresses, TLS, gRPC, HTTP."""
