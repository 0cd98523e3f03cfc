"""Forward attention: the conformance kit on it."""

import pytest

from kinfolk.testing import FamilyConformance

pytestmark = pytest.mark.needs("attention_fwd", "gfx942", "gfx950")


class TestAttentionFwd(FamilyConformance):
    family = "attention_fwd"
    archs = ("gfx942", "gfx950")
