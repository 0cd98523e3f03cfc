"""The text form: there and back without loss, read by xDSL too, equal in every process; anything else is an error."""

import hashlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, IntegerAttr
from xdsl.parser import Parser
from xdsl.printer import Printer

from kinfolk.errors import IRError
from kinfolk.ir import verify
from kinfolk.ir.ops import CORE_OPS
from kinfolk.ir.text import kernel_digest, parse_kernel, print_kernel

NAMES = ("every_op", "every_op_of_32_lanes", "constants", "nested")


def structure(kernel):
    """All that a kernel is but for locations, as nested tuples; values by the order they are defined in."""
    numbers = {}

    def region(r):
        for argument in r.arguments:
            numbers[argument] = len(numbers)
        return ([a.type for a in r.arguments], [operation(op) for op in r.operations])

    def operation(op):
        operands = [numbers[value] for value in op.operands]
        regions = [region(r) for r in op.regions]
        for result in op.results:
            numbers[result] = len(numbers)
        kinds = {name: (type(value), value) for name, value in op.attributes.items()}
        return (op.definition, operands, kinds, [r.type for r in op.results], regions)

    head = (kernel.name, kernel.parameters, kernel.block, kernel.wave_size, dict(kernel.attributes))
    return head, region(kernel.body)


@pytest.fixture(params=NAMES)
def sample(request, samples):
    return samples.KERNELS[request.param]()


def test_the_samples_hold_every_portable_op(samples):
    assert {op.name for op in samples.every_op().walk()} == {op.name for op in CORE_OPS}


def test_text_is_parsed_back_to_the_same_kernel_and_the_same_bytes(sample):
    text = print_kernel(sample)
    back = parse_kernel(text, CORE_OPS)
    assert structure(back) == structure(sample)
    assert print_kernel(back) == text


def test_the_comparison_of_structures_sees_one_changed_bit(samples):
    """Negative control of the test above."""
    text = print_kernel(samples.constants())
    changed = text.replace("0x7F800001 : i32", "0x7F800003 : i32")
    assert structure(parse_kernel(changed, CORE_OPS)) != structure(samples.constants())


def in_xdsl(text):
    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def core_ops(text):
    """The operations inside the kernel as xDSL has them."""
    ops = [op for op in in_xdsl(text).walk() if hasattr(op, "op_name")]
    assert ops[0].op_name.data == "core.kernel"
    return ops[1:]


def printed_by_xdsl(module):
    stream = io.StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    return stream.getvalue()


def test_xdsl_reads_it_and_what_xdsl_prints_is_the_same_kernel(sample):
    text = print_kernel(sample)
    theirs = printed_by_xdsl(in_xdsl(text))
    assert theirs != text, "xDSL prints integers its own way; a copy of our text would test nothing"
    assert print_kernel(parse_kernel(theirs, CORE_OPS)) == text


def test_xdsl_finds_the_ops_operands_and_bits_that_we_wrote(samples):
    """xDSL's own reading, compared with the kernel and not with our parser."""
    kernel = samples.every_op()
    ops = core_ops(print_kernel(kernel))
    ours = list(kernel.walk())
    assert [op.op_name.data for op in ops] == [op.name for op in ours]
    assert [len(op.operands) for op in ops] == [len(op.operands) for op in ours]
    assert [[str(r.type) for r in op.results] for op in ops] == [[str(r.type) for r in op.results] for op in ours]
    for theirs, op in zip(ops, ours, strict=True):
        assert [name for name in theirs.attributes if name != "op_name__"] == list(op.attributes)
    constants = core_ops(print_kernel(samples.constants()))[:-1]
    expected = [bits for patterns in samples.CONSTANTS.values() for bits in patterns]
    found = [op.attributes["bits"] for op in constants]
    assert all(isinstance(bits, IntegerAttr) for bits in found)
    assert [bits.value.data % (1 << bits.type.width.data) for bits in found] == expected


