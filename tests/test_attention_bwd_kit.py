"""Gradients of attention: the conformance kit on them."""

import pytest

from kinfolk.testing import FamilyConformance

pytestmark = pytest.mark.needs("attention_bwd", "gfx942", "gfx950")


class TestAttentionBwd(FamilyConformance):
    family = "attention_bwd"
    archs = ("gfx942", "gfx950")
