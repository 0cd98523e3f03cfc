"""Decode over paged keys: their segments at the same time, few queries at once, and the kernel that joins segments."""
