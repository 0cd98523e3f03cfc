"""What attention-like kernels share: layouts as data, tiles in workgroup memory, staging, paging, reductions, online
softmax.
"""
