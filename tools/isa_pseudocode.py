"""AMD's pseudo-code of instructions, evaluated: integers with a width and a sign, floats by their bits.

Nothing of kinfolk is in it. With it `tools/record_isa_vectors.py` computes the results that our own declarations are
tested against.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

TOKEN = re.compile(
    r"\s*(?:(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)[UIB]?)|(?P<cast>\d+'[UIBF](?=\())|(?P<float>\d+\.\d+F?)"
    r"|(?P<int>(?:0x[0-9a-fA-F]+|\d+)(?:ULL|LL|UL|U|L)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|[-+*/%&|^~!<>?:=(){},.\[\]]))"
)
LEVELS = [("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="), ("<<", ">>")]
LEVELS += [("+", "-"), ("*", "/", "%"), ("**",)]
FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
FRACTION = {16: 10, 32: 23, 64: 52}
SMALLEST = {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}
"""Bits of the fraction, and the smallest normal number, by width."""
NAN_BITS = {16: 0x7E00, 32: 0x7FC00000, 64: 0x7FF8000000000000}


class Value:
    """Bits of a width, read as `u`nsigned, signed `i`nteger or `f`loat."""

    def __init__(self, bits: int, width: int, kind: str = "u", literal: bool = False) -> None:
        self.bits, self.width, self.kind, self.literal = bits & ((1 << width) - 1), width, kind, literal

    @property
    def number(self) -> Any:
        if self.kind == "f":
            return np.array(self.bits, f"u{self.width // 8}").view(FLOATS[self.width])[()]
        return self.bits - (1 << self.width) if self.kind == "i" and self.bits >> self.width - 1 else self.bits

    def seen(self, kind: str, width: int) -> Value:
        """Return the lowest bits as another type: `.u32`. A float read as one of another width is rounded to it."""
        if kind == self.kind == "f" and width != self.width:
            return of_float(self.number, width)
        return Value(self.bits, width, {"b": "u"}.get(kind, kind))


def of_float(number: Any, width: int = 32) -> Value:
    with np.errstate(all="ignore"):
        value = FLOATS[width](number)
    bits = NAN_BITS[width] if np.isnan(value) else int(np.array(value).view(f"u{width // 8}"))
    return Value(bits, width, "f")


def rounded(exact: Fraction, negative_zero: bool) -> Value:
    """Return a rational number as f32, rounded once to nearest even."""
    if exact == 0:
        return Value(0x80000000 if negative_zero else 0, 32, "f")
    sign, size = exact < 0, abs(exact)
    exponent = math.floor(math.log2(size)) if size < 2**1000 else size.numerator.bit_length()
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    return of_float(float(round(size / unit) * unit) * (-1 if sign else 1))


def fma_f16(x: Fraction, y: Fraction, z: Fraction, *values: Value) -> Value:
    """Return x * y + z as f16: the nearest of all numbers of f16, of two the one that is even."""
    exact = x * y + z
    if exact == 0:
        signs = [each.bits >> 15 for each in values]
        return Value(0x8000 if signs[0] ^ signs[1] and signs[2] else 0, 16, "f")
    size = abs(exact)
    if size >= 65520:
        bits = 0x7C00
    else:
        exponent = max((power for power in range(-14, 16) if Fraction(2) ** power <= size), default=-14)
        bits = round(size / Fraction(2) ** (exponent - 10)) + (exponent + 14 << 10)
    return Value(bits | (0x8000 if exact < 0 else 0), 16, "f")


def fma(a: Value, b: Value, c: Value) -> Value:
    if a.width == 16 and all(math.isfinite(float(each.number)) for each in (a, b, c)):
        return fma_f16(*(Fraction(float(each.number)) for each in (a, b, c)), a, b, c)
    x, y, z = (float(each.number) for each in (a, b, c))
    if not all(map(math.isfinite, (x, y, z))):
        with np.errstate(all="ignore"):
            return of_float(np.float64(x) * np.float64(y) + np.float64(z), a.width)
    if a.width == 64:
        total = Fraction(x) * Fraction(y) + Fraction(z)
        if abs(total) >= Fraction(2) ** 1024 - Fraction(2) ** 970:  # halfway from the largest f64 to the next power
            return of_float(math.inf if total > 0 else -math.inf, 64)
        return of_float(float(total) if total else x * y + z, 64)
    product = Fraction(x) * Fraction(y)
    negative = math.copysign(1, x) * math.copysign(1, y) < 0 and math.copysign(1, z) < 0
    return rounded(product + Fraction(z), negative)


def to_integer(low: int, high: int, kind: str) -> Callable[[Value], Value]:
    def convert(x: Value) -> Value:
        number = float(x.number)
        whole = 0 if math.isnan(number) else high if number >= high else low if number <= low else math.trunc(number)
        return Value(whole, 32, kind)

    return convert


def signed_from(x: Value, count: Value) -> Value:
    width = int(count.number)
    low = x.bits & (1 << width) - 1
    return Value(low - (1 << width) if width and low >> width - 1 else low, x.width, "i")


def extended(kind: str, bits: int) -> Callable[[Value], Value]:
    return lambda x: Value(x.seen(kind, bits).number, 32, kind)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "isNAN": lambda x: Value(bool(np.isnan(x.number)), 1),
    "isSignalNAN": lambda x: Value(0, 1),  # none is among what is recorded
    "isQuietNAN": lambda x: Value(bool(np.isnan(x.number)), 1),
    "exponent": lambda x: Value(x.bits >> FRACTION[x.width] & (1 << x.width - 1 - FRACTION[x.width]) - 1, 32, "i"),
    "isDENORM": lambda x: Value(x.number != 0 and abs(x.number) < SMALLEST[x.width], 1),
    "cvtToQuietNAN": lambda x: x,
    "ldexp": lambda x, n: of_float(np.ldexp(np.float64(x.number), int(n.number)), x.width),
    "sin": lambda x: of_float(np.sin(np.float64(x.number)), x.width),
    "cos": lambda x: of_float(np.cos(np.float64(x.number)), x.width),
    "sign": lambda x: Value(x.bits >> x.width - 1, 1),
    "abs": lambda x: Value(x.bits & (1 << x.width - 1) - 1, x.width, "f"),
    "signext": lambda x: Value(x.bits, x.width, "i"),
    "signext_from_bit": signed_from,
    "fma": fma,
    "floor": lambda x: of_float(np.floor(x.number), x.width),
    "trunc": lambda x: of_float(np.trunc(x.number), x.width),
    "fract": lambda x: of_float(x.number - np.floor(x.number), x.width),
    "isEven": lambda x: Value(bool(np.isfinite(x.number)) and x.number % 2 == 0, 1),
    "sqrt": lambda x: of_float(np.sqrt(x.number), x.width),
    "pow": lambda x, y: of_float(np.power(np.float64(x.number), np.float64(y.number)), x.width),
    "log2": lambda x: of_float(np.log2(np.float64(x.number)), x.width),
    "i32_to_f32": lambda x: of_float(float(x.seen("i", 32).number)),
    "u32_to_f32": lambda x: of_float(float(x.bits)),
    "i32_to_f64": lambda x: of_float(float(x.seen("i", 32).number), 64),
    "u32_to_f64": lambda x: of_float(float(x.bits), 64),
    "f64_to_f32": lambda x: of_float(x.number),
    "f32_to_f64": lambda x: of_float(x.number, 64),
    "f64_to_i32": to_integer(-(1 << 31), (1 << 31) - 1, "i"),
    "f64_to_u32": to_integer(0, (1 << 32) - 1, "u"),
    "f32_to_i32": to_integer(-(1 << 31), (1 << 31) - 1, "i"),
    "f32_to_u32": to_integer(0, (1 << 32) - 1, "u"),
    "u16_to_f16": lambda x: of_float(float(x.bits & 0xFFFF), 16),
    "i16_to_f16": lambda x: of_float(float(x.seen("i", 16).number), 16),
    "f16_to_u16": to_integer(0, 0xFFFF, "u"),
    "f16_to_i16": to_integer(-0x8000, 0x7FFF, "i"),
    "u32_to_u16": lambda x: Value(min(x.bits, 0xFFFF), 16),
    "i32_to_i16": lambda x: Value(min(max(x.seen("i", 32).number, -0x8000), 0x7FFF), 16, "i"),
    **{f"{kind}{bits}_to_{kind}32": extended(kind, bits) for kind in "iu" for bits in (4, 8, 16)},
    "f32_to_f16": lambda x: of_float(x.number, 16),
    "bf16_to_f32": lambda x: x,
    "f16_to_f32": lambda x: of_float(x.number, 32),
    "f32_to_bf16": lambda x: Value(
        0x7FC0 if np.isnan(x.number) else int(np.array(x.number, ml_dtypes.bfloat16).view(np.uint16)), 16
    ),
}
CONSTANTS = {"INF": math.inf, "NAN": math.nan, "PI": math.pi}


class Evaluator:
    """Runs the statements of one instruction; `variables` are what its names hold, before and after."""

    def __init__(self, variables: dict[str, Value], others: Mapping[str, str]) -> None:
        self.variables, self._others = variables, others
        self._tokens: list[str] = []
        self._at = 0

    def run(self, text: str) -> None:
        """Run a whole text."""
        lines = [re.sub(r"//.*", "", line).strip().rstrip(";").strip() for line in text.split("\n")]
        self._block([line for line in lines if line], 0)

    def _block(self, lines: list[str], at: int, live: bool = True) -> tuple[int, bool]:
        """Run lines until one that ends the block; return its place, and whether a loop was broken."""
        while at < len(lines):
            line = lines[at]
            if line.startswith(("elsif ", "else", "endif", "endfor")):
                return at, False
            if line.startswith("if "):
                at, broken = self._branches(lines, at, live)
                if broken:
                    return at, True
            elif line.startswith("for "):
                at = self._loop(lines, at, live)
            elif line == "break":
                if live:
                    return at, True
                at += 1
            else:
                if live and not line.startswith(("declare", "ROUND_MODE", "prev_mode")):
                    self._statement(line)
                at += 1
        return at, False

    def _branches(self, lines: list[str], at: int, live: bool) -> tuple[int, bool]:
        taken = False
        while not lines[at].startswith("endif"):
            head = re.fullmatch(r"(?:els)?if (.*) then|else", lines[at])
            assert head is not None, lines[at]
            chosen = live and not taken and (head[1] is None or self.value(head[1]).bits != 0)
            taken |= chosen
            at, broken = self._block(lines, at + 1, chosen)
            if broken:
                return at, True
        return at + 1, False

    def _loop(self, lines: list[str], at: int, live: bool) -> int:
        head = re.fullmatch(r"for (\w+) in (.*) : (.*) do", lines[at])
        assert head is not None, lines[at]
        first, last = (int(self.value(text).number) for text in (head[2], head[3]))
        for number in range(first, last + 1) if live else ():
            self.variables[head[1]] = Value(number, 32, "i")
            _, broken = self._block(lines, at + 1)
            if broken:
                break
        depth = 1
        while depth:
            at += 1
            depth += lines[at].startswith("for ") - lines[at].startswith("endfor")
        return at + 1

    def _statement(self, line: str) -> None:
        target, operator, source = re.fullmatch(r"(.*?)\s*(?<![=<>!+-])([+-]?=)(?!=)\s*(.*)", line).groups()  # type: ignore[union-attr]
        value = self.value(source)
        if operator != "=":
            value = self._binary(operator[0], self.value(target), value)
        if target.startswith("{"):
            high, low = (part.strip() for part in target.strip("{} ").split(","))
            self._assign(low, Value(value.bits, 64))
            self._assign(high, Value(value.bits >> 64, 1))
        else:
            self._assign(target, value)

    def _assign(self, target: str, value: Value) -> None:
        name, place, view = re.fullmatch(r"(\w+)(?:\.\w+)?(\[.*\])?(?:\.(\w+))?", target).groups()  # type: ignore[union-attr]
        if place is None:
            kind = re.fullmatch(r"\w+\.([ubif])(\d+)", target)
            self.variables[name] = value.seen(kind[1], int(kind[2])) if kind else value
            return
        del view
        held = self.variables.get(name, Value(0, 64))
        high, _, low = place.strip("[]").partition(":")
        top = int(self.value(high).number)
        bottom = int(self.value(low).number) if low else top
        mask = (1 << top - bottom + 1) - 1
        self.variables[name] = Value(held.bits & ~(mask << bottom) | (value.bits & mask) << bottom, 64)

    def value(self, text: str) -> Value:
        """Return what an expression comes to."""
        saved = self._tokens, self._at
        self._tokens, self._at = [], 0
        rest = text.strip()
        while rest:
            found = TOKEN.match(rest)
            assert found is not None, rest
            self._tokens.append(found[0].strip())
            rest = rest[found.end() :].strip()
        result = self._choice()
        assert self._at == len(self._tokens), text
        self._tokens, self._at = saved
        return result

    def _next(self, wanted: str | None = None) -> str:
        token = self._tokens[self._at]
        assert wanted is None or token == wanted, (wanted, self._tokens)
        self._at += 1
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _choice(self) -> Value:
        condition = self._level(0)
        if self._peek() != "?":
            return condition
        self._next()
        yes = self._choice()
        self._next(":")
        no = self._choice()
        return yes if condition.bits else no

    def _level(self, level: int) -> Value:
        if level == len(LEVELS):
            return self._unary()
        value = self._level(level + 1)
        while self._peek() in LEVELS[level]:
            value = self._binary(self._next(), value, self._level(level + 1))
        return value

    def _binary(self, operator: str, a: Value, b: Value) -> Value:
        if operator in ("&&", "||"):
            return Value(bool(a.bits) & bool(b.bits) if operator == "&&" else bool(a.bits) | bool(b.bits), 1)
        if operator in ("==", "!=", "<>", "<", "<=", ">", ">="):
            return Value(_compared(operator, a, b), 1)
        with np.errstate(all="ignore"):
            if operator == "**":
                return _power(a, b)
            if a.kind == "exponent":
                a, b = b, a
            if b.kind == "exponent":
                power = max(-5000, min(5000, b.seen("i", 32).number))
                return of_float(np.ldexp(np.float64(a.number), power), a.width)
            if a.kind == "f" and b.kind == "f":
                width = max(a.width, b.width)
                x, y = FLOATS[width](a.number), FLOATS[width](b.number)
                return of_float(
                    {"+": x + y, "-": x - y, "*": x * y, "/": x / y if operator == "/" else x}[operator], width
                )
        if operator == "<<":
            return Value(a.bits << int(b.number), a.width, a.kind)
        if operator == ">>":
            return Value(a.number >> int(b.number), a.width, a.kind)
        width, kind = max(a.width, b.width), "i" if a.kind == b.kind == "i" else "u"
        x, y = a.number, b.number
        results: dict[str, Callable[[], int]] = {
            "+": lambda: x + y,
            "-": lambda: x - y,
            "*": lambda: x * y,
            "%": lambda: x % y,
            "/": lambda: x // y,
            "&": lambda: x & y,
            "|": lambda: x | y,
            "^": lambda: x ^ y,
        }
        return Value(results[operator](), width, kind)

    def _unary(self) -> Value:
        if self._peek() in ("~", "!", "-", "+"):
            operator, value = self._next(), self._unary()
            if operator == "+":
                return value
            if operator == "!":
                return Value(not value.bits, 1)
            if value.kind == "f":
                return Value(value.bits ^ 1 << value.width - 1, value.width, "f", value.literal)
            return Value(~value.bits if operator == "~" else -value.number, value.width, value.kind)
        return self._postfix(self._primary())

    def _postfix(self, value: Value) -> Value:
        while self._peek() in (".", "["):
            if self._next() == ".":
                if self._peek() == "bf16":
                    self._next()
                    value = Value(value.bits << 16, 32, "f")
                    continue
                found = re.fullmatch(r"([ubif])(\d+)", self._next())
                assert found is not None
                value = value.seen(found[1], int(found[2]))
                continue
            high = self._choice()
            low = high
            if self._peek() == ":":
                self._next()
                low = self._choice()
            self._next("]")
            top, bottom = int(high.number), int(low.number)
            if top < bottom:  # the bits in the other direction
                width = bottom - top + 1
                value = Value(int(f"{value.bits >> top & (1 << width) - 1:0{width}b}"[::-1], 2), width)
                continue
            value = Value(value.bits >> bottom, top - bottom + 1)
        return value

    def _primary(self) -> Value:
        token = self._next()
        if token == "(":
            value = self._choice()
            self._next(")")
            return value
        if token == "{":
            parts = self._list("}")
            bits, width = 0, 0
            for part in parts:
                bits, width = bits << part.width | part.bits, width + part.width
            return Value(bits, width, literal=True)
        if found := re.fullmatch(r"(\d+)'([UIBF])", token):
            self._next("(")
            value = self._choice()
            self._next(")")
            return _cast(value, int(found[1]), found[2])
        if found := re.fullmatch(r"(\d+)'(\d+\.\d+)", token):
            value = of_float(float(found[2]), int(found[1]))
            return Value(value.bits, value.width, "f", literal=True)
        if found := re.fullmatch(r"(\d+)'(0x[0-9a-fA-F]+|\d+)[UIB]?", token):
            return Value(int(found[2], 0), int(found[1]))
        if re.fullmatch(r"\d+\.\d+F?", token):
            value = of_float(float(token.rstrip("F")), 32 if token.endswith("F") else 64)
            return Value(value.bits, value.width, "f", literal=True)
        if found := re.fullmatch(r"(0x[0-9a-fA-F]+|\d+)(ULL|LL|UL|U|L)?", token):
            suffix = found[2] or ""
            width, kind = 64 if "LL" in suffix else 32, "u" if "U" in suffix else "i"
            return Value(int(found[1], 0), width, kind, literal=found[1].startswith("0x"))
        if self._peek() == "(":
            self._next()
            return self._call(token, self._list(")"))
        if token in CONSTANTS and self._peek() == ".":
            self._next()
            return of_float(CONSTANTS[token], int(self._next().lstrip("f")))
        if token in CONSTANTS:
            return of_float(CONSTANTS[token], 64)
        if token.endswith(("FLOW_F32", "FLOW_F64")):
            return of_float(0.0 if token.startswith("UNDER") else math.inf, int(token[-2:]))
        return Value(1, 1) if token == "WAVE_MODE" and self._skip_member() else self.variables[token]

    def _skip_member(self) -> bool:
        self._next(".")
        self._next()
        return True

    def _list(self, end: str) -> list[Value]:
        values = [self._choice()]
        while self._peek() == ",":
            self._next()
            values.append(self._choice())
        self._next(end)
        return values

    def _call(self, name: str, arguments: list[Value]) -> Value:
        with np.errstate(all="ignore"):
            if name in FUNCTIONS:
                return FUNCTIONS[name](*arguments)
        inner = Evaluator({f"S{number}": Value(v.bits, 64) for number, v in enumerate(arguments)}, self._others)
        inner.run(self._others[name])
        return inner.variables["D0"].seen(arguments[0].kind, arguments[0].width)


def _power(a: Value, b: Value) -> Value:
    """Return two to a power as its exponent alone, which `*` takes."""
    assert a.number == 2
    return Value(b.bits, 32, "exponent")


def _cast(value: Value, width: int, kind: str) -> Value:
    if value.kind == "exponent":
        return value
    if kind == "F" and value.literal and value.kind != "f":  # bits written out, or put together
        return Value(value.bits, width, "f")
    if kind == "F":
        return of_float(value.number, width)
    return Value(value.number, width, {"U": "u", "I": "i", "B": "u"}[kind])


def _compared(operator: str, a: Value, b: Value) -> bool:
    x, y = a.number, b.number
    if "f" in (a.kind, b.kind):
        if (a.literal or b.literal) and x == 0 and y == 0 and operator == "==":
            return np.signbit(x) == np.signbit(y)  # `+0.0` and `-0.0` are told apart in these texts
        if operator == "<>":
            return bool(x < y or x > y)
    elif a.kind != b.kind:
        width = max(a.width, b.width)
        x, y = x & (1 << width) - 1, y & (1 << width) - 1
    results = {"==": x == y, "!=": x != y, "<>": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}
    return bool(results[operator])
