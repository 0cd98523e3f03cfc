"""The portable ops. Importing this package declares them all; `CORE_OPS` is their table."""

from kinfolk.ir.ops import arithmetic, control, convert, float8, lanes, memory, vector
from kinfolk.ir.ops.declare import CORE_OPS

__all__ = ["CORE_OPS", "arithmetic", "control", "convert", "float8", "lanes", "memory", "vector"]
