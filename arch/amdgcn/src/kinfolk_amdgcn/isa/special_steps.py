"""Vector instructions that are no functions of one lane: what crosses lanes, register files, or a truth table.

Source: "AMD Instinct MI300 Instruction Set Architecture" and its successor for CDNA4; oracle: AMD's pseudo-code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kinfolk.check.element import numpy_dtype
from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.float8 import float8_type
from kinfolk_amdgcn.isa.operands import (
    EXEC_MASK,
    FIRST_VECTOR,
    Source,
    Target,
    rows_mask,
    scalar_source,
    scalar_target,
    vector_source,
)
from kinfolk_amdgcn.isa.step import Given, Run, Step, Unit
from kinfolk_amdgcn.isa.waves import LANES, Array, Waves

SPECIAL: Final = Table()
Make = Callable[[Given], Step]


def _declare(name: str, format_: str, opcode: int, **facts: Any) -> Callable[[Make], Make]:
    def take(make: Make) -> Make:
        row = Declared(name=name, format=format_, opcode=opcode, kind="special", facts={"make": make, **facts})
        SPECIAL.add(row)
        return make

    return take


def special_step(given: Given) -> Step:
    """Return the step of an instruction with a rule of its own."""
    if given.encoded.modifier and not given.declared.facts.get("selects"):
        raise Stop("unsupported", f"is modified ({given.encoded.modifier}), which is not modelled")
    make: Make = given.declared.facts["make"]
    return make(given)


_UNITS: Final[dict[str, Unit]] = {"v_read": "lane_read", "v_writelane": "lane_write", "v_permlane": "lane_swap"}


def _step(given: Given, run: Run, reads: int, writes: int, carried: tuple[tuple[int, int], ...] = ()) -> Step:
    unit = next((unit for begin, unit in _UNITS.items() if given.declared.name.startswith(begin)), "vector")
    if given.encoded.format == "VOP3" and given.declared.name.startswith("v_cvt_pk") and given.field("opsel") >> 3:
        unit = "shifting"
    return given.step(run, reads=reads | EXEC_MASK, writes=writes, lanes=True, unit=unit, carried=carried)


def _source(given: Given, number: int, name: str = "i32", accumulator: bool = False) -> Source:
    return vector_source(given.field(f"src{number}"), name, given.registers, given.encoded.literal, accumulator)


def _whole(source: Source, target: Target) -> tuple[tuple[int, int], ...]:
    """Return that a lane's read carries what nothing has written: compilers keep scalar registers in lanes."""
    return ((source.registers, target.registers),) if source.registers else ()


def _full(w: Waves, data: Array) -> Array:
    return np.broadcast_to(data, w.live.shape)


@_declare("v_readfirstlane_b32", "VOP1", 2)
def _read_first_lane(given: Given) -> Step:
    source, target = _source(given, 0), scalar_target(given.field("vdst"), "i32")

    def run(w: Waves) -> None:
        data = _full(w, source.read(w).data)
        target.write(w, data[np.arange(w.count), np.argmax(w.live, axis=1)])

    return _step(given, run, source.registers, target.registers, _whole(source, target))


@_declare("v_readlane_b32", "VOP3", 649)
def _read_lane(given: Given) -> Step:
    source, lane = _source(given, 0), scalar_source(given.field("src1"), "i32")
    target = scalar_target(given.field("vdst"), "i32")

    def run(w: Waves) -> None:
        chosen = np.broadcast_to(lane.read(w).data % LANES, (w.count,)).astype(np.int64)
        target.write(w, _full(w, source.read(w).data)[np.arange(w.count), chosen])

    return _step(given, run, source.registers | lane.registers, target.registers, _whole(source, target))


