"""Which bytes of a text, as it was given, the code points of its words came from."""
