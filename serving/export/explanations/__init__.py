"""The signature `explain`: which words led to an answer."""
