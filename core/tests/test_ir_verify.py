"""The verifier and the builder: each rule broken once, each message naming the op and the line that built it."""

import re
from pathlib import Path

import attrs
import pytest

from kinfolk.errors import IllegalOp, InternalError, IRError
from kinfolk.ir import OpDef, Operation, Region, verify
from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.ops import CORE_OPS, arithmetic, control, lanes, memory
from kinfolk.ir.rules import same_integer
from kinfolk.ir.types import F32, I32, I64, BufferType

HERE = f"{Path(__file__).parent.name}/{Path(__file__).name}"


@pytest.fixture
def sample(samples):
    """A fresh kernel with a loop, a branch, memory and constants, and its operations by name."""

    def body(x, y, n):
        tile = memory.allocate(F32, 64)
        thread = lanes.thread_id()
        memory.workgroup_store(tile, thread, memory.load(memory.offset(x, thread)))
        control.barrier()

        def step(i, carried):
            value = memory.workgroup_load(tile, i)
            (value,) = control.if_else(value > 0.0, lambda: [value], lambda: [value * 2.0])
            return [carried[0] + value]

        first = memory.workgroup_load(tile, thread)
        (total,) = control.for_range(0, n, 1, [first], step)
        memory.store(memory.offset(y, thread), lanes.shuffle_xor(total, mask=16))

    parameters = (samples.pointer("x", F32), samples.pointer("y", F32, "write"), samples.number("n"))
    kernel = samples.kernel(body, *parameters)
    verify(kernel)
    return kernel


def first(kernel, name):
    return next(op for op in kernel.walk() if op.name == name)


def place(region, op):
    return region.operations.index(op)


def remove(kernel, name):
    kernel.body.operations.remove(first(kernel, name))


def undefined_operand(kernel):
    remove(kernel, "core.thread_id")


def used_before_it_is_defined(kernel):
    operations = kernel.body.operations
    operations.append(operations.pop(place(kernel.body, first(kernel, "core.thread_id"))))
    operations.append(operations.pop(-2))  # the terminator stays last


def a_value_of_a_loop_used_outside(kernel):
    inner = first(kernel, "core.for").regions[0].operations[0].results[0]
    store = first(kernel, "core.store")
    store.operands = (store.operands[0], inner)


def wrong_result_type(kernel):
    first(kernel, "core.thread_id").results[0].type = I64


def too_few_operands(kernel):
    store = first(kernel, "core.store")
    store.operands = store.operands[:1]


def unknown_attribute(kernel):
    first(kernel, "core.load").attributes["volatile"] = True


def missing_attribute(kernel):
    del first(kernel, "core.load").attributes["invariant"]


def wrong_kind_of_attribute(kernel):
    first(kernel, "core.load").attributes["count"] = True


def attribute_outside_its_choices(kernel):
    first(kernel, "core.fcmp").attributes["predicate"] = "ueq"


def wrong_alignment(kernel):
    first(kernel, "core.load").attributes["alignment"] = 2


def no_terminator(kernel):
    kernel.body.operations.pop()


def two_terminators(kernel):
    kernel.body.operations.append(Operation(CORE_OPS["core.return"], (), {}, ()))


def return_in_a_loop(kernel):
    first(kernel, "core.for").regions[0].operations[-1] = Operation(CORE_OPS["core.return"], (), {}, ())


def an_empty_region(kernel):
    first(kernel, "core.for").regions[0].operations.clear()


def an_empty_branch(kernel):
    first(kernel, "core.if").regions[1].operations.clear()


def allocate_in_a_loop(kernel):
    operations = first(kernel, "core.for").regions[0].operations
    attributes = {"element": F32, "count": 4}
    operations.insert(0, Operation(CORE_OPS["core.allocate"], (), attributes, (BufferType(F32, 4),)))


def branches_disagree(kernel):
    branch = first(kernel, "core.if").regions[0]
    branch.operations[-1].operands = ()


def a_branch_with_arguments(kernel):
    branch = first(kernel, "core.if")
    replaced = Region((I32,))
    replaced.operations = branch.regions[0].operations
    branch.regions = (replaced, branch.regions[1])


def a_branch_too_many(kernel):
    branch = first(kernel, "core.if")
    branch.regions = (*branch.regions, Region())


def loop_yields_another_type(kernel):
    region = first(kernel, "core.for").regions[0]
    region.operations[-1].operands = (region.arguments[0],)


def loop_takes_another_type(kernel):
    loop = first(kernel, "core.for")
    loop.regions[0].arguments[1].type = I32
    loop.regions[0].operations[-1].operands = (loop.regions[0].arguments[1],)
    loop.regions[0].operations[:-1] = []


def an_operation_twice(kernel):
    kernel.body.operations.insert(0, first(kernel, "core.thread_id"))


def lane_past_the_wave(kernel):
    first(kernel, "core.shuffle_xor").attributes["mask"] = 64


