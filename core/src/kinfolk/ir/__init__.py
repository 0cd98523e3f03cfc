"""The intermediate representation: SSA values on the lanes of a wave, ops declared once, kernels checked for archs."""

from kinfolk.ir.builder import build_kernel, constant, current_builder
from kinfolk.ir.op import AttributeDef, OpDef, OpTable
from kinfolk.ir.value import Kernel, Location, Operation, Region, Value
from kinfolk.ir.verify import verify

__all__ = [
    "AttributeDef",
    "Kernel",
    "Location",
    "OpDef",
    "OpTable",
    "Operation",
    "Region",
    "Value",
    "build_kernel",
    "constant",
    "current_builder",
    "verify",
]
