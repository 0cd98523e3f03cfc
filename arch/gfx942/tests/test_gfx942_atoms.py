"""The matrix atoms of gfx942 against published mappings and LLVM's own names, not against our table."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest

from kinfolk.matrix import NoSuchAtom
from kinfolk_amdgcn.testing.atoms import DENSE, AtomTests, product_kernel
from kinfolk_gfx942.plugin import PLUGIN


def rate(shape):
    """Operations a clock and compute unit, AMD's CDNA3 white paper."""
    return {32: 256, 16: 2048, 8: 4096}[shape.a_type.bits]


class TestAtoms(AtomTests):
    plugin = PLUGIN
    published = DENSE
    types: ClassVar = {"f16": "f16", "bf16": "bf16", "fp8": "f8E4M3FNUZ", "bf8": "f8E5M2FNUZ", "f32": "f32"}
    rate = staticmethod(rate)

    def test_an_atom_is_found_by_shape_and_types(self):
        catalog = PLUGIN.arch.matrix
        assert catalog.find(m=16, n=16, a="bf16") is self.atoms["mfma_f32_16x16x16_bf16"]
        found = catalog.find(m=32, n=32, a="f8E4M3FNUZ", b="f8E5M2FNUZ")
        assert found is self.atoms["mfma_f32_32x32x16_fp8_bf8"]
        with pytest.raises(NoSuchAtom, match="no matrix atom 16x16x32 bf16"):
            catalog.find(m=16, n=16, k=32, a="bf16")

    def test_eight_bit_floats_are_handed_over_as_words_of_64_bits(self):
        kernel = product_kernel(PLUGIN.arch, self.atoms["mfma_f32_16x16x32_fp8_bf8"])
        calls = re.findall(r"call .*mfma.*\)", PLUGIN.arch.lower(kernel, None, 22).text)
        assert len(calls) == 2 and all("i64 " in call for call in calls)
