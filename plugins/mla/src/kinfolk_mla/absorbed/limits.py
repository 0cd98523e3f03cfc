"""What projected queries over latent rows take: of a request, of specs on an arch, and of what the compiler made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kinfolk.budget import budget_limits
from kinfolk.candidate import Candidate
from kinfolk.expr import all_of, ceil_div, eq, fact, field, not_
from kinfolk.refusal import Limit
from kinfolk_mla.absorbed.spec import MlaAbsorbSpec, MlaProjectSpec, MlaTokensSpec
from kinfolk_mla.decode.limits import ROPE_WIDTH, single
from kinfolk_mla.prefill.limits import HEAD_WIDTH, weights_limits

CODE: Final = "mla.absorbed"
"""Begins the names of the candidates, and the codes of what both kernels around attention must meet."""


def name_over(latent: Candidate) -> str:
    """Return the name of the candidate that serves projected queries by one for latent attention."""
    return f"{CODE}.{latent.name.rpartition('.')[2]}"


def is_over_latent_rows(candidate: str | None) -> bool:
    """Whether a candidate of this name absorbs projected queries."""
    return candidate is not None and candidate.startswith(f"{CODE}.")


def capability(latent: Candidate) -> tuple[Limit, ...]:
    """Return what a request must meet: all that the candidate for latent attention takes, but queries as projected."""
    code = name_over(latent)
    inherited = [
        attrs.evolve(limit, code=f"{code}{limit.code.removeprefix(latent.name)}")
        for limit in latent.capability
        if limit.field not in ("absorbed_query", "total_q")
    ]
    tokens, block = field("total_q"), MlaTokensSpec.block
    return (
        Limit(
            f"{code}.absorbed_query",
            "not_implemented",
            "absorbed_query",
            not_(field("absorbed_query")),
            because="the up-projection of keys is absorbed here, which an absorbed query has met already",
            remedy="Pass the query as it was projected, with absorbed_query=False and the up-projection as w_ukv.",
        ),
        *(
            Limit(
                f"{code}.{name}",
                "not_implemented",
                name,
                eq(field(name), HEAD_WIDTH),
                because="weights are staged in tiles as wide as a head",
                remedy=f"Pass a model in which it is {HEAD_WIDTH}.",
            )
            for name in ("nope_dim", "v_dim")
        ),
        *inherited,
        Limit(
            f"{code}.total_q",
            "cannot",
            "total_q",
            all_of(tokens <= MlaTokensSpec.most_keys, ceil_div(tokens, block) <= fact("max_grid_y")),
            because=f"blocks of {block} queries are an axis of the grid",
            remedy="Split the batch.",
        ),
    )


SPEC_LIMITS: Final[Mapping[type[MlaTokensSpec], tuple[Limit, ...]]] = {
    MlaAbsorbSpec: (*weights_limits(CODE), single(CODE, "rope_width", ROPE_WIDTH)),
    MlaProjectSpec: weights_limits(CODE),
}
"""What a spec must meet on an arch, by its class."""


def resource_limits(spec: MlaTokensSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
    return budget_limits(CODE, spec.workgroups_per_cu, spec.waves, "Read less far ahead.")
