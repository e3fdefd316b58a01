"""The signatures of a language model: scoring texts and continuing them."""
