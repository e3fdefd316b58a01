"""The two normalizations, which turn text into words: `bert` and `original`."""
