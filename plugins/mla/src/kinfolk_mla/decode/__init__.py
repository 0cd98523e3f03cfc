"""Decode: at most one query per sequence, over absorbed queries."""
