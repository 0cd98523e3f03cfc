"""Reading words, types and attribute values of the text form; the grammar of kernels stands on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from kinfolk.errors import IRError
from kinfolk.ir.op import Attribute
from kinfolk.ir.text.lexer import Kind, Word, place, stop, unquoted, words
from kinfolk.ir.types import SCALARS, BufferType, PointerType, ScalarType, Type, VectorType, ViewType


class Reader:
    """A place in a text. Errors are `IRError`s with line and column, what stands there and what was expected."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = words(text)
        self._next: int = 0

    # Words

    @property
    def _word(self) -> Word:
        return self._words[self._next]

    def _stop(self, expected: str, word: Word | None = None) -> NoReturn:
        stop(self._text, word or self._word, expected)

    def _refuse(self, word: Word, message: str) -> NoReturn:
        raise IRError(f"{place(self._text, word)}: {message}")

    def _take(self, kind: Kind, expected: str) -> Word:
        word = self._word
        if word.kind != kind:
            self._stop(expected)
        self._next += 1
        return word

    def _has(self, text: str) -> bool:
        """Step over a sign or name if it stands here, and say whether it did."""
        found = self._word.text == text and self._word.kind in ("sign", "name")
        self._next += int(found)
        return found

    def _sign(self, text: str) -> Word:
        word = self._word
        if not self._has(text):
            self._stop(repr(text))
        return word

    def _string(self, expected: str) -> str:
        return unquoted(self._text, self._take("string", expected))

    def _several(self, closing: str, item: Callable[[], object]) -> None:
        """Read items separated by commas up to a closing sign."""
        if self._has(closing):
            return
        item()
        while not self._has(closing):
            if not self._has(","):
                self._stop(f"',' or {closing!r}")
            item()

    def _integer(self, expected: str) -> int:
        text = self._take("number", expected).text
        return int(text, 16 if "0x" in text else 10)

    # Types

    def _type(self) -> Type:
        word = self._word
        if word.kind == "name" and word.text in SCALARS:
            self._next += 1
            return SCALARS[word.text]
        if word.kind == "name" and word.text == "vector":
            self._next += 1
            return VectorType(*self._counted("vector"))
        if word.kind != "type":
            self._stop(f"a type: {', '.join(SCALARS)}, vector<…>, !core.ptr<…>, !core.view<…> or !core.buffer<…>")
        self._next += 1
        if word.text == "!core.buffer":
            return BufferType(*self._counted("buffer"))
        if word.text not in ("!core.ptr", "!core.view"):
            self._stop("!core.ptr, !core.view or !core.buffer", word)
        self._sign("<")
        element = self._element(self._take("name", "the element type").text)
        if word.text == "!core.view":
            self._sign(">")
            return ViewType(element)
        self._sign(",")
        for space in ("global", "workgroup"):
            if self._has(space):
                self._sign(">")
                return PointerType(element, space)
        return self._stop("an address space: global or workgroup")

    def _counted(self, what: str) -> tuple[ScalarType, int]:
        """Read `<512xbf16>`."""
        self._sign("<")
        word = self._take("number", f"how many elements the {what} has")
        if not word.text.isdecimal() or int(word.text) < 1:
            self._stop(f"how many elements the {what} has, at least one", word)
        name = self._take("name", "'x' and the element type").text
        if not name.startswith("x"):
            self._back("'x' and the element type")
        element = self._element(name[1:])
        self._sign(">")
        return element, int(word.text)

    def _element(self, name: str) -> ScalarType:
        if name not in SCALARS:
            self._back(f"an element type: {', '.join(SCALARS)}")
        return SCALARS[name]

    def _back(self, expected: str) -> NoReturn:
        """Stop at the word before this one."""
        self._stop(expected, self._words[self._next - 1])

    def _types(self) -> tuple[Type, ...]:
        types: list[Type] = []
        self._sign("(")
        self._several(")", lambda: types.append(self._type()))
        return tuple(types)

    # Attributes

    def _literal(self) -> tuple[Attribute, int]:
        """Read one attribute value; an integer comes with its width."""
        word = self._word
        if self._has("true"):
            return True, 0
        if self._has("false"):
            return False, 0
        if word.kind == "string":
            return self._string("a string"), 0
        if word.kind == "number":
            return self._typed_integer()
        if self._has("array"):
            return self._integers(), 0
        type_ = self._type()
        if not isinstance(type_, (ScalarType, VectorType)):
            self._stop(
                "an attribute: true, false, an integer, a string, array<i64: …>, a scalar or a vector type", word
            )
        return type_, 0

    def _typed_integer(self) -> tuple[int, int]:
        word = self._word
        value = self._integer("an integer")
        type_: Type = SCALARS["i64"]
        if self._has(":"):
            type_ = self._type()
        if not isinstance(type_, ScalarType) or type_.kind != "int":
            self._back("an integer type")
        if not -(1 << (type_.bits - 1)) <= value < 1 << type_.bits:
            self._stop(f"a number that {type_} can hold", word)
        return value, type_.bits

    def _integers(self) -> tuple[int, ...]:
        items: list[int] = []
        self._sign("<")
        self._sign("i64")
        if self._has(":"):
            items.append(self._i64())
            while self._has(","):
                items.append(self._i64())
        self._sign(">")
        return tuple(items)

    def _i64(self) -> int:
        value = self._integer("an integer")
        if not -(1 << 63) <= value < 1 << 63:
            self._back("a number that a signed i64 can hold")
        return value

    def _dictionary(self, read: Callable[[str], object]) -> dict[str, object]:
        """Read `{name = value, …}`; `read` reads the value of a name."""
        items: dict[str, object] = {}

        def item() -> None:
            word = self._take("name", "an attribute's name")
            if word.text in items:
                self._stop("an attribute that is not given twice", word)
            self._sign("=")
            items[word.text] = read(word.text)

        self._sign("{")
        self._several("}", item)
        return items

    def _attribute(self, bits: bool = False) -> Attribute:
        """Read one attribute value; its integer is an i64, or, where `bits`, one of any width read as unsigned."""
        word = self._word
        value, width = self._literal()
        if bits and isinstance(value, int):
            return value & ((1 << max(width, 1)) - 1)
        if width and width != 64:
            self._stop("an integer of type i64", word)
        if width and isinstance(value, int) and value >= 1 << 63:
            self._stop("a number that a signed i64 can hold", word)
        return value
