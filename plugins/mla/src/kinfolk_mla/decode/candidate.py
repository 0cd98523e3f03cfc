"""The decode candidate of any pages."""

from __future__ import annotations

from typing import Final

from kinfolk.candidate import Candidate, Note
from kinfolk.expr import all_of, field, not_
from kinfolk.narrow import NARROW
from kinfolk_mla.decode.limits import CAPABILITY
from kinfolk_mla.decode.plan import decode_plan, decode_specs

CAUSAL_NOTE: Final = Note(
    "causal=False changes nothing: a sequence's only query is its last token and sees every key",
    when=all_of(not_(field("causal")), field("max_seqlen_q") <= 1),
)
NARROW_NOTE: Final = Note(
    "an element of the cache stands for itself times k_scale, which is 1 where it is not passed",
    when=field("kv_dtype").one_of(tuple(NARROW.values())),
)
DECODE: Final = Candidate(
    name="mla.decode",
    priority=5,
    plugin="kinfolk-mla",
    capability=CAPABILITY,
    plan=decode_plan,
    specs=decode_specs,
    min_llvm=20,
    notes=(CAUSAL_NOTE, NARROW_NOTE),
)
