"""The binder: each argument and each property has a case that is refused and a neighbour that runs."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import pytest

from kinfolk.errors import BindError, SimulationError
from kinfolk.expr import extent, field, stride
from kinfolk.fields import ExactFloat, ExactInt
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import BF16, F32, I32
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, FloatField, Launch, Offsets, PageIds, Plan
from kinfolk.plugins.faults import HookFault
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk_runtime.binder import StatusError, bind, call
from kinfolk_runtime.simulator import Simulator

WIDTH, PAGE, SEQUENCES, LONGEST, PAGES = 64, 4, 3, 9, 7


@attrs.frozen(kw_only=True)
class PagedSumRequest(Request):
    """Sum the rows of each sequence's pages."""

    family = "paged_sum"
    sequences: int = attrs.field(validator=ExactInt(1))
    longest: int = attrs.field(validator=ExactInt(1))
    pages: int = attrs.field(validator=ExactInt(1))
    scale: float = attrs.field(validator=ExactFloat(0.0, 100.0))


def integer(name):
    return Parameter(name=name, type=I32)


@attrs.frozen(kw_only=True)
class GatherSpec(Spec):
    """Sums into a workspace; `shared` elements of workgroup memory are allocated."""

    shared: int = attrs.field(default=64, validator=ExactInt(1))

    def parameters(self):
        from kinfolk.ir.types import PointerType

        def pointer(name, element, access, alignment):
            return Parameter(name=name, type=PointerType(element), access=access, alignment=alignment)

        return (
            pointer("cache", BF16, "read", 4),
            pointer("offsets", I32, "read", 4),
            pointer("table", I32, "read", 4),
            pointer("sums", F32, "write", 16),
            pointer("status", I32, "readwrite", 4),
            integer("page_stride"),
            integer("table_stride"),
            integer("num_pages"),
        )


@attrs.frozen(kw_only=True)
class ScaleSpec(Spec):
    """Scales the workspace into the output."""

    def parameters(self):
        from kinfolk.ir.types import PointerType

        return (
            Parameter(name="sums", type=PointerType(F32), access="read", alignment=16),
            Parameter(name="out", type=PointerType(F32), access="write", alignment=8),
            Parameter(name="scale", type=F32),
        )


