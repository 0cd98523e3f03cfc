"""Attention over keys and values in pages of a cache, [pages, rows of a page, heads of keys, columns]."""
