"""Softmax over the rows of a matrix with the logarithm of its sum, as a plugin of kinfolk."""