@_declare("v_writelane_b32", "VOP3", 650)
def _write_lane(given: Given) -> Step:
    value, lane = (scalar_source(given.field(f"src{number}"), "i32", given.encoded.literal) for number in (0, 1))
    row = given.registers.row(given.field("vdst"), False)

    def run(w: Waves) -> None:
        chosen = np.broadcast_to(lane.read(w).data % LANES, (w.count,)).astype(np.int64)
        w.v[row, np.arange(w.count), chosen] = value.read(w).data

    carried = ((value.registers, 0),) if value.registers else ()  # compilers keep masks of lanes so, bit by bit
    return _step(given, run, value.registers | lane.registers, rows_mask(row), carried)


@_declare("v_accvgpr_read_b32", "VOP3P", 88)
def _accumulator_read(given: Given) -> Step:
    source = given.registers.row(given.field("src0") - FIRST_VECTOR, True)
    row = given.registers.row(given.field("vdst"), False)
    moved = (rows_mask(source), rows_mask(row))
    return _step(given, lambda w: w.put(row, w.v[source]), *moved, carried=(moved,))


@_declare("v_accvgpr_write_b32", "VOP3P", 89)
def _accumulator_write(given: Given) -> Step:
    source, row = _source(given, 0), given.registers.row(given.field("vdst"), True)
    moved = (source.registers, rows_mask(row))
    return _step(given, lambda w: w.put(row, source.read(w).data), *moved, carried=(moved,) if source.registers else ())


@_declare("v_accvgpr_mov_b32", "VOP1", 82)
def _accumulator_move(given: Given) -> Step:
    source = given.registers.row(given.field("src0") - FIRST_VECTOR, True)
    row = given.registers.row(given.field("vdst"), True)
    moved = (rows_mask(source), rows_mask(row))
    return _step(given, lambda w: w.put(row, w.v[source]), *moved, carried=(moved,))


@_declare("v_swap_b32", "VOP1", 81)
def _swap(given: Given) -> Step:
    a, b = _two_rows(given)

    def run(w: Waves) -> None:
        held = w.v[a].copy()
        w.put(a, w.v[b])
        w.put(b, held)

    return _step(given, run, rows_mask(a) | rows_mask(b), rows_mask(a) | rows_mask(b))


def _two_rows(given: Given) -> tuple[int, int]:
    registers = given.registers
    return registers.row(given.field("vdst"), False), registers.row(given.field("src0") - FIRST_VECTOR, False)


