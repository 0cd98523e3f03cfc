"""Every scale that a request takes is one that its own verification takes: at the limits, and where f32 is coarse."""

import numpy as np
import pytest

from kinfolk.fields import FieldValueError
from kinfolk_mla.reference import LSE_GATE, Attention, tolerances
from kinfolk_mla.request import SCALE, MlaRequest
from kinfolk_runtime.verify import verify

pytestmark = pytest.mark.needs("mla", "gfx942")

SIZES = {"num_seqs": 6, "total_q": 6, "max_seqlen_q": 1, "max_seqlen_k": 200, "page_size": 16, "num_pages": 80}
KINDS = {"absorbed_query": True, "dtype": "bf16", "kv_dtype": "bf16", "causal": True}


def request(scale, num_heads=16):
    return MlaRequest(num_heads=num_heads, scale=scale, **SIZES, **KINDS)


@pytest.mark.parametrize("heads", [16, 128])
@pytest.mark.parametrize("scale", [SCALE.minimum, 1e-20, 200.0, 500.0, 1e6, SCALE.maximum])
def test_an_admitted_scale_passes_every_scenario(scale, heads):
    report = verify(request(scale, heads), "gfx942", order_seeds=(0,))
    found = [str(finding) for scenario in report.scenarios for finding in scenario.findings]
    assert (report.status, found) == ("pass", [])


@pytest.mark.parametrize("scale", [float(np.nextafter(SCALE.minimum, 0.0)), float(np.nextafter(SCALE.maximum, np.inf))])
def test_past_the_limits_there_is_no_request(scale):
    with pytest.raises(FieldValueError, match=r"MlaRequest\.scale must be"):
        request(scale)


def lse_tolerance(spread, lse=0.0):
    """Of a token with one head and one key."""
    ones, none = np.ones((1, 512)), np.array([0.0])
    found = Attention(ones, np.array([lse]), ones, np.array([spread]), none, none[None], ones, np.array([False]))
    return tolerances(request(0.07), found, 40)[1][0]


def test_the_gate_of_lse_stands_where_scores_are_of_a_models_size():
    """Negative control: what a large scale is granted must not be granted at every scale."""
    assert lse_tolerance(30.0) < LSE_GATE / 10
    assert lse_tolerance(1100.0) < 1.5 * LSE_GATE
    assert lse_tolerance(1e5) < 0.7 * 584 * 2.0**-24 * 1e5  # of what every rounding in one direction comes to
