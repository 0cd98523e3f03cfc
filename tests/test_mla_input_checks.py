"""Every check of inputs that a caller of MLA is owed, of absorbed and of projected queries: one wrong tensor each, told
before anything is launched.

On a device the same binder checks; where tensors lie, and of which device, is in `runtime/tests/test_hip_binder.py`.
"""

from __future__ import annotations

import re

import attrs
import ml_dtypes
import numpy as np
import pytest

from kinfolk import dispatch
from kinfolk.errors import BindError
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime import call

pytestmark = pytest.mark.needs("mla", "gfx942")

SEQUENCES, HEADS, PAGE, PAGES, LONGEST = 3, 16, 16, 7, 40
LENGTHS = (40, 0, 17)
FIELDS = {"num_heads": HEADS, "num_seqs": SEQUENCES, "total_q": 3, "max_seqlen_q": 1, "max_seqlen_k": LONGEST}


def asked(**changes):
    given = {**FIELDS, "absorbed_query": True, "num_pages": PAGES, **changes}
    return MlaRequest(**given, **MlaRequest.cli_defaults(given))


def zeros(*shape, dtype=ml_dtypes.bfloat16):
    """Return zeros at an address that is a multiple of 64 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)


def i32(*values):
    return np.array(values, np.int32)


def tensors():
    return {
        "qa": zeros(3, HEADS, 576),
        "c_kv": zeros(PAGES, PAGE, 512),
        "k_rope": zeros(PAGES, PAGE, 64),
        "cu_seqlens_q": i32(0, 1, 2, 3),
        "cu_seqlens_k": np.cumsum([0, *LENGTHS]).astype(np.int32),
        "block_table": i32([0, 1, 2], [-1, -1, -1], [3, 4, 99]),
    }


def shifted(array, count):
    """Return the same zeros `count` bytes past a multiple of 64."""
    memory = zeros(array.nbytes + 64, dtype=np.uint8)
    return memory[count : count + array.nbytes].view(array.dtype).reshape(array.shape)


def rows_apart(stride):
    """Return a table of three rows that are `stride` elements apart; nothing but its first elements exists."""
    row = i32(0, 1, 2)
    return np.lib.stride_tricks.as_strided(row, (SEQUENCES, 3), (4 * stride, 4), writeable=False)


class Launched:
    """An executor that counts launches."""

    name, target = "counting", None

    def __init__(self):
        self.launches = 0

    def run(self, work):
        self.launches += 1


@pytest.fixture(scope="module")
def plan():
    return dispatch(asked(), "gfx942")


WRONG = {
    # shapes
    "a query of the width before absorption": ({"qa": zeros(3, HEADS, 192)}, "qa: the extent of axis 2 is 192, 576"),
    "a query of other heads": ({"qa": zeros(3, 32, 576)}, "qa: the extent of axis 1 is 32, 16"),
    "a query token too many": ({"qa": zeros(4, HEADS, 576)}, "qa: the extent of axis 0 is 4, 3"),
    "a query without an axis of heads": ({"qa": zeros(3, 576)}, "qa has shape (3, 576), 3 axes"),
    "pages of another size": ({"c_kv": zeros(PAGES, 32, 512)}, "c_kv: the extent of axis 1 is 32, 16"),
    "latent rows of another width": ({"c_kv": zeros(PAGES, PAGE, 256)}, "c_kv: the extent of axis 2 is 256, 512"),
    "one cache of fewer pages": ({"k_rope": zeros(PAGES - 1, PAGE, 64)}, "k_rope: the extent of axis 0 is 6, 7"),
    "rotated rows of another width": ({"k_rope": zeros(PAGES, PAGE, 128)}, "k_rope: the extent of axis 2 is 128, 64"),
    "offsets of a sequence less": ({"cu_seqlens_q": i32(0, 1, 3)}, "cu_seqlens_q: the extent of axis 0 is 3, 4"),
    "key offsets of a sequence more": ({"cu_seqlens_k": i32(0, 1, 2, 3, 4)}, "cu_seqlens_k: the extent of axis 0 is 5"),
    "a table too narrow": ({"block_table": i32([0, 1], [2, 3], [4, 5])}, "extent of axis 1 is 2, at least 3"),
    "a table of a row less": ({"block_table": i32([0, 1, 2], [3, 4, 5])}, "block_table: the extent of axis 0 is 2, 3"),
    "an output of the width after projection": ({"out": zeros(3, HEADS, 128)}, "out: the extent of axis 2 is 128, 512"),
    # dtypes
    "a query in f32": ({"qa": zeros(3, HEADS, 576, dtype=np.float32)}, "qa"),
    "raw bits for bf16": ({"c_kv": zeros(PAGES, PAGE, 512, dtype=np.uint16)}, "c_kv"),
    "f16 for bf16": ({"k_rope": zeros(PAGES, PAGE, 64, dtype=np.float16)}, "k_rope"),
    "offsets in i64": ({"cu_seqlens_k": np.array([0, 40, 40, 57], np.int64)}, "cu_seqlens_k"),
    "a table in i64": ({"block_table": np.zeros((3, 3), np.int64)}, "block_table"),
    "sums in f64": ({"lse": zeros(3, HEADS, dtype=np.float64)}, "lse"),
    # layout
    "heads before tokens": (
        {"qa": zeros(HEADS, 3, 576).transpose(1, 0, 2)},
        "qa: the stride of axis 0 is 576 elements, 9216",
    ),
    "rows of a wider cache": ({"c_kv": zeros(PAGES, PAGE, 576)[:, :, :512]}, "c_kv: the stride of axis"),
    "every second page": (
        {"k_rope": zeros(2 * PAGES, PAGE, 64)[::2]},
        "k_rope: the stride of axis 0 is 2048 elements, 1024",
    ),
    "a table column by column": ({"block_table": i32([0, 1, 2], [3, 4, 5], [6, 0, 1]).T}, "block_table: the stride"),
    "a table whose stride is past i32": ({"block_table": rows_apart(2**31)}, "block_table_stride"),
    # addresses
    "a query off its alignment": ({"qa": shifted(zeros(3, HEADS, 576), 8)}, "qa: its address"),
    "a cache off its alignment": ({"c_kv": shifted(zeros(PAGES, PAGE, 512), 2)}, "c_kv: its address"),
    "an output off its alignment": ({"out": shifted(zeros(3, HEADS, 512), 8)}, "out: its address"),
    # what the indices hold
    "query offsets that do not begin at 0": ({"cu_seqlens_q": i32(1, 1, 2, 3)}, "cu_seqlens_q"),
    "query offsets that cover fewer queries": ({"cu_seqlens_q": i32(0, 1, 2, 2)}, "cu_seqlens_q"),
    "query offsets that fall": ({"cu_seqlens_q": i32(0, 2, 1, 3)}, "cu_seqlens_q"),
    "two queries of a sequence": ({"cu_seqlens_q": i32(0, 2, 2, 3)}, "cu_seqlens_q"),
    "key offsets that fall": ({"cu_seqlens_k": i32(0, 40, 39, 57)}, "cu_seqlens_k"),
    "key offsets whose difference leaves 32 bits": ({"cu_seqlens_k": i32(0, 2**31 - 1, -(2**31), 0)}, "cu_seqlens_k"),
    "more keys than the longest sequence has": ({"cu_seqlens_k": i32(0, 41, 41, 57)}, "cu_seqlens_k"),
    "a page id past the cache": ({"block_table": i32([0, 1, PAGES], [0, 0, 0], [3, 4, 5])}, "block_table"),
    "a page id of -1 in use": ({"block_table": i32([0, -1, 2], [0, 0, 0], [3, 4, 5])}, "block_table"),
    # names
    "a tensor that is missing": ({}, "input k_rope is missing"),
    "a tensor that nobody knows": ({"w_uk": zeros(1)}, "no tensor is named w_uk"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_is_told_before_anything_is_launched(plan, name):
    changes, told = WRONG[name]
    given = {**tensors(), **changes}
    if not changes:
        del given["k_rope"]
    executor = Launched()
    with pytest.raises(BindError, match=re.escape(told)):
        call(plan, given, executor)
    assert executor.launches == 0


PROJECTED = ("mla.prefill", "mla.absorbed.decode")
"""What serves projected queries: both take the same tensors."""


def projected_tensors():
    """Return the tensors of a projected query: the cache and the indices are those of an absorbed one."""
    shared = {name: array for name, array in tensors().items() if name != "qa"}
    return {"q": zeros(3, HEADS, 192), "w_ukv": zeros(HEADS, 512, 256), **shared}


@pytest.fixture(scope="module", params=PROJECTED)
def projected_plan(request):
    return dispatch(asked(absorbed_query=False, candidate=request.param), "gfx942")


WRONG_PROJECTED = {
    "an absorbed query": ({"q": zeros(3, HEADS, 576)}, "q: the extent of axis 2 is 576, 192"),
    "a query of other heads": ({"q": zeros(3, 8, 192)}, "q: the extent of axis 1 is 8, 16"),
    "a query in f32": ({"q": zeros(3, HEADS, 192, dtype=np.float32)}, "q"),
    "a query off its alignment": ({"q": shifted(zeros(3, HEADS, 192), 8)}, "q: its address"),
    "heads before tokens": ({"q": zeros(HEADS, 3, 192).transpose(1, 0, 2)}, "q: the stride of axis 0"),
    "weights of other heads": ({"w_ukv": zeros(8, 512, 256)}, "w_ukv: the extent of axis 0 is 8, 16"),
    "weights of another latent width": ({"w_ukv": zeros(HEADS, 256, 256)}, "w_ukv: the extent of axis 1 is 256, 512"),
    "weights of keys alone": ({"w_ukv": zeros(HEADS, 512, 128)}, "w_ukv: the extent of axis 2 is 128, 256"),
    "weights as models store them": ({"w_ukv": zeros(HEADS * 256, 512)}, "w_ukv has shape (4096, 512), 3 axes"),
    "weights transposed, not copied": (
        {"w_ukv": zeros(HEADS, 256, 512).transpose(0, 2, 1)},
        "w_ukv: the stride of axis",
    ),
    "weights in f16": ({"w_ukv": zeros(HEADS, 512, 256, dtype=np.float16)}, "w_ukv"),
    "an output of the latent width": ({"out": zeros(3, HEADS, 512)}, "out: the extent of axis 2 is 512, 128"),
    "one cache of fewer pages": ({"k_rope": zeros(PAGES - 1, PAGE, 64)}, "k_rope: the extent of axis 0 is 6, 7"),
    "query offsets that cover fewer queries": ({"cu_seqlens_q": i32(0, 1, 2, 2)}, "cu_seqlens_q"),
    "two queries of a sequence": ({"cu_seqlens_q": i32(0, 2, 2, 3)}, "cu_seqlens_q"),
    "key offsets whose difference leaves 32 bits": ({"cu_seqlens_k": i32(0, 2**31 - 1, -(2**31), 0)}, "cu_seqlens_k"),
    "a page id past the cache": ({"block_table": i32([0, 1, PAGES], [0, 0, 0], [3, 4, 5])}, "block_table"),
    "a query that is absorbed by name": ({"qa": zeros(3, HEADS, 192)}, "qa"),
}


@pytest.mark.parametrize("name", WRONG_PROJECTED)
def test_a_wrong_input_of_projected_queries_is_told(projected_plan, name):
    changes, told = WRONG_PROJECTED[name]
    executor = Launched()
    with pytest.raises(BindError, match=re.escape(told)):
        call(projected_plan, {**projected_tensors(), **changes}, executor)
    assert executor.launches == 0


def test_right_inputs_of_projected_queries_are_launched(projected_plan):
    executor = Launched()
    call(projected_plan, projected_tensors(), executor)
    assert executor.launches > 1, "kernels before or behind attention"


@pytest.mark.parametrize("other", ["q", "w_ukv"])
def test_an_output_that_shares_memory_with_weights_or_queries_is_told(projected_plan, other):
    given = projected_tensors()
    given["out"] = given[other].reshape(-1)[: 3 * HEADS * 128].reshape(3, HEADS, 128)
    executor = Launched()
    with pytest.raises(BindError, match="shares memory with"):
        call(projected_plan, given, executor)
    assert executor.launches == 0


@pytest.mark.parametrize("other", ["qa", "c_kv", "k_rope", "lse", "status"])
def test_an_output_that_shares_memory_is_told(plan, other):
    given = tensors()
    out = given["out"] = zeros(3, HEADS, 512)
    wanted = given.get(other)
    if other in ("lse", "status"):
        shape, dtype = ((3, HEADS), np.float32) if other == "lse" else ((1,), np.int32)
        size = int(np.prod(shape))
        given[other] = out.reshape(-1).view(dtype)[:size].reshape(shape)
    else:
        memory = zeros(out.size + wanted.size)
        given[other] = memory[: wanted.size].reshape(wanted.shape)
        given["out"] = memory[wanted.size - 8 : wanted.size - 8 + out.size].reshape(out.shape)
    executor = Launched()
    with pytest.raises(BindError, match="shares memory with"):
        call(plan, given, executor)
    assert executor.launches == 0


def test_outputs_side_by_side_share_nothing(plan):
    memory = zeros(2 * 3 * HEADS * 512)
    given = tensors() | {"out": memory[: 3 * HEADS * 512].reshape(3, HEADS, 512)}
    given["lse"] = memory[3 * HEADS * 512 :].view(np.float32)[: 3 * HEADS].reshape(3, HEADS)
    executor = Launched()
    call(plan, given, executor)
    assert executor.launches == 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"block_table": np.zeros((3, 11), np.int32)[:, 2:9]},
        {"block_table": i32([0, 1, 2, 77], [-1, 99, -1, 77], [3, 4, -1, 77])},
        {"cu_seqlens_k": i32(0, 40, 80, 120), "block_table": i32([0, 1, 2], [3, 4, 5], [6, 6, 6])},
        {"cu_seqlens_k": i32(0, 0, 0, 0), "block_table": i32([-1] * 3, [-1] * 3, [-1] * 3)},
    ],
    ids=["as asked", "a slice of a table", "unused slots hold anything", "every sequence of the longest", "no keys"],
)
def test_the_other_side_of_each_edge_is_launched(plan, changes):
    executor = Launched()
    call(plan, {**tensors(), **changes}, executor)
    assert executor.launches == 1


def test_a_request_that_needs_fewer_pages_takes_a_narrower_table():
    """The width follows from the longest sequence of the request, at its edge."""
    for longest, width in ((32, 2), (33, 3)):
        plan = dispatch(attrs.evolve(asked(), max_seqlen_k=longest), "gfx942")
        given = tensors() | {"cu_seqlens_k": i32(0, 16, 16, 32), "block_table": i32([0, 1, 2], [0, 1, 2], [0, 1, 2])}
        call(plan, given | {"block_table": np.ascontiguousarray(given["block_table"][:, :width])}, Launched())
        with pytest.raises(BindError, match=f"at least {width}"):
            call(plan, given | {"block_table": np.ascontiguousarray(given["block_table"][:, : width - 1])}, Launched())
