"""The signature `explain`: which words an answer is due to."""
