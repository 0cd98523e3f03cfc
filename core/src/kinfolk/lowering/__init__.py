"""The frame in which a kernel is written as LLVM IR text; an arch brings the words for its target."""

from kinfolk.lowering.function import FunctionWriter, Target, lower_function

__all__ = ["FunctionWriter", "Target", "lower_function"]
