"""Which pages are served, on every candidate; others are refused by name."""

import pytest
from mla_requests import asking
from mla_toy_arch import arch

from kinfolk.expr import Scope
from kinfolk_mla.decode.candidate import DECODE
from kinfolk_mla.decode.plan import decode_plan
from kinfolk_mla.wide.plan import GROUPED, PIPELINED

SIZES = (16, 32, 64, 128)
SERVED = {"mla.decode": (1, 2, 4, 8, *SIZES), "mla.grouped": SIZES, "mla.pipelined": SIZES}
HEADS = {"mla.decode": 32, "mla.grouped": 64, "mla.pipelined": 128}


@pytest.mark.parametrize("candidate", [DECODE, GROUPED, PIPELINED], ids=lambda candidate: candidate.name)
@pytest.mark.parametrize("page_size", [1, 2, 8, 15, 16, 17, 24, 32, 48, 64, 128, 256, 480])
def test_a_page_size_is_served_or_refused_by_name(candidate, page_size):
    heads = HEADS[candidate.name]
    request = asking(num_heads=heads, num_seqs=2, max_seqlen_k=100)(page_size=page_size)
    found = candidate.unmet(candidate.capability, request, arch())
    if page_size in SERVED[candidate.name]:
        assert found == ()
    else:
        [refusal] = found
        assert (refusal.code, refusal.value) == (f"{candidate.name}.page_size", page_size)
        assert all(str(size) in refusal.limit and str(size) in refusal.remedy for size in SERVED[candidate.name])


UNITS = [(1, 1, 0), (2, 1, 1), (4, 1, 2), (8, 1, 3), (16, 16, 0), (32, 16, 1), (64, 16, 2), (128, 16, 3)]


@pytest.mark.parametrize(("page_size", "unit", "shift"), UNITS)
def test_a_kernel_is_passed_how_many_tiles_or_keys_a_page_has(page_size, unit, shift):
    request = asking(num_heads=32, num_seqs=2, max_seqlen_k=100)(page_size=page_size)
    plan = decode_plan(request, arch())
    [argument] = [each for each in plan.launches[0].arguments if each.name == "page_shift"]
    assert argument.value.integer(Scope(request=request)) == shift
    assert plan.launches[0].spec.page_size == unit
    [parameter] = [each for each in plan.launches[0].spec.parameters() if each.name == "page_shift"]
    assert (parameter.minimum, parameter.maximum) == (0, 3)


@pytest.mark.parametrize("page_size", [1, 8, 16])
@pytest.mark.parametrize("over", [0, 1])
def test_of_small_pages_slots_are_counted_in_bytes(page_size, over):
    """The keys before a segment and those of it are added up, and a slot is 4 bytes of a view of less than 2 GiB."""
    most = 2**28 - 48
    request = asking(num_heads=32, num_seqs=1, max_seqlen_k=most + over)(page_size=page_size)
    codes = [refusal.code for refusal in DECODE.unmet(DECODE.capability, request, arch())]
    assert codes == (["mla.decode.max_seqlen_k.gathered"] if over and page_size < 16 else [])
