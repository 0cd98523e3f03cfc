"""Whether projected queries are served over latent rows, or over keys and values of heads, as an expression.

Absorbing costs 2 * 512 * (128 + 128) operations for each query and head, expanding as many for each key and head. A
pair of them then costs 2 * (576 + 512) over latent rows and 2 * (192 + 128) over a head's keys and values. What that
is in clocks goes by the kernels: behind a long prefix both ways cost the same at the number of queries that
`crossover.equal_queries` computes of compiled loops. With N for it, latent rows are taken where q k < N (k - q).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.expr import Expr, all_of, fact, field, maximum, select
from kinfolk.narrow import NARROW
from kinfolk.roles import role_fact

EQUAL_QUERIES: Final[Mapping[str, tuple[tuple[int, int], tuple[int, int]]]] = {
    "mla.pipelined": ((201, 198), (204, 124)),
    "mla.grouped": ((184, 179), (193, 113)),
    "mla.decode": ((161, 148), (108, 97)),
}
"""By the candidate that attends over latent rows: for a cache as wide as queries and for one of 8-bit floats, where
tiles pass through registers, then where they are read transposed.
"""


def few_queries(latent: str) -> Expr:
    """Return from how many queries a sequence on keys and values are formed whatever the prefix, where a candidate
    would attend over latent rows.
    """
    narrow = field("kv_dtype").one_of(tuple(NARROW.values()))
    staged, transposed = (select(narrow, narrows, plain) for plain, narrows in EQUAL_QUERIES[latent])
    return select(fact(role_fact("transpose_read_16")), transposed, staged)


def least_keys(few: Expr) -> Expr:
    """Return from how many keys a sequence on latent rows cost less, where queries are fewer than `few`."""
    queries = field("max_seqlen_q")
    return queries * few // maximum(few - queries, 1) + 1


def over_latent_rows(few: Expr) -> Expr:
    """Return whether latent rows cost less."""
    return all_of(field("max_seqlen_q") < few, field("max_seqlen_k") >= least_keys(few))


BY_THE_FASTEST: Final = few_queries("mla.pipelined")
"""The most of all candidates."""
