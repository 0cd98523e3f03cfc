"""The second kernel of a split decode: the segments of each row put together."""
