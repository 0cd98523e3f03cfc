"""Prefill of projected queries: keys and values of each head are formed first, then attended over."""
