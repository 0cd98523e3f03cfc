"""Attention backward: the gradients of attention by its queries, keys and values."""
