"""Decode: absorbed queries, any number of tokens of each sequence, over its latent rows."""