def _swap_lanes(apart: int) -> Make:
    upper = np.flatnonzero(np.arange(LANES) // apart % 2)

    def make(given: Given) -> Step:
        a, b = _two_rows(given)

        def run(w: Waves) -> None:
            if not w.all_live:
                raise Stop("unsupported", "swaps lanes of which some are not live, which is not modelled")
            held = w.v[b][:, upper - apart]
            w.v[b][:, upper - apart] = w.v[a][:, upper]
            w.v[a][:, upper] = held

        return _step(given, run, rows_mask(a) | rows_mask(b), rows_mask(a) | rows_mask(b))

    return make


for _number, _apart in ((89, 16), (90, 32)):
    _declare(f"v_permlane{_apart}_swap_b32", "VOP1", _number)(_swap_lanes(_apart))


def _widening(element: str, count: int) -> Make:
    """Return what widens one 8-bit float, or two neighbours, of the part of a register that SDWA selects."""

    def make(given: Given) -> Step:
        fields = given.encoded.fields
        if given.encoded.modifier == "sdwa":
            plain = fields["dst_sel"] == WHOLE and not any(fields[name] for name in _SDWA_SIGNS)
            shift = _SELECTED[count].get(fields["src0_sel"])
        else:
            plain, shift = not given.encoded.modifier, 0
        if not plain or shift is None:
            raise Stop("unsupported", "is modified in a way that is not modelled")
        source, row = _source(given, 0), given.registers.row(given.field("vdst"), False, count)
        dtype = numpy_dtype(float8_type(given.float8, element))

        def run(w: Waves) -> None:
            bits = _full(w, source.read(w).data) >> np.uint32(shift)
            codes = [(bits >> np.uint32(8 * part) & np.uint32(0xFF)).astype(np.uint8) for part in range(count)]
            for part, code in enumerate(codes):
                w.put(row + part, code.view(dtype).astype(np.float32).view(np.uint32))

        return _step(given, run, source.registers, rows_mask(row, count))

    return make


WHOLE: Final = 6
"""SDWA's selection of all of a register; 0 to 3 are its bytes, 4 and 5 its halves."""
_SELECTED: Final[dict[int, dict[int, int]]] = {1: {0: 0, 1: 8, 2: 16, 3: 24, WHOLE: 0}, 2: {4: 0, 5: 16, WHOLE: 0}}
_SDWA_SIGNS: Final = ("src0_sext", "src0_neg", "src0_abs", "clamp", "omod", "src0_scalar")
for _number, _element in ((84, "fp8"), (85, "bf8")):
    _declare(f"v_cvt_f32_{_element}", "VOP1", _number, selects=True)(_widening(_element, 1))
    _declare(f"v_cvt_pk_f32_{_element}", "VOP1", _number + 2, selects=True)(_widening(_element, 2))


@_declare("v_pk_mov_b32", "VOP3P", 51)
def _packed_move(given: Given) -> Step:
    chosen, row = given.field("opsel"), given.registers.row(given.field("vdst"), False, 2)
    sources: list[Source] = []
    for number in (0, 1):
        code = given.field(f"src{number}")
        half = chosen >> number & 1 if code >= FIRST_VECTOR or code < 128 else 0
        sources.append(vector_source(code + half, "i32", given.registers, given.encoded.literal))

    def run(w: Waves) -> None:
        low, high = (_full(w, source.read(w).data).copy() for source in sources)
        w.put(row, low)
        w.put(row + 1, high)

    return _step(given, run, sources[0].registers | sources[1].registers, rows_mask(row, 2))


@_declare("v_bitop3_b16", "VOP3", 563)
@_declare("v_bitop3_b32", "VOP3", 564)
def _truth_table(given: Given) -> Step:
    """Each bit of the result is the bit of a table that the three operands' bits choose, the first counting most."""
    table = given.field("omod") << 6 | given.field("abs") << 3 | given.field("neg")
    narrow = given.declared.name.endswith("16")
    if narrow and given.field("opsel"):
        raise Stop("unsupported", "selects halves of registers, which is not modelled")
    kept = np.uint32(0xFFFF if narrow else 0xFFFFFFFF)
    sources = [_source(given, number) for number in range(3)]
    row = given.registers.row(given.field("vdst"), False)

    def run(w: Waves) -> None:
        a, b, c = (source.read(w).data for source in sources)
        result: Any = np.uint32(0)
        for choice in range(8):
            if table >> choice & 1:
                x, y, z = (each if choice >> place & 1 else ~each for each, place in ((a, 2), (b, 1), (c, 0)))
                result = result | (x & y & z)
        w.put(row, result & kept)

    reads = sources[0].registers | sources[1].registers | sources[2].registers
    return _step(given, run, reads, rows_mask(row))


def _narrowing(element: str) -> Make:
    """Return what rounds two f32 to 8-bit floats, to nearest even, into one half of a register; the other stays."""

    def make(given: Given) -> Step:
        if given.field("neg") or given.field("abs") or given.field("opsel") & 0b0111:
            raise Stop("unsupported", "is modified in a way that is not modelled")
        sources = [_source(given, number, "f32") for number in (0, 1)]
        row, shift = given.registers.row(given.field("vdst"), False), 16 if given.field("opsel") else 0
        dtype = numpy_dtype(float8_type(given.float8, element))

        def run(w: Waves) -> None:
            low, high = (_full(w, source.read(w).data).astype(dtype).view(np.uint8) for source in sources)
            pair = (low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(8)) << np.uint32(shift)
            w.put(row, pair | w.v[row] & np.uint32(0xFFFF0000 >> shift))

        return _step(given, run, sources[0].registers | sources[1].registers | rows_mask(row), rows_mask(row))

    return make


for _number, _element in ((674, "fp8"), (675, "bf8")):
    _declare(f"v_cvt_pk_{_element}_f32", "VOP3", _number)(_narrowing(_element))
