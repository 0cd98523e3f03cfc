"""Instruction words of CDNA3 and CDNA4 taken apart: which format, which opcode, what stands in each field.

Source: "AMD Instinct MI300 Instruction Set Architecture", chapter "Microcode Formats"; CDNA4 has the same formats.
Oracle: the decoder that tinygrad makes from AMD's machine-readable ISA, in tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from kinfolk.errors import ToolError
from kinfolk_amdgcn.instructions import DPP, LITERAL, SCALED_MATRIX_PREFIX, SDWA, UnknownInstructionError, walk

Bits = tuple[int, int]
"""The highest and the lowest bit of a field."""


class UndecodedError(ToolError):
    """Machine code that is not decoded here; the message has its words and its place."""


@attrs.frozen
class Format:
    """One microcode format: where its opcode and its other fields lie in the instruction's bits."""

    name: str
    opcode: Bits
    fields: Mapping[str, Bits]


@attrs.frozen(kw_only=True)
class Encoded:
    """One instruction: its offset in the code in bytes, its words as one number, its fields by name.

    `literal` is the dword that an operand of 255 stands for. The fields of a DPP or SDWA dword are among `fields`,
    which `modifier` tells; src0 is then the register that it names.
    """

    offset: int
    dwords: int
    bits: int
    format: str
    opcode: int
    fields: Mapping[str, int]
    literal: int | None = None
    modifier: str = ""

    @property
    def words(self) -> str:
        """The words in hex, as disassemblers print them."""
        return " ".join(f"{self.bits >> 32 * number & 0xFFFFFFFF:08X}" for number in range(self.dwords))


_VOP3_SOURCES: Final[dict[str, Bits]] = {"src0": (40, 32), "src1": (49, 41), "src2": (58, 50), "neg": (63, 61)}
_ADDRESSED: Final[dict[str, Bits]] = {"vdst": (63, 56), "vaddr": (39, 32)}

SOP2: Final = Format("SOP2", (29, 23), {"sdst": (22, 16), "ssrc1": (15, 8), "ssrc0": (7, 0)})
SOPK: Final = Format("SOPK", (27, 23), {"sdst": (22, 16), "simm16": (15, 0)})
SOP1: Final = Format("SOP1", (15, 8), {"sdst": (22, 16), "ssrc0": (7, 0)})
SOPC: Final = Format("SOPC", (22, 16), {"ssrc1": (15, 8), "ssrc0": (7, 0)})
SOPP: Final = Format("SOPP", (22, 16), {"simm16": (15, 0)})
SMEM: Final = Format(
    "SMEM",
    (25, 18),
    {
        "sbase": (5, 0),
        "sdata": (12, 6),
        "soffset_en": (14, 14),
        "imm": (17, 17),
        "offset": (52, 32),
        "soffset": (63, 57),
    },
)
VOP2: Final = Format("VOP2", (30, 25), {"vdst": (24, 17), "vsrc1": (16, 9), "src0": (8, 0)})
VOP1: Final = Format("VOP1", (16, 9), {"vdst": (24, 17), "src0": (8, 0)})
VOPC: Final = Format("VOPC", (24, 17), {"vsrc1": (16, 9), "src0": (8, 0)})
VOP3: Final = Format(
    "VOP3",
    (25, 16),
    {
        "vdst": (7, 0),
        "abs": (10, 8),
        "opsel": (14, 11),
        "sdst": (14, 8),
        "clamp": (15, 15),
        "omod": (60, 59),
        **_VOP3_SOURCES,
    },
)
VOP3P: Final = Format(
    "VOP3P",
    (22, 16),
    {
        "vdst": (7, 0),
        "neg_hi": (10, 8),
        "cbsz": (10, 8),
        "opsel": (13, 11),
        "abid": (14, 11),
        "opsel_hi2": (14, 14),
        "clamp": (15, 15),
        "acc_cd": (15, 15),
        "opsel_hi": (60, 59),
        "acc": (60, 59),
        "blgp": (63, 61),
        **_VOP3_SOURCES,
    },
)
DS: Final = Format(
    "DS",
    (24, 17),
    {
        "offset0": (7, 0),
        "offset1": (15, 8),
        "gds": (16, 16),
        "acc": (25, 25),
        "data0": (47, 40),
        "data1": (55, 48),
        **_ADDRESSED,
    },
)
FLAT: Final = Format(
    "FLAT",
    (24, 18),
    {
        "offset": (12, 0),
        "lds": (13, 13),
        "segment": (15, 14),
        "sc0": (16, 16),
        "nt": (17, 17),
        "sc1": (25, 25),
        "data": (47, 40),
        "saddr": (54, 48),
        "acc": (55, 55),
        **_ADDRESSED,
    },
)
MUBUF: Final = Format(
    "MUBUF",
    (24, 18),
    {
        "offset": (11, 0),
        "offen": (12, 12),
        "idxen": (13, 13),
        "sc0": (14, 14),
        "sc1": (15, 15),
        "lds": (16, 16),
        "nt": (17, 17),
        "vaddr": (39, 32),
        "vdata": (47, 40),
        "srsrc": (52, 48),
        "acc": (55, 55),
        "soffset": (63, 56),
    },
)
DPP_FIELDS: Final[dict[str, Bits]] = {
    "src0": (39, 32),
    "dpp_ctrl": (48, 40),
    "bound_ctrl": (51, 51),
    "src0_neg": (52, 52),
    "src0_abs": (53, 53),
    "src1_neg": (54, 54),
    "src1_abs": (55, 55),
    "bank_mask": (59, 56),
    "row_mask": (63, 60),
}
SDWA_FIELDS: Final[dict[str, Bits]] = {
    "src0": (39, 32),
    "dst_sel": (42, 40),
    "dst_unused": (44, 43),
    "clamp": (45, 45),
    "omod": (47, 46),
    "sdwa_sdst": (46, 40),
    "sdwa_sdst_used": (47, 47),
    "src0_sel": (50, 48),
    "src0_sext": (51, 51),
    "src0_neg": (52, 52),
    "src0_abs": (53, 53),
    "src0_scalar": (55, 55),
    "src1_sel": (58, 56),
    "src1_sext": (59, 59),
    "src1_neg": (60, 60),
    "src1_abs": (61, 61),
    "src1_scalar": (63, 63),
}
SCALE_FIELDS: Final[dict[str, Bits]] = {
    "scale0": (40, 32),
    "scale1": (49, 41),
    "scale_low": (12, 11),
    "scale_high": (60, 59),
}
"""Registers of scales, and for both two bits that say which byte of them."""
_BY_TOP_NINE: Final = {0b101111101: SOP1, 0b101111110: SOPC, 0b101111111: SOPP, 0b110100111: VOP3P}
_BY_TOP_SIX: Final = {0b110000: SMEM, 0b110100: VOP3, 0b110110: DS, 0b110111: FLAT, 0b111000: MUBUF}
ALWAYS_LITERAL: Final = frozenset({23, 24, 36, 37})  # VOP2: fmamk, fmaak, madmk, madak


