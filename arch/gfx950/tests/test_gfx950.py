"""gfx950 against what AMD and LLVM publish of it: facts, gates, kernels, and which calls its processor has."""

from __future__ import annotations

from typing import ClassVar

from kinfolk_amdgcn.testing.archs import ArchTests
from kinfolk_amdgcn.testing.legality import LegalityTests
from kinfolk_gfx950.plugin import PLUGIN


class TestArch(ArchTests):
    plugin = PLUGIN
    published: ClassVar = {  # ROCm, "AMD GPU specifications", MI350X; Hot Chips 2025: 8 TB/s at 2.2 GHz
        "compute_units": 256,
        "wave_size": 64,
        "lds_bytes": 163840,
        "lds_granule": 1280,
        "max_workgroup_size": 1024,
        "hbm_bytes_per_clock": 3636,
        "fp8_format": "ocp",
    }

    def test_nothing_is_claimed_of_lanes_served_together(self):
        banks = self.arch.banks
        assert banks is not None and (banks.banks, banks.bank_bytes, banks.bytes_per_clock) == (64, 4, 256)
        assert banks.phases == () and "not published" in banks.unmeasured


SWAP = "call { i32, i32 } @llvm.amdgcn.permlane32.swap(i32 ?, i32 ?, i1 false, i1 false)"
LOAD_TO_LDS = "call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) ?, ptr addrspace(3) ?, i32 16, i32 0, i32 0)"
LOAD_ANY = "call void @llvm.amdgcn.load.to.lds.p1(ptr addrspace(1) ?, ptr addrspace(3) ?, i32 4, i32 0, i32 0)"
SCALED = "call <2 x i16> @llvm.amdgcn.cvt.scalef32.pk.fp8.f32(<2 x i16> ?, float ?, float ?, float ?, i1 false)"
READ_128 = "call <8 x i16> @llvm.amdgcn.ds.read.tr16.b128(ptr addrspace(3) ?)"


class TestLegality(LegalityTests):
    plugin = PLUGIN
    known: ClassVar = {  # AMD, "Instinct CDNA4 Instruction Set Architecture", and LLVM's release notes
        (SWAP, 20): "ok",
        (SWAP, 22): "ok",
        (LOAD_TO_LDS, 22): "ok",
        (LOAD_ANY, 20): "name_absent",
        (LOAD_ANY, 22): "ok",
        (SCALED, 22): "ok",
        (READ_128, 22): "name_absent",
    }
