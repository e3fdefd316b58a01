"""The backbone of an export: real tokens as the rows of one matrix."""