def format_of(word: int) -> Format | None:
    """Return the format of an instruction that starts with `word`, None where it is none of these."""
    if word >> 31 == 0:
        return {0b0111111: VOP1, 0b0111110: VOPC}.get(word >> 25, VOP2)
    if word >> 23 in _BY_TOP_NINE:
        return _BY_TOP_NINE[word >> 23]
    if word >> 28 == 0b1011:
        return SOPK
    if word >> 30 == 0b10:
        return SOP2
    return _BY_TOP_SIX.get(word >> 26)


def field_of(bits: int, place: Bits) -> int:
    """Return the number that stands in a field."""
    high, low = place
    return bits >> low & (1 << high - low + 1) - 1


def decoded(code: bytes) -> Iterator[Encoded]:
    """Yield the instructions of a function's code in order; raise UndecodedError for words that are none."""
    try:
        for offset, dwords, first in walk(code):
            yield _encoded(offset, dwords, first, int.from_bytes(code[offset : offset + 4 * dwords], "little"))
    except UnknownInstructionError as error:
        raise UndecodedError(str(error)) from None


def _encoded(offset: int, dwords: int, first: int, bits: int) -> Encoded:
    if first >> 16 == SCALED_MATRIX_PREFIX:
        return _scaled_matrix(offset, bits)
    found = format_of(first) if dwords <= 2 else None
    if found is None:
        raise UndecodedError(f"0x{first:08x} at offset {offset:#x} starts an instruction of a format not decoded here")
    fields = {name: field_of(bits, place) for name, place in found.fields.items() if place[0] < 32 * dwords}
    opcode, literal, modifier = field_of(bits, found.opcode), None, ""
    if found in (VOP1, VOP2, VOPC) and fields["src0"] in (DPP, SDWA):
        modifier = "dpp" if fields["src0"] == DPP else "sdwa"
        extra = DPP_FIELDS if modifier == "dpp" else SDWA_FIELDS
        fields |= {name: field_of(bits, place) for name, place in extra.items()}
        fields["src0"] += 0 if fields.get("src0_scalar") else 256
    elif (
        LITERAL in (fields.get("src0"), fields.get("ssrc0"), fields.get("ssrc1"))
        or (found is VOP2 and opcode in ALWAYS_LITERAL)
        or (found is SOPK and dwords == 2)
    ) and found not in (VOP3, VOP3P):
        literal = bits >> 32
    return Encoded(
        offset=offset,
        dwords=dwords,
        bits=bits,
        format=found.name,
        opcode=opcode,
        fields=fields,
        literal=literal,
        modifier=modifier,
    )


def _scaled_matrix(offset: int, bits: int) -> Encoded:
    """Return a matrix instruction with two dwords of scales before it as one, of format VOP3PX."""
    matrix = _encoded(offset, 2, bits >> 64 & 0xFFFFFFFF, bits >> 64)
    scales = {name: field_of(bits, place) for name, place in SCALE_FIELDS.items()}
    return Encoded(
        offset=offset, dwords=4, bits=bits, format="VOP3PX", opcode=matrix.opcode, fields={**matrix.fields, **scales}
    )
