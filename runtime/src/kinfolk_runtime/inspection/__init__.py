"""What compiled kernels look like: hot loops, their clocks by models, what they are made of."""

from kinfolk_runtime.inspection.kernel import InspectedKernel, inspect_function, inspect_spec
from kinfolk_runtime.inspection.loops import Loop, main_loop

__all__ = ["InspectedKernel", "Loop", "inspect_function", "inspect_spec", "main_loop"]
