"""Decode kernels with 32 rows a wave and one workgroup on a compute unit."""
