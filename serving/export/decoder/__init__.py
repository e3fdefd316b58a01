"""The backbone of an export: the tokens, without padding, are the rows of one matrix."""
