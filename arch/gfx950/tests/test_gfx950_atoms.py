"""The matrix atoms of gfx950 against published mappings and LLVM's own names, not against our table."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest

from kinfolk.matrix import NoSuchAtom
from kinfolk_amdgcn.testing.atoms import BYTES_16, BYTES_32, DENSE, AtomTests, product_kernel
from kinfolk_gfx950.plugin import PLUGIN


def rate(shape):
    """Operations a clock and compute unit, AMD's CDNA4 white paper: the shapes of CDNA3 reach half in 16 bits."""
    return 256 if shape.a_type.bits == 32 else 2048 if shape.a.slots == 4 else 4096


class TestAtoms(AtomTests):
    plugin = PLUGIN
    # The shapes of twice the k, which AMD's calculator does not know: 8 neighbouring k a lane, as Triton's
    # mfmaDotToLinearLayout (kWidth 8) has them; they are those of the 8-bit shapes.
    published: ClassVar = {
        **DENSE,
        **{f"mfma_f32_16x16x32_{type_}": BYTES_16 for type_ in ("f16", "bf16")},
        **{f"mfma_f32_32x32x16_{type_}": BYTES_32 for type_ in ("f16", "bf16")},
    }
    types: ClassVar = {"f16": "f16", "bf16": "bf16", "fp8": "f8E4M3FN", "bf8": "f8E5M2", "f32": "f32"}
    rate = staticmethod(rate)

    def test_an_atom_is_found_by_shape_and_types(self):
        catalog = PLUGIN.arch.matrix
        found = catalog.find(m=16, n=16, a="bf16")
        assert found is self.atoms["mfma_f32_16x16x32_bf16"], "of several the one of largest k"
        assert catalog.find(m=16, n=16, k=16, a="bf16") is self.atoms["mfma_f32_16x16x16_bf16"]
        assert catalog.find(m=32, n=32, a="f8E4M3FN", b="f8E5M2") is self.atoms["mfma_f32_32x32x16_fp8_bf8"]
        with pytest.raises(NoSuchAtom, match="no matrix atom 16x16x64 bf16"):
            catalog.find(m=16, n=16, k=64, a="bf16")
        with pytest.raises(NoSuchAtom, match="f8E4M3FNUZ x f8E4M3FNUZ"):
            catalog.find(m=16, n=16, a="f8E4M3FNUZ")

    def test_eight_bit_floats_are_handed_over_as_words_of_64_bits(self):
        kernel = product_kernel(PLUGIN.arch, self.atoms["mfma_f32_16x16x32_fp8_bf8"])
        calls = re.findall(r"call .*mfma.*\)", PLUGIN.arch.lower(kernel, None, 22).text)
        assert len(calls) == 2 and all("i64 " in call for call in calls)
