"""What is known of a kernel from its IR alone, without running it."""

from __future__ import annotations

from kinfolk.analysis.indirection import Indirection, indirections

__all__ = ["Indirection", "indirections"]
