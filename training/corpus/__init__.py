"""The pre-training corpus: made from text, stored as shards of token ids, read as windows."""
