"""What gfx942 is, in numbers. Families read them by name; each says where it is documented or measured.

Sources: [specs] ROCm documentation, "AMD GPU specifications", MI300X. [llvm] LLVM 22: the AMDGPU backend's subtarget
for gfx942 and what it emits. [usage] LLVM, "User Guide for AMDGPU Backend". [isa] "AMD Instinct MI300 Instruction Set
Architecture". [banks] ROCm, Composable Kernel documentation, "Understanding AMD GPU LDS and bank conflicts". [hip] HIP
runtime, hip_device.cpp. [formula] computed from the others.
"""

from __future__ import annotations

from typing import Final

from kinfolk.arch import Fact

CLOCK_MHZ: Final = 2100  # [specs] peak engine clock
HBM_BYTES_PER_SECOND: Final = 5_300_000_000_000  # [specs] peak memory bandwidth, MI300X

FACTS: Final[dict[str, Fact]] = {
    # The machine.
    "compute_units": 304,  # [specs]
    "xcds": 8,  # [specs] dies, each with its own L2; workgroups are dealt to them round robin
    "simds_per_cu": 4,  # [llvm] EUsPerCU
    "clock_mhz": CLOCK_MHZ,
    # Waves and workgroups.
    "wave_size": 64,  # [specs]
    "max_waves_per_simd": 8,  # [llvm]
    "max_workgroup_size": 1024,  # [usage] threads, 16 waves
    "max_grid_x": 2**31 - 1,  # [hip] workgroups
    "max_grid_y": 65535,  # [hip]
    "max_grid_z": 65535,  # [hip]
    # Registers, 32 bits per lane.
    "vgprs_per_simd": 512,  # [specs] one file for vector and accumulation registers
    "vgprs_per_wave": 512,  # [llvm] both kinds together
    "plain_vgprs_per_wave": 256,  # [llvm] as many again can only be accumulation registers
    "vgpr_granule": 8,  # [llvm] registers are allocated in eights
    "accum_granule": 4,  # [llvm] accumulation registers begin at a multiple of four
    "sgprs_per_wave": 102,  # [llvm]
    # Workgroup memory.
    "lds_bytes": 65536,  # [specs] per compute unit, and the most one workgroup can have
    "lds_granule": 512,  # [usage] bytes, GRANULATED_LDS_SIZE counts 128 words
    "lds_banks": 32,  # [banks]
    "lds_bank_bytes": 4,  # [banks]
    "lds_bytes_per_clock": 128,  # [banks] per compute unit
    "lds_offset_limit": 65535,  # [isa] largest offset in a DS instruction, bytes
    # Global memory.
    "max_access_bytes": 16,  # [isa] four words per lane
    "address_bits": 48,  # [isa]
    "max_index": 2**31 - 1,  # element indices are signed 32-bit values
    "view_offset_limit": 4095,  # [llvm] largest offset in a buffer instruction, bytes, unsigned
    "global_offset_limit": 4095,  # [llvm] largest offset in a global instruction, bytes
    "max_view_bytes": 2**31 - 4,  # the declaration of `core.bound`; the resource itself holds 32 bits
    # [isa] raw buffer, 32-bit data: DATA_FORMAT 4, NUM_FORMAT 7; a data format of 0 makes every load return 0
    "buffer_word3": 0x00027000,
    "vector_cache_bytes": 32 * 1024,  # [specs] per compute unit
    "l2_bytes": 4 * 1024 * 1024,  # [specs] per XCD; not coherent between XCDs for ordinary memory
    "mall_bytes": 256 * 1024 * 1024,  # [specs] shared by all
    "hbm_bytes_per_clock": HBM_BYTES_PER_SECOND // (CLOCK_MHZ * 1_000_000),  # [formula] whole device
    # What the instruction set lacks or has; families choose by these and never by the arch's name.
    "fp8_format": "fnuz",  # [isa] f8E4M3FNUZ and f8E5M2FNUZ
    "has_transpose_reads": False,  # [llvm] no ds_read_tr
    "has_bf16_conversion": False,  # [llvm] f32 to bf16 takes about five instructions a value
    "async_lds_bytes": 4,  # [llvm] widest load from global to workgroup memory; 12 and 16 abort the compiler
    "matrix_result_states": 3,  # [llvm] wait states past its passes until a matrix result may be touched
    "microcode_formats": "cdna3",  # [isa]
}
