"""A plan of two launches on a toy arch, which the tests of the binder bind: the rows of a sequence's pages, summed."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import pytest

from kinfolk.contents import Offsets, PageIds
from kinfolk.errors import BindError
from kinfolk.expr import extent, field, stride
from kinfolk.fields import ExactFloat, ExactInt
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import BF16, F32, I32
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, FloatField, Launch, Plan
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk_runtime.binder import bind
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

        rows = arithmetic.smin(last - first, num_pages * PAGE)  # no sequence here names a page twice
        (total,) = control.for_range(0, rows, 1, [zero], row)
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


def running(toy):
    """Return a function that binds tensors to a plan on the toy arch, and runs it."""

    def bound(given, plan=None, **options):
        result = bind(plan or plan_of(), given, composition=Composed(toy), **options)
        return result, result()

    return bound


def refused(run, given, *fragments, **options):
    """Demand that nothing is launched, and that the error says these fragments."""
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
