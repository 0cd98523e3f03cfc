"""Conversions of 8-bit floats by the packed instructions, which know one encoding: that of the arch.

What v_cvt_pk_fp8_f32 and v_cvt_pk_bf8_f32 make of a value past the largest depends on MODE.FP16_OVFL, which a kernel
starts with as its descriptor says. No lowering here depends on it: the instruction is only given what is within the
format, NaN, and, where the format has infinity, infinity; the rest is replaced before. v_med3_f32 gives the lower of
the others for a NaN, so that a NaN goes around it.

Source: "AMD Instinct MI300 Instruction Set Architecture" and "AMD Instinct CDNA4 Instruction Set Architecture",
V_CVT_PK_FP8_F32, V_CVT_PK_BF8_F32, V_CVT_PK_F32_FP8, V_CVT_PK_F32_BF8, V_MED3_F32; LLVM, "User Guide for AMDGPU
Backend", FP16_OVFL of the kernel descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kinfolk.errors import IllegalOp, PluginError
from kinfolk.ir.builder import float_bits
from kinfolk.ir.float8 import ENCODINGS, FORMATS, Float8
from kinfolk.ir.op import LlvmWriter, LowerToLlvm
from kinfolk.ir.ops.vector import literal
from kinfolk.ir.types import F16, F32, ScalarType, VectorType, component_count, element_type
from kinfolk.ir.value import Operation, Value

if TYPE_CHECKING:
    from kinfolk.arch import Arch, Fact

FACT: Final = "fp8_format"
"""The fact by which an arch says which encoding its instructions know."""
WIDEN: Final = "core.widen_float8"
NARROW: Final = "core.narrow_float8"
_PER_WORD: Final = 4  # codes in a register
_WORDS: Final = {3: "fp8", 2: "bf8"}  # the instructions' names, by bits of mantissa
_ABOVE_ALL: Final = 2.0**127  # times what is past the largest of a format: infinity


def lacking_types(facts: Mapping[str, Fact]) -> dict[str, dict[ScalarType, str]]:
    """Return the `lacking_types` of an Arch with these facts: the encodings that its instructions do not know.

    An arch without the fact `fp8_format` knows none. Raises PluginError for one that names no encoding.
    """
    own = facts.get(FACT)
    if own is None:
        why = f"no instruction converts 8-bit floats: the arch declares no fact {FACT}"
        return {WIDEN: dict.fromkeys(FORMATS, why), NARROW: dict.fromkeys(FORMATS, why)}
    if not isinstance(own, str) or own not in ENCODINGS:
        raise PluginError(f"the fact {FACT} is {own!r}; 8-bit floats are encoded as {' or '.join(ENCODINGS)}")
    without = {each: _instead(each, own) for name in ENCODINGS if name != own for each in ENCODINGS[name]}
    return {WIDEN: without, NARROW: without}


def _instead(lacking: ScalarType, own: str) -> str:
    theirs = FORMATS[lacking]
    ours = next(FORMATS[each] for each in ENCODINGS[own] if FORMATS[each].mantissa == theirs.mantissa)
    names = " and ".join(map(str, ENCODINGS[own]))
    return (
        f"no instruction converts {lacking}, its instructions convert {names} ({FACT} is {own}); use {ours.type}, "
        f"whose codes mean other values (the largest is {ours.largest_value:g}, of {lacking} {theirs.largest_value:g})"
    )


def lowerings(arch: Arch) -> Mapping[str, LowerToLlvm]:
    """Return the lowerings of the conversions; they raise IllegalOp for an encoding that the arch does not know."""
    lacking = lacking_types(arch.facts)

    def checked(lower: LowerToLlvm) -> LowerToLlvm:
        def lower_own(w: LlvmWriter, op: Operation) -> None:
            for value in (*op.operands, *op.results):
                if why := lacking[op.name].get(element_type(value.type)):
                    raise IllegalOp(f"{op.name} is not legal on {arch.name}: {why} (at {op.location})")
            lower(w, op)

        return lower_own

    return {WIDEN: checked(_lower_widen), NARROW: checked(_lower_narrow)}


def _lower_widen(w: LlvmWriter, op: Operation) -> None:
    (x,), (result,) = op.operands, op.results
    name = f"llvm.amdgcn.cvt.pk.f32.{_WORDS[FORMATS[element_type(x.type)].mantissa]}"
    values: list[str] = []
    for word in _words(w, x):
        for upper in ("false", "true"):
            if len(values) < _count(x):
                pair = w.call("<2 x float>", name, f"i32 {word}", f"i1 {upper}")
                values += [w.fresh(f"extractelement <2 x float> {pair}, i32 {half}") for half in (0, 1)]
    wide = _floats(result)
    single = _gathered(w, "float", values[: _count(x)]) if wide.startswith("<") else values[0]
    element = element_type(result.type)
    if element == F32:
        w.alias(result, single)
    elif element == F16:
        w.define(result, f"fptrunc {wide} {single} to {w.type(result.type)}")
    else:  # bf16 holds every value of an 8-bit float: what is cut off is zero, and a NaN has its quiet bit above
        words, halves = wide.replace("float", "i32"), wide.replace("float", "i16")
        bits = w.fresh(f"bitcast {wide} {single} to {words}")
        by = "16" if wide == "float" else f"<{', '.join(['i32 16'] * _count(result))}>"
        upper = w.fresh(f"trunc {words} {w.fresh(f'lshr {words} {bits}, {by}')} to {halves}")
        w.define(result, f"bitcast {halves} {upper} to {w.type(result.type)}")


def _lower_narrow(w: LlvmWriter, op: Operation) -> None:
    (x,), (result,) = op.operands, op.results
    form, saturates = FORMATS[element_type(result.type)], op.attributes["overflow"] == "saturate"
    name, wide = f"llvm.amdgcn.cvt.pk.{_WORDS[form.mantissa]}.f32", _floats(x)
    single = w.name(x) if element_type(x.type) == F32 else w.fresh(f"fpext {w.typed(x)} to {wide}")
    values = [single]
    if wide.startswith("<"):
        values = [w.fresh(f"extractelement {wide} {single}, i32 {index}") for index in range(_count(x))]
    values = [(_saturated if saturates else _without_overflow)(w, value, form) for value in values]
    words: list[str] = []
    for start in range(0, len(values), _PER_WORD):
        word = "poison"
        for upper, at in (("false", start), ("true", start + 2)):
            if at < len(values):
                other = values[min(at + 1, len(values) - 1)]
                word = w.call("i32", name, f"float {values[at]}", f"float {other}", f"i32 {word}", f"i1 {upper}")
        words.append(word)
    _define_by_words(w, words, result)


def _saturated(w: LlvmWriter, value: str, form: Float8) -> str:
    low, high = (_literal(sign * form.largest_value) for sign in (-1, 1))
    clamped = w.call("float", "llvm.amdgcn.fmed3.f32", f"float {value}", f"float {low}", f"float {high}")
    is_nan = w.fresh(f"fcmp uno float {value}, {_literal(0.0)}")
    return w.fresh(f"select i1 {is_nan}, float {value}, float {clamped}")


def _without_overflow(w: LlvmWriter, value: str, form: Float8) -> str:
    """Return NaN or infinity for what rounds past the largest value: what the format has."""
    size = w.call("float", "llvm.fabs.f32", f"float {value}")
    is_past = w.fresh(f"fcmp oge float {size}, {literal(form.overflow_bits, F32)}")
    past = literal(0x7FC00000, F32)
    if form.infinity is not None:
        past = w.fresh(f"fmul float {value}, {_literal(_ABOVE_ALL)}")
    elif not form.one_zero:
        past = _signed_nan(w, value)
    return w.fresh(f"select i1 {is_past}, float {past}, float {value}")


def _signed_nan(w: LlvmWriter, value: str) -> str:
    bits = w.fresh(f"bitcast float {value} to i32")
    return w.fresh(f"bitcast i32 {w.fresh(f'or i32 {bits}, {0x7FC00000}')} to float")


def _literal(value: float) -> str:
    return literal(float_bits(value, F32), F32)


def _count(value: Value) -> int:
    assert isinstance(value.type, ScalarType | VectorType)
    return component_count(value.type)


def _floats(value: Value) -> str:
    """Return LLVM's word for as many f32 as `value` has components."""
    return f"<{_count(value)} x float>" if isinstance(value.type, VectorType) else "float"


