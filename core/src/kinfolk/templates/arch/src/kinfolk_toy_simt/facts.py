"""What the machine is, in numbers. Families read them by name; say of each where it is documented or measured.

These are made up. A name that no family reads may go; a family that reads one that is missing is refused with its name.
"""

from __future__ import annotations

from typing import Final

from kinfolk.arch import Fact

FACTS: Final[dict[str, Fact]] = {
    # Waves and workgroups.
    "compute_units": 8,
    "wave_size": 32,
    "max_workgroup_size": 1024,  # threads
    "max_grid_x": 2**31 - 1,  # workgroups
    "max_grid_y": 65535,
    "max_grid_z": 65535,
    # Workgroup memory.
    "lds_bytes": 65536,  # of a compute unit, and the most that one workgroup has
    "lds_banks": 32,
    "lds_bank_bytes": 4,
    "lds_bytes_per_clock": 128,
    # Memory.
    "max_access_bytes": 16,  # of a lane
    "max_view_bytes": 2**31 - 4,  # what `core.bound` may span
}
