"""The family of attention over keys and values of each head, forward."""
