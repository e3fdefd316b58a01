"""The normalization that GPT-1 was trained with: ftfy, its own clean-up, spaCy 2.0, in a graph."""
