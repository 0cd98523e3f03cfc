"""gfx942 against what AMD and LLVM publish of it: facts, gates, kernels, and which calls its processor has."""

from __future__ import annotations

from typing import ClassVar

from kinfolk_amdgcn.legality import Statement
from kinfolk_amdgcn.testing.archs import ArchTests
from kinfolk_amdgcn.testing.legality import LegalityTests
from kinfolk_gfx942.plugin import PLUGIN


class TestArch(ArchTests):
    plugin = PLUGIN
    published: ClassVar = {  # ROCm, "AMD GPU specifications", MI300X; 5.3 TB/s at 2.1 GHz
        "compute_units": 304,
        "wave_size": 64,
        "lds_bytes": 65536,
        "lds_granule": 512,
        "max_workgroup_size": 1024,
        "hbm_bytes_per_clock": 2523,
        "fp8_format": "fnuz",
    }

    def test_the_lanes_of_wide_accesses_are_those_published(self):
        """ROCm's tables: a 16-byte read serves 0-3 with 20-23, 4-7 with 16-19, ...; a write eight lanes in order."""
        groups = ("0-3,20-23", "4-7,16-19", "8-11,28-31", "12-15,24-27")
        groups += ("32-35,52-55", "36-39,48-51", "40-43,60-63", "44-47,56-59")
        spans = [[tuple(map(int, span.split("-"))) for span in group.split(",")] for group in groups]
        published = tuple(tuple(lane for low, high in group for lane in range(low, high + 1)) for group in spans)
        banks = self.arch.banks
        assert banks is not None and (banks.banks, banks.bank_bytes) == (32, 4)
        assert banks.phases_of("read", 16).lanes == published
        assert banks.phases_of("write", 16).lanes == tuple(tuple(range(lane, lane + 8)) for lane in range(0, 64, 8))
        assert [banks.phases_of("read", 8), banks.phases_of("write", 4), banks.phases_of("stage", 4)] == [None] * 3
        assert "of no other access" in banks.unmeasured


SWAP = "call { i32, i32 } @llvm.amdgcn.permlane32.swap(i32 ?, i32 ?, i1 false, i1 false)"
LOAD_TO_LDS = "call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) ?, ptr addrspace(3) ?, i32 {}, i32 0, i32 0)"
RSRC_20 = "call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p1(ptr addrspace(1) ?, i16 0, i32 ?, i32 1)"
RSRC_22 = "call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) ?, i16 0, i64 ?, i32 1)"
SCALED = "call <2 x i16> @llvm.amdgcn.cvt.scalef32.pk.fp8.f32(<2 x i16> ?, float ?, float ?, float ?, i1 false)"
READ_128 = "call <8 x i16> @llvm.amdgcn.ds.read.tr16.b128(ptr addrspace(3) ?)"


def loading(size):
    """The load of so many bytes a lane straight to workgroup memory."""
    return Statement(LOAD_TO_LDS.format(size))


class TestLegality(LegalityTests):
    plugin = PLUGIN
    known: ClassVar = {  # AMD, "Instinct MI300 Instruction Set Architecture", and LLVM's release notes
        (SWAP, 20): "arch_absent",
        (SWAP, 22): "arch_absent",
        (LOAD_TO_LDS.format(4), 22): "ok",
        (LOAD_TO_LDS.format(16), 22): "arch_absent",
        (RSRC_20, 20): "ok",
        (RSRC_20, 22): "rejected",
        (RSRC_22, 20): "rejected",
        (RSRC_22, 22): "ok",
        (SCALED, 20): "wrong_instruction",
        (SCALED, 22): "wrong_instruction",
        (READ_128, 22): "name_absent",
        ("call i32 @llvm.amdgcn.permlane64(i32 ?)", 22): "crash:per_lane",
    }

    def test_what_is_instead_is_of_its_kind_and_there(self):
        row = self.table.find(loading(16))
        assert row is not None
        there = tuple(f"llvm.amdgcn.global.load.lds ({size})" for size in (1, 2, 4))
        assert self.table.instead(row, "gfx942", 22) == there
        refusal = self.table.refusal(loading(16), "gfx942", 22)
        assert refusal is not None and "llvm.amdgcn.global.load.lds (16) is arch_absent on gfx942" in refusal
        assert self.table.refusal(loading(4), "gfx942", 22) is None
        assert "has not been measured" in str(self.table.refusal(loading(3), "gfx942", 22))
