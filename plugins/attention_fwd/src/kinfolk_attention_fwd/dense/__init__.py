"""Attention over whole rows of keys and values, [sequences, keys, heads, columns]."""