BROKEN = [
    (undefined_operand, "core.offset", "operand 1 is used where its value is not defined"),
    (used_before_it_is_defined, "core.offset", "operand 1 is used where its value is not defined"),
    (a_value_of_a_loop_used_outside, "core.store", "operand 1 is used where its value is not defined"),
    (wrong_result_type, "core.thread_id", "gives i32, it is written as i64"),
    (too_few_operands, "core.store", r"takes 2 operands \(pointer, value\), got 1"),
    (unknown_attribute, "core.load", "core.load has no attribute volatile; it has: count, alignment, invariant, scope"),
    (missing_attribute, "core.load", "lacks attribute invariant"),
    (wrong_kind_of_attribute, "core.load", "attribute count is of kind int, got True"),
    (attribute_outside_its_choices, "core.fcmp", "attribute predicate is 'ueq', one of oeq, une"),
    (wrong_alignment, "core.load", "alignment 2 is no power of two of at least 4"),
    (no_terminator, "core.store", "a region ends in exactly one return"),
    (two_terminators, "core.return", "a region ends in exactly one return"),
    (return_in_a_loop, "core.return", "a region ends in exactly one yield"),
    (an_empty_region, None, "a region is empty; it ends in yield"),
    (an_empty_branch, "core.if", "a branch is empty; it ends in yield"),
    (allocate_in_a_loop, "core.allocate", "workgroup memory is allocated outside loops and branches"),
    (branches_disagree, "core.if", "the branches yield nothing and f32; they must agree"),
    (a_branch_with_arguments, "core.if", "a branch takes no arguments"),
    (a_branch_too_many, "core.if", "has 2 regions, got 3"),
    (loop_yields_another_type, "core.for", "carries f32, its body takes f32 and yields i32"),
    (loop_takes_another_type, "core.for", "carries f32, its body takes i32 and yields i32"),
    (an_operation_twice, "core.thread_id", "stands in the kernel twice"),
    (lane_past_the_wave, "core.shuffle_xor", "reads lane 127, a wave has 64 lanes"),
]


@pytest.mark.parametrize("break_, op, message", BROKEN, ids=[row[0].__name__ for row in BROKEN])
def test_a_broken_rule_is_found_and_the_op_and_line_are_named(sample, break_, op, message):
    line = next((str(o.location) for o in sample.walk() if o.name == op), None)
    break_(sample)
    with pytest.raises(IRError, match=message) as caught:
        verify(sample)
    text = str(caught.value)
    assert text.startswith("sample: ")
    if op is not None:
        assert f"sample: {op}: " in text
        assert re.search(r"\(at [\w/.-]+:\d+(, called from [\w/.-]+:\d+)*\)$|\(at unknown source\)$", text)
        if line and "unknown" not in text:
            assert HERE in text


@pytest.mark.parametrize("access", ["read", "write", "readwrite"])
@pytest.mark.parametrize("invariant", [True, False])
def test_only_what_the_kernel_does_not_write_is_read_as_invariant(samples, access, invariant):
    def body(x, n):
        memory.load(memory.offset(memory.offset(x, lanes.lane_id()), n), invariant=invariant)

    parameters = samples.pointer("x", F32, access), samples.number("n")
    if access == "read" or not invariant:
        samples.kernel(body, *parameters)
        return
    with pytest.raises(IRError, match=rf"core\.load: is invariant, but .* what x points to: {access} \(at .*{HERE}"):
        samples.kernel(body, *parameters)


def test_an_invariant_load_shows_whose_memory_it_reads(samples):
    """A pointer that a loop carries could be any."""

    def body(x, n, invariant):
        def step(_, carried):
            memory.load(carried[0], invariant=invariant)
            return [memory.offset(carried[0], n)]

        control.for_range(0, n, 1, [x], step)

    parameters = samples.pointer("x", F32), samples.number("n")
    samples.kernel(lambda x, n: body(x, n, False), *parameters)
    with pytest.raises(IRError, match=r"must come from a parameter, by offsets alone"):
        samples.kernel(lambda x, n: body(x, n, True), *parameters)


def test_the_line_is_that_of_the_emitter(samples):
    marker = "this line is the one that is named"

    def body(x):
        memory.load(x, count=3)  # this line is the one that is named
        arithmetic.add(x, x)

    lines = Path(__file__).read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if marker in line and "memory.load" in line)
    with pytest.raises(IRError, match=rf"^core\.add: .*\(at .*{re.escape(HERE)}:{number + 1}, called from "):
        samples.kernel(body, samples.pointer("x", F32))


def test_a_comprehension_is_not_told_as_a_caller_of_itself(samples):
    def body(x):
        [memory.load(x, count=count) for count in (3, 0)]

    with pytest.raises(IRError) as caught:
        samples.kernel(body, samples.pointer("x", F32))
    places = re.findall(r"[\w/.-]+:\d+", str(caught.value))
    assert len(places) > 1 and len(set(places)) == len(places)


