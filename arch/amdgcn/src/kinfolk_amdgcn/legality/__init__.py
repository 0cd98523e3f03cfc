"""Which of LLVM's words an arch has, as measured: each one compiled, linked and its instructions assembled again."""

from kinfolk_amdgcn.legality.statement import Statement
from kinfolk_amdgcn.legality.table import Legality, Row

__all__ = ["Legality", "Row", "Statement"]