def _gathered(w: LlvmWriter, element: str, values: Sequence[str]) -> str:
    """Return a vector of these scalars."""
    text = "poison"
    for index, value in enumerate(values):
        text = w.fresh(f"insertelement <{len(values)} x {element}> {text}, {element} {value}, i32 {index}")
    return text


def _words(w: LlvmWriter, x: Value) -> list[str]:
    """Return the registers, four codes each, that hold a scalar or vector of 8-bit floats."""
    if isinstance(x.type, ScalarType):
        return [w.fresh(f"zext {w.typed(x)} to i32")]
    count = _count(x)
    words = -(-count // _PER_WORD)
    padded, name = f"<{words * _PER_WORD} x i8>", w.name(x)
    if count % _PER_WORD:
        places = ", ".join(f"i32 {index}" if index < count else "i32 poison" for index in range(words * _PER_WORD))
        mask = f"<{words * _PER_WORD} x i32> <{places}>"
        name = w.fresh(f"shufflevector {w.typed(x)}, {w.type(x.type)} poison, {mask}")
    if words == 1:
        return [w.fresh(f"bitcast {padded} {name} to i32")]
    whole = w.fresh(f"bitcast {padded} {name} to <{words} x i32>")
    return [w.fresh(f"extractelement <{words} x i32> {whole}, i32 {index}") for index in range(words)]


def _define_by_words(w: LlvmWriter, words: Sequence[str], result: Value) -> None:
    """Define a scalar or vector of 8-bit floats by registers of four codes each."""
    if isinstance(result.type, ScalarType):
        w.define(result, f"trunc i32 {words[0]} to i8")
        return
    count, whole = _count(result), words[0] if len(words) == 1 else _gathered(w, "i32", words)
    source = "i32" if len(words) == 1 else f"<{len(words)} x i32>"
    padded = f"<{len(words) * _PER_WORD} x i8>"
    codes = w.fresh(f"bitcast {source} {whole} to {padded}")
    if count % _PER_WORD == 0:
        w.alias(result, codes)
        return
    places = ", ".join(f"i32 {index}" for index in range(count))
    w.define(result, f"shufflevector {padded} {codes}, {padded} poison, <{count} x i32> <{places}>")
