"""The single-pass decode candidate."""

from __future__ import annotations

from typing import Final

from kinfolk.candidate import Candidate, Note
from kinfolk.expr import field, not_
from kinfolk_mla.decode.limits import CAPABILITY
from kinfolk_mla.decode.plan import decode_plan, decode_specs

CAUSAL_NOTE: Final = Note(
    "causal=False changes nothing: a sequence's only query is its last token and sees every key",
    when=not_(field("causal")),
)
DECODE: Final = Candidate(
    name="mla.decode",
    priority=5,
    plugin="kinfolk-mla",
    capability=CAPABILITY,
    plan=decode_plan,
    specs=decode_specs,
    min_llvm=20,
    notes=(CAUSAL_NOTE,),
)
