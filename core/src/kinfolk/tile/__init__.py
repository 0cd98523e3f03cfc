"""What attention-like kernels share: layouts as data, tiles in workgroup memory, staging, paging, reductions, online
softmax, and schedules: the order of a round's units, loops, and where waves meet.
"""
