"""What may seed an executor: numbers that draw where buffers lie, and the order of waves and workgroups."""

from __future__ import annotations


def known_seed(field: str, seed: int) -> int:
    """Return a seed as it is; raise TypeError where it is no Python int, ValueError below 0, naming `field`."""
    if type(seed) is not int:
        raise TypeError(f"{field} takes a Python int, got {seed!r} of type {type(seed).__name__}; pass 0, or one above")
    if seed < 0:
        raise ValueError(f"{field} must be at least 0, got {seed}; pass 0, or one above")
    return seed
