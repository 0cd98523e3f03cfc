"""What is compiled in, and what the kernel declares that it takes."""

import json

import attrs
import pytest

from kinfolk_mla.decode.plan import decode_spec
from kinfolk_mla.spec import MlaDecodeSpec

SPEC = decode_spec()


def test_the_kernel_takes_what_it_reads_and_nothing_else():
    kinds = [(each.name, str(each.type), each.access, each.alignment) for each in SPEC.parameters()]
    data, ids = "!core.ptr<bf16, global>", "!core.ptr<i32, global>"
    assert kinds == [
        ("qa", data, "read", 16),
        ("c_kv", data, "read", 16),
        ("k_rope", data, "read", 16),
        ("cu_seqlens_q", ids, "read", 4),
        ("cu_seqlens_k", ids, "read", 4),
        ("block_table", ids, "read", 4),
        ("status", ids, "readwrite", 4),
        ("out", data, "write", 16),
        ("lse", "!core.ptr<f32, global>", "write", 4),
        ("scale", "f32", "read", 0),
        ("k_scale", "f32", "read", 0),
        ("block_table_stride", "i32", "read", 0),
        ("num_pages", "i32", "read", 0),
        ("total_q", "i32", "read", 0),
        ("max_seqlen_q", "i32", "read", 0),
        ("max_seqlen_k", "i32", "read", 0),
        ("num_heads", "i32", "read", 0),
        ("heads_inverse", "i32", "read", 0),
        ("part_out", "!core.ptr<f32, global>", "write", 16),
        ("part_ml", "!core.ptr<f32, global>", "write", 8),
        ("num_segments", "i32", "read", 0),
        ("segment_pages", "i32", "read", 0),
        ("page_shift", "i32", "read", 0),
    ]


@pytest.mark.parametrize("cache", ["f8E4M3FN", "f8E4M3FNUZ"])
def test_the_cache_alone_has_another_type(cache):
    types = {each.name: str(each.type) for each in decode_spec(kv_dtype=cache).parameters()}
    narrow = {name for name, kind in types.items() if kind == f"!core.ptr<{cache}, global>"}
    assert narrow == {"c_kv", "k_rope"}
    assert {name: kind for name, kind in types.items() if name not in narrow}.items() <= {
        each.name: str(each.type) for each in SPEC.parameters()
    }.items()


def test_every_field_is_in_the_identity():
    for field in attrs.fields(MlaDecodeSpec):
        value = getattr(SPEC, field.name)
        other = "f16" if field.name.endswith("dtype") else not value if field.name == "idle_waves" else value + 16
        other = value - 1 if field.name.endswith(("ahead", "every", "reads", "cu")) else other
        assert attrs.evolve(SPEC, **{field.name: other}).identity() != SPEC.identity(), field.name


@pytest.mark.parametrize("field, value", [("latent_width", 24), ("page_size", 0), ("workgroups_per_cu", 0)])
def test_a_meaningless_spec_does_not_exist(field, value):
    with pytest.raises(ValueError, match=f"MlaDecodeSpec.{field}"):
        attrs.evolve(SPEC, **{field: value})
    data = json.loads(SPEC.to_json())
    data["fields"][field] = value
    with pytest.raises(ValueError, match=f"MlaDecodeSpec.{field}"):
        MlaDecodeSpec.from_json(json.dumps(data))


def test_symbols_are_names_of_their_own():
    types = ("bf16", "f8E4M3FN", "f8E4M3FNUZ")
    symbols = {decode_spec(idle_waves, kv_dtype=cache).symbol() for idle_waves in (False, True) for cache in types}
    assert len(symbols) == 2 * len(types)
    assert all(symbol.replace("_", "").isalnum() and len(symbol) < 40 for symbol in symbols)
