"""The second kernel of a divided decode: the segments of each row put together."""
