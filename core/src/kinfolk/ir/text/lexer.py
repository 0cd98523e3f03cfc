"""The words of the text form, each with where it stands."""

from __future__ import annotations

import re
from typing import Literal, NoReturn

import attrs

from kinfolk.errors import IRError

Kind = Literal["string", "value", "label", "type", "name", "number", "sign", "end"]

_WORD = re.compile(
    r"""(?P<space>(?:\s+|//[^\n]*)+)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<value>%[A-Za-z0-9_.$-]+)
    |(?P<label>\^[A-Za-z0-9_.$-]+)
    |(?P<type>![A-Za-z_][A-Za-z0-9_.]*)
    |(?P<name>[A-Za-z_][A-Za-z0-9_.$]*)
    |(?P<number>-?(?:0x[0-9A-Fa-f]+|[0-9]+))
    |(?P<sign>->|[(){}\[\]<>:,=])""",
    re.VERBOSE | re.ASCII,
)
LONGEST_NUMBER = 40


@attrs.frozen
class Word:
    """One word of the text, of a kind, at an offset."""

    kind: Kind
    text: str
    offset: int


def words(text: str) -> list[Word]:
    """Return the words of a text and an `end` after them; raise `IRError` at a character that starts none."""
    found: list[Word] = []
    offset = 0
    while offset < len(text):
        match = _WORD.match(text, offset)
        if match is None:
            stop(text, Word("sign", text[offset], offset), "a word of the text form")
        if match.lastgroup == "number" and len(match.group()) > LONGEST_NUMBER:
            stop(text, Word("number", match.group(), offset), f"a number of at most {LONGEST_NUMBER} characters")
        if match.lastgroup != "space":
            found.append(Word(match.lastgroup, match.group(), offset))  # pyright: ignore[reportArgumentType]
        offset = match.end()
    found.append(Word("end", "", len(text)))
    return found


def stop(text: str, word: Word, expected: str) -> NoReturn:
    """Raise `IRError`: where `word` stands, that it was found, and what was expected there."""
    found = "the end of the text" if word.kind == "end" else _short(word.text)
    raise IRError(f"{place(text, word)}: found {found}, expected {expected}")


def place(text: str, word: Word) -> str:
    """Return the line and column of a word, both counted from 1."""
    line = text.count("\n", 0, word.offset) + 1
    column = word.offset - (text.rfind("\n", 0, word.offset) + 1) + 1
    return f"kernel text, line {line}, column {column}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def unquoted(text: str, word: Word) -> str:
    """Return what a string literal holds; raise `IRError` for an unknown escape or bytes that are not UTF-8."""
    data = bytearray()
    inner = word.text[1:-1].encode(errors="surrogatepass")
    position = 0
    while position < len(inner):
        byte = inner[position]
        position += 1
        if byte != ord("\\"):
            data.append(byte)
            continue
        plain = _ESCAPES.get(inner[position])
        if plain is not None:
            data.append(plain)
            position += 1
        elif re.fullmatch(rb"[0-9A-Fa-f]{2}", inner[position : position + 2]):
            data.append(int(inner[position : position + 2], 16))
            position += 2
        else:
            stop(text, word, r"a string whose escapes are \\, \", \n, \t or two hex digits")
    try:
        return data.decode()
    except UnicodeDecodeError:
        stop(text, word, "a string of UTF-8 bytes")


_ESCAPES = {ord("\\"): ord("\\"), ord('"'): ord('"'), ord("n"): ord("\n"), ord("t"): ord("\t")}
