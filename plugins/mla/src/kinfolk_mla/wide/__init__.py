"""Decode kernels with 32 heads a wave and one workgroup on a compute unit."""