def gather(spec):
    def body(cache, offsets, table, sums, status, page_stride, table_stride, num_pages):
        memory.allocate(F32, spec.shared)
        s, t = lanes.block_id(axis=0), lanes.lane_id()
        first, last = (memory.load(memory.offset(offsets, s + more)) for more in (0, 1))
        zero = control.current_builder().constant(0.0, F32)

        def row(i, carried):
            page = memory.load(memory.offset(table, s * table_stride + i // PAGE))
            good = (page >= 0) & (page < num_pages)

            def add():
                place = page * page_stride + i % PAGE * WIDTH + t
                return [carried[0] + convert.fpext(memory.load(memory.offset(cache, place)), to=F32)]

            def count():
                control.if_else(t.eq(0), lambda: memory.atomic_add(status, t + 1) or ())
                return [carried[0]]

            return control.if_else(good, add, count)

        (total,) = control.for_range(0, last - first, 1, [zero], row)
        memory.store(memory.offset(sums, s * WIDTH + t), total)

    return body


def scale(sums, out, factor):
    place = lanes.block_id(axis=0) * WIDTH + lanes.lane_id()
    memory.store(memory.offset(out, place), arithmetic.fmul(memory.load(memory.offset(sums, place)), factor))


class Composed:
    """The part of a composition the binder asks."""

    def __init__(self, toy):
        self.toy, self.arch = toy, toy.arch

    def emit(self, spec):
        body = gather(spec) if isinstance(spec, GatherSpec) else scale
        return self.toy.kernel(body, *spec.parameters())


def plan_of(block=64, grid=None, shared=64, request=None, arch="toy64"):
    request = request or PagedSumRequest(sequences=SEQUENCES, longest=LONGEST, pages=PAGES, scale=0.5)
    n = field("sequences")
    bindings = (
        Binding(
            name="cache",
            role="input",
            dtype="bf16",
            shape=(Axis(field("pages"), stride=None), Axis(PAGE), Axis(WIDTH)),
            alignment=4,
            access="read",
        ),
        Binding(name="offsets", role="input", dtype="i32", shape=(Axis(n + 1),), alignment=4, access="read"),
        Binding(
            name="table",
            role="input",
            dtype="i32",
            shape=(Axis(n, stride=None), Axis(field("longest").ceil_div(PAGE), at_least=True, stride=1)),
            alignment=4,
            access="read",
        ),
        Binding(
            name="sums", role="workspace", dtype="f32", shape=(Axis(n), Axis(WIDTH)), alignment=16, access="readwrite"
        ),
        Binding(name="out", role="output", dtype="f32", shape=(Axis(n), Axis(WIDTH)), alignment=8, access="write"),
        Binding(name="status", role="status", dtype="i32", shape=(Axis(1),), alignment=4, access="readwrite"),
    )
    first = Launch(
        spec=GatherSpec(shared=shared),
        grid=grid or (n, 1, 1),
        block=block,
        arguments=(
            *(Argument(name, "pointer", name) for name in ("cache", "offsets", "table", "sums", "status")),
            Argument("page_stride", "i32", stride("cache", 0)),
            Argument("table_stride", "i32", stride("table", 0)),
            Argument("num_pages", "i32", extent("cache", 0)),
        ),
    )
    second = Launch(
        spec=ScaleSpec(),
        grid=(n, 1, 1),
        block=64,
        arguments=(
            Argument("sums", "pointer", "sums"),
            Argument("out", "pointer", "out"),
            Argument("scale", "f32", FloatField("scale")),
        ),
    )
    return Plan(
        request=request,
        launches=(first, second),
        bindings=bindings,
        outputs=("out",),
        contents=(
            Offsets(tensor="offsets", count=n, max_step=field("longest")),
            PageIds(table="table", offsets="offsets", page_size=PAGE, bound=extent("cache", 0)),
        ),
        arch=arch,
        flavor="llvm22",
        candidate="paged_sum.plain",
    )


def aligned(shape, dtype, alignment=16, shift=0):
    """Return memory whose address is `shift` past a multiple of `alignment`."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + 2 * alignment, np.uint8)
    begin = -raw.ctypes.data % alignment + shift
    return raw[begin : begin + count].view(dtype).reshape(shape)


def tensors():
    random = np.random.default_rng(0)
    cache = aligned((PAGES, PAGE, WIDTH), ml_dtypes.bfloat16)
    cache[...] = random.normal(size=cache.shape)
    return {
        "cache": cache,
        "offsets": np.array([0, 9, 9, 14], np.int32),
        "table": np.array([[3, 1, 6], [-1, -1, -1], [0, 5, -1]], np.int32),
    }


def everything():
    return tensors() | {
        "sums": aligned((SEQUENCES, WIDTH), np.float32),
        "out": aligned((SEQUENCES, WIDTH), np.float32),
        "status": np.zeros(1, np.int32),
    }


def expected(given, factor=0.5):
    out, (offsets, table) = np.zeros((SEQUENCES, WIDTH), np.float32), (given["offsets"], given["table"])
    for s in range(SEQUENCES):
        for i in range(offsets[s + 1] - offsets[s]):
            page = table[s, i // PAGE]
            if 0 <= page < PAGES:
                out[s] += given["cache"][page, i % PAGE].astype(np.float32)
    return out * np.float32(factor)


@pytest.fixture
def run(toy64):
    """Bind with a stub composition, and run."""

    def bound(given, plan=None, **options):
        result = bind(plan or plan_of(), given, composition=Composed(toy64), **options)
        return result, result()

    return bound


def refused(run, given, *fragments, **options):
    launched = []

    class Watching(Simulator):
        def run(self, work):
            launched.append(work)

    with pytest.raises(BindError) as caught:
        run(given, executor=options.pop("executor", Watching()), **options)
    assert not launched
    for fragment in fragments:
        assert fragment in str(caught.value), str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_plan_runs_from_tensors_to_outputs(run):
    given = tensors()
    bound, outputs = run(given, check_contents=True)
    assert (outputs["out"] == expected(given)).all() and bound.status() == {"status": 0} and not bound.unwritten()
    assert bound.tensors["sums"].address % 16 == 0
    given["cache"][...] = 1
    assert (bound()["out"] == expected(given)).all()


def test_memory_given_is_the_memory_used(run):
    given = everything()
    given["status"][0] = 99
    _, outputs = run(given)
    assert outputs["out"] is given["out"] and (given["out"] == expected(given)).all()
    assert given["status"][0] == 0


def test_padded_caches_and_wide_tables(run):
    given = tensors()
    padded = aligned((PAGES, PAGE + 1, WIDTH), ml_dtypes.bfloat16)
    padded[:, :PAGE] = given["cache"]
    given["cache"] = padded[:, :PAGE]
    wide = np.full((SEQUENCES, 8), -7, np.int32)
    wide[:, :3] = given["table"]
    _, outputs = run(given | {"table": wide})
    assert (outputs["out"] == expected(given)).all()
    _, outputs = run(given | {"table": wide[:, :3]})
    assert (outputs["out"] == expected(given)).all()


def test_other_libraries_arrays(run):
    class Interface:
        def __init__(self, array):
            self.kept, self.__array_interface__ = array, array.__array_interface__

    class Dlpack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    given = tensors()
    _, outputs = run(given | {"table": Interface(given["table"]), "offsets": Dlpack(given["offsets"])})
    assert (outputs["out"] == expected(given)).all()
    refused(run, given | {"table": given["table"].tolist()}, "table is a list", "__dlpack__")

    class Elsewhere(Dlpack):
        def __dlpack__(self, **options):
            raise BufferError("lies on a device")

    refused(run, given | {"table": Elsewhere(given["table"])}, "table: ", "lies on a device", "host memory")


@pytest.mark.parametrize("name", ["cache", "offsets", "table"])
def test_an_input_that_is_missing(run, name):
    given = tensors()
    del given[name]
    refused(run, given, f"input {name} is missing")


def test_a_name_the_plan_does_not_know(run):
    refused(run, tensors() | {"tabel": np.zeros(1)}, "no tensor is named tabel", "cache, offsets, table")


WRONG_DTYPE = {
    "cache": np.uint16,
    "offsets": np.int64,
    "table": np.uint32,
    "sums": np.float64,
    "out": np.float16,
    "status": np.int64,
}


@pytest.mark.parametrize("name", WRONG_DTYPE)
def test_dtype_of(run, name):
    given = everything()
    given[name] = np.zeros(given[name].shape, WRONG_DTYPE[name])
    refused(run, given, f"{name}: dtype is {np.dtype(WRONG_DTYPE[name])}", "is needed")


@pytest.mark.parametrize("name", WRONG_DTYPE)
def test_rank_of(run, name):
    given = everything()
    given[name] = given[name][None]
    refused(run, given, f"{name} has shape (1, ", "axes")


def _axes():
    return [(name, axis) for name, array in everything().items() for axis in range(array.ndim)]


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name, axis", _axes())
def test_extent_of(run, name, axis, change):
    given = everything()
    shape = list(given[name].shape)
    shape[axis] += change
    given[name] = aligned(shape, given[name].dtype)
    if (name, axis, change) == ("table", 1, 1):
        return  # a wider table is taken, tested above
    refused(run, given, f"{name}: the extent of axis {axis} is {shape[axis]}", "is needed")


FIXED_STRIDES = [
    ("cache", 1),
    ("cache", 2),
    ("offsets", 0),
    ("table", 1),
    ("sums", 0),
    ("sums", 1),
    ("out", 0),
    ("out", 1),
]


@pytest.mark.parametrize("name, axis", FIXED_STRIDES)
def test_stride_of(run, name, axis):
    given = everything()
    shape = list(given[name].shape)
    shape[axis] *= 2
    given[name] = aligned(shape, given[name].dtype)[
        tuple(slice(None, None, 2 if i == axis else 1) for i in range(len(shape)))
    ]
    refused(run, given, f"{name}: the stride of axis", "ascontiguousarray")


def test_strides_that_no_kernel_takes(run):
    given = tensors()
    refused(run, given | {"table": given["table"][::-1]}, "table: the stride of axis 0 is -12 bytes")
    pairs = np.zeros((SEQUENCES, 3), np.dtype([("id", np.int32), ("odd", np.int16)]))
    refused(
        run, given | {"table": pairs["id"]}, "table: the stride of axis 0 is 18 bytes", "multiple of the element's 4"
    )


@pytest.mark.parametrize("name, alignment", [("cache", 4), ("sums", 16), ("out", 8)])
def test_alignment_of(run, name, alignment):
    given = everything()
    array = given[name]
    for shift, good in ((alignment, True), (alignment // 2, False)):
        moved = aligned(array.shape, array.dtype, 2 * alignment, shift)
        moved[...] = array
        if good:
            run(given | {name: moved})
        else:
            refused(run, given | {name: moved}, f"{name}: its address", f"multiple of {alignment} bytes")


@pytest.mark.parametrize("name", ["sums", "out", "status"])
def test_what_is_written_must_be_writeable(run, name):
    given = everything()
    given[name].flags.writeable = False
    refused(run, given, f"{name} is written, the array given is read-only")


@pytest.mark.parametrize("name", ["cache", "offsets", "table"])
def test_what_is_read_may_be_read_only(run, name):
    given = everything()
    given[name].flags.writeable = False
    run(given)


def test_nothing_written_is_reached_twice(run):
    given = everything()
    both = aligned((2 * SEQUENCES, WIDTH), np.float32)
    run(given | {"sums": both[:SEQUENCES], "out": both[SEQUENCES:]})
    refused(run, given | {"sums": both[:SEQUENCES], "out": both[SEQUENCES - 1 : -1]}, "shares memory with out")
    refused(run, given | {"status": given["offsets"][:1]}, "status is written and shares memory with offsets")
    cache = given["cache"].view(np.float32).reshape(-1)[: SEQUENCES * WIDTH].reshape(SEQUENCES, WIDTH)
    refused(run, given | {"out": cache}, "out is written and shares memory with cache")


def test_inputs_may_share_memory(run):
    whole = np.array([0, 9, 9, 14, 0, 0, 0, 0, 0], np.int32)
    given = tensors() | {"offsets": whole[:4], "table": np.lib.stride_tricks.as_strided(whole[4:], (3, 3), (0, 4))}
    _, outputs = run(given)
    assert (outputs["out"] == expected(given)).all()


def test_elements_of_an_output_do_not_overlap(run):
    """Where strides are the caller's choice only this check sees it."""
    plan = plan_of()
    loose = attrs.evolve(plan.binding("out"), shape=(Axis(field("sequences"), stride=None), Axis(WIDTH)))
    plan = attrs.evolve(plan, bindings=tuple(loose if one.name == "out" else one for one in plan.bindings))
    flat = aligned((SEQUENCES * WIDTH,), np.float32)
    apart = np.lib.stride_tricks.as_strided(flat, (SEQUENCES, WIDTH), (WIDTH * 4, 4))
    run(everything() | {"out": apart}, plan)
    for step in (WIDTH - 1, 0):
        near = np.lib.stride_tricks.as_strided(flat, (SEQUENCES, WIDTH), (step * 4, 4))
        refused(run, everything() | {"out": near}, "out is written, its elements overlap", plan=plan)


BAD_CONTENTS = [
    ("offsets", [1, 9, 9, 14], "offsets[0] is 1"),
    ("offsets", [0, 9, 8, 14], "offsets[2] - offsets[1] is 8 - 9 = -1"),
    ("offsets", [0, 10, 10, 14], "offsets[1] - offsets[0] is 10 - 0 = 10"),
    ("table", [[3, 1, PAGES], [0, 0, 0], [0, 5, 0]], f"table[0, 2] is page {PAGES}"),
    ("table", [[3, 1, 6], [0, 0, 0], [0, -1, 0]], "table[2, 1] is page -1"),
]


@pytest.mark.parametrize("name, values, text", BAD_CONTENTS)
def test_contents_are_checked_when_asked(run, name, values, text):
    given = tensors() | {name: np.array(values, np.int32)}
    refused(run, given, text, check_contents=True)
    bound, _ = run(tensors(), check_contents=True)
    bound.tensors[name].array[...] = given[name]
    with pytest.raises(BindError):
        bound()


def test_ids_that_no_length_reaches_are_not_looked_at(run):
    given = tensors()
    given["table"][1] = 1000
    given["table"][2, 2] = -5
    run(given, check_contents=True)


def test_the_last_offset_where_the_plan_states_it(run):
    plan = plan_of()
    plan = attrs.evolve(plan, contents=(attrs.evolve(plan.contents[0], last=field("pages") * 2),))
    run(tensors(), plan, check_contents=True)
    given = tensors() | {"offsets": np.array([0, 9, 9, 13], np.int32)}
    refused(run, given, "offsets[3] is 13, the last offset is", plan=plan, check_contents=True)


def test_a_table_too_narrow_for_the_offsets(run):
    plan = plan_of(request=PagedSumRequest(sequences=SEQUENCES, longest=13, pages=PAGES, scale=0.5))
    given = tensors() | {"table": np.zeros((SEQUENCES, 4), np.int32), "offsets": np.array([0, 13, 13, 13], np.int32)}
    run(given, plan, check_contents=True)
    narrow = attrs.evolve(plan.binding("table"), shape=(Axis(SEQUENCES), Axis(1, at_least=True)))
    plan = attrs.evolve(plan, bindings=tuple(narrow if one.name == "table" else one for one in plan.bindings))
    given["table"] = np.zeros((SEQUENCES, 3), np.int32)
    refused(run, given, "table has 3 columns, sequence 0 of length 13 needs 4 pages", plan=plan, check_contents=True)


def test_the_plain_call_looks_into_contents_and_raises_on_the_status(toy64, run):
    composed, given = Composed(toy64), tensors()
    assert (call(plan_of(), given, composition=composed)["out"] == expected(given)).all()
    given["table"][2, 1] = PAGES
    with pytest.raises(BindError, match=r"table\[2, 1\]"):
        call(plan_of(), given, composition=composed)
    bound, outputs = run(given)  # not looked into: the kernel leaves the page out and counts its one row
    assert bound.status() == {"status": 1} and (outputs["out"] == expected(given)).all()
    unchecked = attrs.evolve(plan_of(), contents=())
    with pytest.raises(StatusError, match="status word status is 1"):
        call(unchecked, given, composition=composed)


class Device(Simulator):
    """An executor with a device of its own."""

    def __init__(self, target):
        super().__init__()
        self.target = target


def test_the_executor_s_device_is_the_plan_s_arch(run):
    run(tensors(), executor=Device("toy64:feature+:other-"))
    refused(run, tensors(), "executor simulator runs toy32", "the plan is for toy64", executor=Device("toy32"))


def test_the_plan_s_arch_is_the_composition_s(run):
    refused(run, tensors(), "the plan is for toy32, it is bound for toy64", plan=plan_of(arch="toy32"))


def test_executors_by_name(run):
    from kinfolk.errors import PluginError

    run(tensors(), executor="simulator")
    with pytest.raises(PluginError, match="nowhere"):
        run(tensors(), executor="nowhere")


@pytest.mark.parametrize("axis, limit", [(0, 16), (1, 4), (2, 4)])
def test_grid_axis(run, axis, limit):
    for count in (limit, limit + 1, -1):
        grid = tuple(count if index == axis else (SEQUENCES, 1, 1)[index] for index in range(3))
        plan = plan_of(grid=grid)
        if count == limit and axis:
            run(tensors(), plan)
        elif count != limit:
            text = f"grid {'xyz'[axis]} is {count}" if count > 0 else "at least 0 is needed"
            refused(run, tensors(), text, plan=plan)
    plan = plan_of(request=PagedSumRequest(sequences=16, longest=LONGEST, pages=PAGES, scale=0.5))
    given = tensors() | {"offsets": np.zeros(17, np.int32), "table": np.zeros((16, 3), np.int32)}
    _, outputs = run(given, plan)
    assert (outputs["out"] == 0).all()


def test_an_empty_grid_launches_nothing(run):
    run(tensors())
    with pytest.raises(SimulationError, match="never written of sums"):
        run(tensors(), plan_of(grid=(0, 1, 1)))


def test_workgroup_memory_fits(run):
    run(tensors(), plan_of(shared=1024))
    refused(run, tensors(), "workgroup memory in bytes is 4100, toy64 has at most 4096", plan=plan_of(shared=1025))


def test_the_block_is_the_kernel_s_and_fits(run, toy64):
    refused(run, tensors(), "is built for 64 threads, the plan launches 128", plan=plan_of(block=128))
    toy64.arch = attrs.evolve(toy64.arch, facts={**toy64.arch.facts, "max_workgroup_size": 32})
    refused(run, tensors(), "block is 64, toy64 has at most 32")


def test_the_kernel_is_the_one_planned(run, toy64):
    class Other(Composed):
        def emit(self, spec):
            changed = list(spec.parameters())
            self.change(changed)
            return self.toy.kernel(lambda *_: None, *changed)

    def without_last(parameters):
        parameters.pop()

    def stricter(parameters):
        parameters[0] = attrs.evolve(parameters[0], alignment=16)

    for change, text in ((without_last, "takes 7 arguments, the plan passes 8"), (stricter, "alignment=16")):
        composed = Other(toy64)
        composed.change = change
        with pytest.raises(BindError) as caught:
            bind(plan_of(), tensors(), composition=composed)
        assert text in str(caught.value)


def test_the_wave_size_is_the_arch_s(toy64):
    kept = toy64.arch
    composed = Composed(toy64)
    composed.arch = attrs.evolve(kept, wave_size=32)
    with pytest.raises(BindError, match="is built for waves of 64, toy64 has 32"):
        bind(plan_of(), tensors(), composition=composed)


def test_an_argument_past_its_type(run):
    """A page stride that i32 does not hold; one page is enough to have it."""
    plan = plan_of(request=PagedSumRequest(sequences=SEQUENCES, longest=LONGEST, pages=1, scale=0.5))
    given = tensors() | {"table": np.zeros((SEQUENCES, 3), np.int32)}
    one = given["cache"][:1]
    for step, good in (((1 << 31) - 1, True), (1 << 31, False)):
        cache = np.lib.stride_tricks.as_strided(one, one.shape, (2 * step, *one.strides[1:]))
        if good:
            run(given | {"cache": cache}, plan)
        else:
            refused(run, given | {"cache": cache}, "page_stride", str(1 << 31), plan=plan)


def test_an_output_row_that_no_launch_writes_is_counted(run):
    plan = plan_of()
    short = attrs.evolve(plan.launches[1], grid=(SEQUENCES - 1, 1, 1))
    bound, outputs = run(tensors(), attrs.evolve(plan, launches=(plan.launches[0], short)))
    assert bound.unwritten() == {"out": WIDTH} and np.isnan(outputs["out"][-1]).all()


def test_a_second_call_does_not_see_the_first_one_s_workspace(run, toy64):
    bound, _ = run(tensors())
    bound()
    lazy = attrs.evolve(bound.plan, launches=(bound.plan.launches[1], bound.plan.launches[0]))
    with pytest.raises(SimulationError, match="never written of sums"):
        run(everything(), lazy)


# ------------------------------------------------------------------------------ what is no tensor and no executor


def strange(**members):
    return type("Strange", (), members)()


def interface(array, **changes):
    return {**array.__array_interface__, **changes}


def raising(error):
    def raises(*_, **__):
        raise error

    return raises


TABLE = tensors()["table"]
STRANGE = [
    ("no interface", strange(__array_interface__=3), "array interface cannot be read"),
    ("null", strange(__array_interface__=interface(TABLE, data=(0, False))), "array interface cannot be read"),
    ("negative", strange(__array_interface__=interface(TABLE, shape=(-3, 3))), "array interface cannot be read"),
    ("raises", strange(__array_interface__=property(raising(RuntimeError("boom")))), "RuntimeError: boom"),
    ("dlpack", strange(__dlpack__=raising(ZeroDivisionError("x")), __dlpack_device__=lambda self: (1, 0)), "DLPack"),
    ("masked", np.ma.masked_array(TABLE, mask=TABLE < 0), "masked array"),
    ("list", TABLE.tolist(), "is a list"),
    ("nothing", None, "is a NoneType"),
]


@pytest.mark.parametrize("value, told", [case[1:] for case in STRANGE], ids=[case[0] for case in STRANGE])
def test_what_is_no_array_is_refused_with_a_sentence(toy64, value, told):
    with pytest.raises(BindError, match=told) as caught:
        bind(plan_of(), tensors() | {"table": value}, composition=Composed(toy64))
    assert "table" in str(caught.value)


class Careless(np.ndarray):
    """A subclass whose methods are no array's."""

    def __getitem__(self, index):
        raise RuntimeError("not so")

    def astype(self, *_, **__):
        return np.zeros(3, np.int64)


@pytest.mark.parametrize("kind", [Careless, np.matrix])
def test_a_subclass_counts_as_the_array_it_holds(toy64, kind):
    given = tensors()
    shown = given | {"table": given["table"].view(kind)}
    found = bind(plan_of(), shown, composition=Composed(toy64), check_contents=True)()
    assert np.array_equal(found["out"], expected(given))


@pytest.mark.parametrize(
    "given, told",
    [
        (None, "in a mapping, got a NoneType"),
        ([1, 2], "in a mapping, got a list"),
        ({3: TABLE}, "no tensor is named 3"),
        ({3: TABLE, "zz": TABLE}, "no tensor is named 3, zz"),
    ],
)
def test_tensors_are_passed_by_name(toy64, given, told):
    with pytest.raises(BindError, match=told):
        bind(plan_of(), given, composition=Composed(toy64))


@pytest.mark.parametrize("executor", [3, object(), b"simulator"])
def test_what_is_no_executor_is_a_type_error(toy64, executor):
    with pytest.raises(TypeError, match="executor takes an Executor, a plugin's name or None"):
        bind(plan_of(), tensors(), executor=executor, composition=Composed(toy64))


class Leaving:
    """An executor of somebody else."""

    name, target = "leaving", None

    def run(self, work):
        raise SystemExit(0)


def test_an_executor_that_exits_is_named(toy64):
    bound = bind(plan_of(), tensors(), executor=Leaving(), composition=Composed(toy64))
    with pytest.raises(HookFault, match="executor leaving: run raised SystemExit: 0"):
        bound()


def test_a_plan_whose_request_was_changed_is_not_bound(toy64):
    plan = plan_of()
    object.__setattr__(plan.request, "scale", float("nan"))
    with pytest.raises(BindError, match=r"was changed since it was dispatched: .*scale"):
        bind(plan, tensors(), composition=Composed(toy64))


def test_what_was_bound_is_what_is_launched(toy64):
    plan, given = plan_of(), tensors()
    bound = bind(plan, given, composition=Composed(toy64))
    object.__setattr__(plan.request, "scale", 100.0)
    assert np.array_equal(bound()["out"], expected(given, 0.5))