def test_the_digest_is_the_sha256_of_the_text(sample):
    assert kernel_digest(sample) == hashlib.sha256(print_kernel(sample).encode()).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_processes_with_other_hash_seeds_print_the_same_bytes(name):
    script = str(Path(__file__).with_name("ir_samples.py"))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    printed = {
        subprocess.run(
            [sys.executable, script, name],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4294967295")
    }
    assert len(printed) == 1 and printed.pop().startswith(b'"builtin.module"')


def test_the_text_names_no_source_file(samples):
    text = print_kernel(samples.every_op())
    assert "ir_samples" not in text and "loc" not in text.replace("core.block_id", "").replace("allocate", "").replace(
        '"block"', ""
    ).replace("block = ", "")


def test_a_parsed_operation_is_located_at_its_line(samples):
    text = print_kernel(samples.nested())
    for operation in parse_kernel(text, CORE_OPS).walk():
        ((path, line),) = operation.location.frames
        assert path == "kernel text" and f'"{operation.name}"' in text.splitlines()[line - 1]


SMALL = """"builtin.module"() ({
  "core.kernel"() ({
  ^bb0(%p: !core.ptr<f32, global>, %n: i32):
    %a = "core.constant"() {to = i32, bits = 0x00000005 : i32} : () -> i32
    %b = "core.add"(%n, %a) {nsw = true} : (i32, i32) -> i32
    %c = "core.for"(%a, %b, %a, %n) ({
    ^bb0(%i: i32, %x: i32):
      "core.yield"(%i) : (i32) -> ()
    }) : (i32, i32, i32, i32) -> i32
    %q = "core.offset"(%p, %c) : (!core.ptr<f32, global>, i32) -> !core.ptr<f32, global>
    "core.return"() : () -> ()
  }) {sym_name = "k", block = 64 : i64, wave_size = 64 : i64, parameters = [
    {name = "p", access = "read", alignment = 4 : i64},
    {name = "n", access = "read", alignment = 0 : i64}], attributes = {}} : () -> ()
}) : () -> ()
"""


def test_names_comments_space_and_order_of_attributes_are_free():
    ugly = SMALL.replace("\n", "   // a comment\n").replace("%a", "%some-name.1").replace("%c", "%0")
    ugly = ugly.replace("{to = i32, bits = 0x00000005 : i32}", "{bits\n=5:i32,\nto=i32}")
    assert print_kernel(parse_kernel(ugly, CORE_OPS)) == print_kernel(parse_kernel(SMALL, CORE_OPS))


WRONG = [
    # what is replaced, by what, the text at which the error is, what was found, what was expected
    ('"core.add"', '"core.ad"', '"core.ad"', "found '\"core.ad\"'", "expected an op of the table: core.add,"),
    ("(%n, %a) {nsw", "(%n, %z) {nsw", "%z", "found '%z'", "expected a value that is defined above and visible here"),
    ("(%p, %c)", "(%p, %x)", "%x) : (!core", "found '%x'", "expected a value that is defined above and visible here"),
    ("%b = ", "%a = ", '%a = "core.add', "found '%a'", "expected a name that no value has yet"),
    ("%b = ", "%b, %d = ", '"core.add', "core.add gives 1 values, 2 are named", ""),
    ("nsw = true", "nsw = 1 : i64", '"core.add', "attribute nsw is of kind bool, got 1", ""),
    (
        "nsw = true",
        "nsw = true, nsw = true",
        "nsw = true}",
        "found 'nsw'",
        "expected an attribute that is not given twice",
    ),
    ("nsw = true", "wrap = true", '"core.add', "core.add has no attribute wrap; it has: nsw", ""),
    ("nsw = true", "nsw true", "true}", "found 'true'", "expected '='"),
    ("nsw = true", "nsw = true,", "} : (i32, i32) -> i32", "found '}'", "expected an attribute's name"),
    ("0x00000005 : i32", "0x100000005 : i32", "0x1", "found '0x100000005'", "expected a number that i32 can hold"),
    ("0x00000005 : i32", "0x00000005 : f32", "f32}", "found 'f32'", "expected an integer type"),
    ("0x00000005 : i32", "5 : i32, other = true", '"core.const', "core.constant has no attribute other", ""),
    ("{to = i32, bits = 0x00000005", "{to = i1, bits = 0x2", '"core.const', "0x2 has more bits than i1", ""),
    (
        ": (i32, i32) -> i32",
        ": (i32, i64) -> i32",
        "(i32, i64)",
        "found '('",
        "expected the operands' types (i32, i32)",
    ),
    (": (i32, i32) -> i32", ": (i32, i32) -> i64", '"core.add', "core.add gives i32, it is written as i64", ""),
    (
        "(%n, %a) {nsw = true} : (i32, i32)",
        "(%n) {nsw = true} : (i32)",
        '"core.add',
        "takes 2 operands (a, b), got 1",
        "",
    ),
    ("!core.ptr<f32, global>, %n", "!core.ptr<f32, local>, %n", "local", "found 'local'", "global or workgroup"),
    (
        "!core.ptr<f32, global>, %n",
        "!core.pointer<f32>, %n",
        "!core.pointer",
        "found '!core.pointer'",
        "!core.ptr, !core.view",
    ),
    ("!core.ptr<f32, global>, %n", "vector<0xf32>, %n", "0xf32", "found '0xf32'", "expected how many elements"),
    ("!core.ptr<f32, global>, %n", "vector<4xf31>, %n", "xf31", "found 'xf31'", "expected an element type"),
    ('"k"', "5 : i64", '"core.kernel"', "core.kernel needs attribute sym_name, of kind str", ""),
    ('sym_name = "k", ', "", '"core.kernel"', "core.kernel needs attribute sym_name", ""),
    ("attributes = {}", "extra = {}", "extra", "found 'extra'", "expected one of sym_name, block"),
    ("alignment = 4", "alignment = 3", '{name = "p"', "parameter p declares alignment 3", ""),
    ('access = "read", alignment = 4', 'access = "own", alignment = 4', '{name = "p"', "access of p is 'own'", ""),
    ("%i: i32, %x", "%i i32, %x", "i32, %x", "found 'i32'", "expected ':'"),
    ("}) : () -> ()\n", "}) : () -> ()\n{ ", "{ ", "found '{'", "expected the end of the text"),
    ("\n}) : () -> ()\n", "", "", "found the end of the text", "expected '}'"),
    ('"core.return"', '"core.return', '"core.return', "found '\"'", "expected a word of the text form"),
    ('"k"', r'"\q"', r'"\q', "found", r"expected a string whose escapes are"),
    ('"k"', r'"\FF"', r'"\FF', "found", "expected a string of UTF-8 bytes"),
    ("0x00000005", "9" * 41, "99", "found '9", "expected a number of at most 40 characters"),
    ("^bb0(%p", "^bb0 %p", "%p:", "found '%p'", "expected ':'"),
]


@pytest.mark.parametrize("old, new, at, found, expected", WRONG, ids=[f"{row[0][:20]}-{row[1][:20]}" for row in WRONG])
def test_an_error_names_line_column_what_was_found_and_what_was_expected(old, new, at, found, expected):
    start = SMALL.rindex(old) if "\n" in old else SMALL.index(old)
    text = SMALL[:start] + new + SMALL[start + len(old) :]
    before = (text[: text.index(at)] if at else text).split("\n")
    if new.endswith("{ "):
        before = text[: text.rindex(at)].split("\n")
    with pytest.raises(IRError) as caught:
        parse_kernel(text, CORE_OPS)
    message = str(caught.value)
    assert message.startswith(f"kernel text, line {len(before)}, column {len(before[-1]) + 1}: ")
    assert found in message and expected in message


def test_a_rule_of_the_whole_kernel_is_checked_too():
    with pytest.raises(IRError, match=r"core\.offset: a region ends in exactly one return \(at kernel text:10\)"):
        parse_kernel(SMALL.replace('    "core.return"() : () -> ()\n', ""), CORE_OPS)


def test_nesting_has_a_limit_and_stays_an_error_past_it():
    def nested(depth):
        nothing = '"core.yield"() : () -> ()'
        line = f'"core.if"(%t) ({{ INNER {nothing} }}, {{ {nothing} }}) {{cold = false}} : (i1) -> ()'
        inner = ""
        for _ in range(depth):
            inner = line.replace("INNER", inner)
        constant = '%t = "core.constant"() {to = i1, bits = 1 : i1} : () -> i1\n'
        return SMALL.replace('    "core.return"', constant + inner + '    "core.return"')

    verify(parse_kernel(nested(63), CORE_OPS))
    with pytest.raises(IRError, match="regions nested at most 64 deep"):
        parse_kernel(nested(64), CORE_OPS)
    with pytest.raises(IRError, match="regions nested at most 64 deep"):
        parse_kernel(nested(3000), CORE_OPS)


@given(st.text(st.characters(codec="utf-8"), max_size=30))
@settings(deadline=None, max_examples=100, database=None)
def test_any_text_of_an_attribute_survives(samples, text):
    def body(x):
        samples.memory.load(x, scope=text)

    kernel = samples.kernel(body, samples.pointer("x", samples.F32), attributes={"note": text})
    written = print_kernel(kernel)
    assert written.isascii()
    back = parse_kernel(written, CORE_OPS)
    assert back.attributes["note"] == text
    assert [op.attributes["scope"] for op in back.walk() if op.name == "core.load"] == [text]
    (load,) = (op for op in core_ops(written) if op.op_name.data == "core.load")
    theirs = load.attributes["scope"].data
    assert (theirs.decode() if isinstance(theirs, bytes) else theirs) == text


def test_text_that_utf8_cannot_hold_is_refused(samples):
    kernel = samples.kernel(lambda: None, attributes={"note": "\ud800"})
    with pytest.raises(IRError, match="UTF-8 cannot hold"):
        print_kernel(kernel)


PIECES = [
    *(
        '"core.add"',
        '"core.for"',
        '"core.if"',
        '"core.pack"',
        '"core.yield"',
        '"core.return"',
        '"core.kernel"',
        '"core.splat"',
    ),
    *(
        "%a",
        "%0",
        "%99",
        "^bb0",
        "(",
        ")",
        "({",
        "})",
        "{",
        "}",
        "<",
        ">",
        ",",
        ":",
        "=",
        "->",
        "[",
        "]",
        '"',
        "\\",
        "!",
    ),
    *(
        "i32",
        "f32",
        "vector<4xf32>",
        "vector<0xf32>",
        "!core.ptr<f32, global>",
        "!core.view<i8>",
        "!core.buffer<-1xf32>",
    ),
    *(
        "-1",
        "0x",
        "0xFFFFFFFFFFFFFFFFFF : i64",
        "9" * 50,
        "true",
        "array<i64: 1, 2>",
        "to = vector<2xi8>",
        "\0",
        "é",
        "\n",
    ),
]
WORDS = re.compile(r'"[^"]*"|[%^!]?[\w.]+|\s+|.', re.DOTALL)


@st.composite
def mutations(draw, texts):
    """A text with a few words dropped, doubled, exchanged or replaced."""
    words = WORDS.findall(draw(st.sampled_from(texts)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(words) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                del words[at : at + draw(st.integers(1, 3))]
            case 1:
                words.insert(at, words[draw(st.integers(0, len(words) - 1))])
            case 2:
                words[at] = draw(st.sampled_from(PIECES))
            case _:
                other = draw(st.integers(0, len(words) - 1))
                words[at], words[other] = words[other], words[at]
        if not words:
            break
    return "".join(words)


@pytest.fixture(scope="session")
def texts(samples):
    return [SMALL, *(print_kernel(build()) for build in samples.KERNELS.values())]


@given(st.data())
@settings(
    deadline=None,
    max_examples=400,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_damaged_text_is_an_ir_error_or_a_kernel_that_keeps_every_rule(texts, data):
    text = data.draw(mutations(texts))
    try:
        kernel = parse_kernel(text, CORE_OPS)
    except IRError:
        return
    verify(kernel)
    assert parse_kernel(print_kernel(kernel), CORE_OPS).name == kernel.name


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join)))
@settings(deadline=None, max_examples=300, database=None)
def test_any_text_at_all_is_an_ir_error(text):
    with pytest.raises(IRError):
        parse_kernel(text, CORE_OPS)
