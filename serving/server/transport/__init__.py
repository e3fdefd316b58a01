"""How requests arrive and replies leave: addresses, TLS, gRPC, HTTP."""