HEADS = [
    ({"block": 100}, "block 100 is not a whole number of waves of 64"),
    ({"block": 0}, "block 0 is not a whole number of waves of 64"),
    ({"wave_size": 0}, "block 64 is not a whole number of waves of 0"),
    ({"name": "a b"}, "'a b' is no name of a kernel"),
    ({"name": ""}, "'' is no name of a kernel"),
    ({"attributes": {"a-b": 1}}, "'a-b' is no name of a parameter or attribute"),
    ({"attributes": {"a": 1.5}}, "attribute a is a bool, an i64, a str, integers or a type, got 1.5"),
    ({"attributes": {"a": 1 << 63}}, "attribute a is a bool, an i64"),
    ({"parameters": ()}, "the parameters are nothing"),
]


@pytest.mark.parametrize("changes, message", HEADS, ids=[row[1][:30] for row in HEADS])
def test_a_broken_head_is_found(sample, changes, message):
    with pytest.raises(IRError, match=message):
        verify(attrs.evolve(sample, **changes))


def test_parameters_are_those_of_the_body_and_have_their_own_names(sample):
    x, y, n = sample.parameters
    for parameters, message in [
        ((y, x), "the body takes"),
        ((x, y, n, n), "two parameters have one name"),
        ((x, y, attrs.evolve(n, type=I64)), r"the body takes .* i32, the parameters are .* i64"),
        ((attrs.evolve(x, name="1x"), y, n), "'1x' is no name of a parameter"),
    ]:
        with pytest.raises(IRError, match=message):
            verify(attrs.evolve(sample, parameters=parameters))
    verify(attrs.evolve(sample, parameters=(y, x, n)))  # of one type: names are not part of the rule


TRUTHS = {
    "if n < 5": lambda n: 1 if n < 5 else 2,
    "n and 1": lambda n: n and 1,
    "not n": lambda n: not n,
    "0 < n < 5": lambda n: 0 < n < 5,
    "while n.ne(0)": lambda n: bool(n.ne(0)),
    "n == 5": lambda n: n == 5,
    "n != 5": lambda n: n != 5,
    "5 == n": lambda n: 5 == n,  # noqa: SIM300
    "n in [5]": lambda n: n in [5],
    "n == n + 1": lambda n: n == n + 1,
}


@pytest.mark.parametrize("use", TRUTHS)
def test_a_device_value_decides_nothing_in_python(samples, use):
    message = "a device value (has no truth value|is not compared by == or !=) while a kernel is built; use "
    with pytest.raises(TypeError, match=message):
        samples.kernel(lambda n: TRUTHS[use](n) and None, samples.number("n"))


def test_device_values_are_keys_by_identity(samples):
    def body(n):
        m = n + 1
        assert {n: "n", m: "m"}[m] == "m" and n in (m, n)[1:] and n in {n, m} and m not in {n}
        assert n == n and n != "n"

    samples.kernel(body, samples.number("n"))


def test_an_op_the_arch_lacks_is_refused_when_built_and_says_what_to_use(samples):
    arch = samples.portable_arch(lacking={"core.sqrt": "use rcp of the reciprocal square root"}, name="plain")

    def body(scale):
        arithmetic.sqrt(scale)

    samples.kernel(body, samples.number("scale", F32))
    message = r"core\.sqrt is not legal on plain: use rcp of the reciprocal square root"
    with pytest.raises(IllegalOp, match=message):
        samples.kernel(body, samples.number("scale", F32), arch=arch)
    assert not arch.has("core.sqrt") and arch.has("core.add")


def double(name):
    return OpDef(
        name=name,
        operands=("a",),
        result=same_integer,
        meaning=LaneFunction(lambda m, a: a + a),
        lowering=lambda w, op: None,
    )


def test_an_op_of_another_archs_table_is_refused(samples):
    ours, theirs = double("ours.double"), double("theirs.double")

    def body(n):
        ours(n)

    samples.kernel(body, samples.number("n"), arch=samples.portable_arch(ops=(ours,)))
    for ops in ((), (theirs,), (double("ours.double"),)):
        arch = samples.portable_arch(ops=ops, name="other")
        with pytest.raises(IllegalOp, match=r"ours\.double is not an op of other; it has: "):
            samples.kernel(body, samples.number("n"), arch=arch)


def test_an_op_outside_a_kernel_is_an_error():
    with pytest.raises(InternalError, match="no kernel is being built on this thread"):
        lanes.thread_id()


def test_a_failed_build_leaves_no_builder_behind(samples):
    with pytest.raises(ZeroDivisionError):
        samples.kernel(lambda: 1 // 0)
    with pytest.raises(InternalError, match="no kernel is being built"):
        lanes.thread_id()
