"""The normalization that GPT-1 was trained with: ftfy, its own clean-up, spaCy 2.0, in a graph.

The modules `build_*` rebuild resources.json from the published packages. Tokenizing imports none of
them.
"""
