"""The fast engine: a kernel's ops as compiled functions of the host, run as threaded code, workgroups on threads.

It finds that an op is at fault and where; the reference engine then runs that workgroup again and says what is wrong.
"""

from __future__ import annotations

__all__: list[str] = []
