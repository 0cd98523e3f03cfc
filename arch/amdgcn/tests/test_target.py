"""Target ids as LLVM's guide for AMDGPU writes them."""

from __future__ import annotations

import pytest

from kinfolk_amdgcn.target import TargetId, TargetIdError, parse_target_id, resolve_target_id


@pytest.mark.parametrize(
    "text, parts",
    [
        ("gfx942", TargetId("gfx942")),
        ("gfx942:sramecc+:xnack-", TargetId("gfx942", True, False)),
        ("amdgcn-amd-amdhsa--gfx942:sramecc+", TargetId("gfx942", True)),
        ("gfx90a:xnack+", TargetId("gfx90a", None, True)),
    ],
)
def test_a_target_id_is_taken_apart_and_put_together(text, parts):
    assert parse_target_id(text) == parts
    assert str(parts) == text.rpartition("--")[2]
    assert parse_target_id(str(parts)) == parts


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "does not begin with a processor such as gfx942 but with ''"),
        ("sm_90", "but with 'sm_90'"),
        ("gfx942:sramecc", "has 'sramecc', a feature is sramecc or xnack followed by"),
        ("gfx942:wave64+", "has 'wave64\\+'"),
        ("gfx942:xnack+:xnack-", "names xnack twice"),
        ("nvptx64--gfx942", "is for nvptx64, not for amdgcn-amd-amdhsa"),
    ],
)
def test_a_target_id_that_says_nothing_is_an_error(text, said):
    with pytest.raises(TargetIdError, match=said):
        parse_target_id(text)


def test_a_device_runs_code_that_pins_nothing_it_is_not():
    device = parse_target_id("gfx942:sramecc+:xnack-")
    assert device.runs(TargetId("gfx942"))
    assert device.runs(TargetId("gfx942", True, False))
    assert not device.runs(TargetId("gfx942", xnack=True))
    assert not device.runs(TargetId("gfx950"))
    assert resolve_target_id("gfx942:xnack-", ("gfx942",)).llvm_features == "-xnack"
    with pytest.raises(TargetIdError, match="is of gfx950, this is for gfx942"):
        resolve_target_id("gfx950", ("gfx942",))
