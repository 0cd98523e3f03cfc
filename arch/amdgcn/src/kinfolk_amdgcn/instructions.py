"""How long each machine instruction of CDNA3 is, and which touch scratch memory: no more of a decoder.

Every instruction is one to four dwords, and the first dword says how many: by its encoding field, by an opcode that
always has a literal, or by a source operand that announces a dword to follow.
Source: AMD CDNA3 ISA, chapter "Microcode Formats"; oracle: `llvm-objdump -d`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

FORMATS: Final = "cdna3"
"""What an arch's fact `microcode_formats` says where its code can be walked here; CDNA4 adds to CDNA3's formats."""

LITERAL = 255  # an operand of this number is the dword that follows
SDWA, DPP = 249, 250  # as src0 of a VOP1, VOP2 or VOPC: a dword of modifiers follows

SOP1, SOPC, SOPP = 0b101111101, 0b101111110, 0b101111111  # bits 31:23
SOPK = 0b1011  # bits 31:28
SOPK_SETREG_IMM32 = 20  # bits 27:23
VOP2_WITH_LITERAL = (23, 24, 36, 37)  # v_fmamk_f32, v_fmaak_f32, v_madmk_f16, v_madak_f16; bits 30:25

VOP3 = 0b110100  # bits 31:26; VOP3P and the matrix instructions are in it
FLAT = 0b110111
TWO_DWORDS = {
    0b110000: "SMEM",
    VOP3: "VOP3",
    0b110110: "DS",
    FLAT: "FLAT",
    0b111000: "MUBUF",
    0b111010: "MTBUF",
}
SCALED_MATRIX_PREFIX = 0b110100111_0101100  # bits 31:16; two dwords of scales before the matrix instruction itself
FLAT_SCRATCH = 1  # bits 15:14 of a FLAT instruction; 0 is flat, 2 is global


class UnknownInstructionError(ValueError):
    """A dword that starts no instruction of this family."""


def dword_count(dword: int) -> int:
    """Return how many dwords the instruction takes that starts with `dword`."""
    if dword >> 31 == 0:
        return _vector_dword_count(dword)
    if dword >> 30 == 0b10:
        return _scalar_dword_count(dword)
    if dword >> 16 == SCALED_MATRIX_PREFIX:
        return 4
    if dword >> 26 in TWO_DWORDS:
        return 2
    raise UnknownInstructionError(f"0x{dword:08x} starts no known instruction")


def _vector_dword_count(dword: int) -> int:
    """VOP1, VOP2, VOPC: src0 in bits 8:0."""
    if dword >> 25 in VOP2_WITH_LITERAL:
        return 2
    return 2 if dword & 0x1FF in (LITERAL, SDWA, DPP) else 1


def _scalar_dword_count(dword: int) -> int:
    """SOP1, SOP2, SOPC: ssrc0 in bits 7:0, ssrc1 in 15:8. SOPK and SOPP carry 16 immediate bits instead."""
    if dword >> 23 == SOPP:
        return 1
    if dword >> 23 == SOP1:
        return 2 if dword & 0xFF == LITERAL else 1
    if dword >> 28 == SOPK and dword >> 23 != SOPC:
        return 2 if dword >> 23 & 0x1F == SOPK_SETREG_IMM32 else 1
    return 2 if LITERAL in (dword & 0xFF, dword >> 8 & 0xFF) else 1


def walk(code: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (byte offset, dwords, first dword) of each instruction; raise UnknownInstructionError at others."""
    offset = 0
    while offset < len(code):
        if offset + 4 > len(code):
            raise UnknownInstructionError(f"the code ends inside the instruction at offset {offset}")
        dword = int.from_bytes(code[offset : offset + 4], "little")
        try:
            count = dword_count(dword)
        except UnknownInstructionError as error:
            raise UnknownInstructionError(f"{error} at offset {offset}") from None
        if offset + 4 * count > len(code):
            raise UnknownInstructionError(f"the code ends inside the instruction at offset {offset}")
        yield offset, count, dword
        offset += 4 * count


def is_scratch(dword: int) -> bool:
    """Whether an instruction that starts with `dword` is a scratch_* load or store.

    The family addresses private memory by these alone (its flat scratch is architected): buffer instructions never do.
    """
    return dword >> 26 == FLAT and dword >> 14 & 0b11 == FLAT_SCRATCH


def scratch_op_count(code: bytes) -> int:
    """Return how many scratch instructions `code` holds."""
    return sum(is_scratch(dword) for _, _, dword in walk(code))
