"""What projected queries over latent rows launch and bind: queries are absorbed, latent attention serves them as it
does any, its outputs are projected.

Each candidate for latent attention gives one here, with its limits, notes and order: what would serve absorbed queries
serves the projected ones. Behind a long prefix that costs less than forming keys and values of all of it: where, says
`preference`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.candidate import Candidate, Note
from kinfolk.expr import Expr, all_of, ceil_div, field, not_
from kinfolk.plan import Argument, Launch, Plan
from kinfolk.remark import Remark
from kinfolk_mla.absorbed.limits import capability, name_over
from kinfolk_mla.absorbed.spec import MlaAbsorbSpec, MlaProjectSpec, MlaTokensSpec
from kinfolk_mla.decode.candidate import DECODE
from kinfolk_mla.decode.limits import DTYPE, LATENT_WIDTH, ROPE_WIDTH
from kinfolk_mla.prefill.bindings import PROJECTED
from kinfolk_mla.prefill.limits import CAPABILITY, HEAD_WIDTH
from kinfolk_mla.prefill.preference import few_queries, least_keys, over_latent_rows
from kinfolk_mla.wide.plan import GROUPED, PIPELINED

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec
    from kinfolk_mla.request import MlaRequest


def absorb_spec() -> MlaAbsorbSpec:
    """Return the spec of the kernel that absorbs."""
    return MlaAbsorbSpec(
        latent_width=LATENT_WIDTH,
        rope_width=ROPE_WIDTH,
        head_width=HEAD_WIDTH,
        dtype=DTYPE,
        weight_rows=64,
        read_ahead=4,
    )


def project_spec() -> MlaProjectSpec:
    """Return the spec of the kernel that projects."""
    return MlaProjectSpec(latent_width=LATENT_WIDTH, head_width=HEAD_WIDTH, dtype=DTYPE, weight_rows=64, read_ahead=4)


def absorbed(latent: Candidate) -> Candidate:
    """Return the candidate that serves projected queries by one for latent attention, with two kernels around it."""

    few = few_queries(latent.name)

    def plan(request: MlaRequest, arch: Arch) -> Plan:
        """Return the plan of an admitted request."""
        return _around(latent.plan(request, arch), few, arch)

    def specs(arch: Arch, flavor: str) -> Iterator[Spec]:
        """Yield every spec that a plan can name."""
        yield absorb_spec()
        yield from latent.specs(arch, flavor)
        yield project_spec()

    return attrs.evolve(
        latent,
        name=name_over(latent),
        priority=AFTER_PREFILL + latent.priority,
        capability=capability(latent),
        plan=plan,
        specs=specs,
        notes=(*latent.notes, _slower(few)),
    )


AFTER_PREFILL: Final = 10
"""Where all are slower than another, keys and values are formed."""


def _slower(few: Expr) -> Note:
    """Return the note where `mla.prefill` costs less, of requests that it takes."""
    taken = all_of(*(limit.condition for limit in CAPABILITY))
    return Note(
        "slower than keys and values formed once: too many queries a sequence, or too few keys",
        when=all_of(not_(over_latent_rows(few)), taken),
        slower=True,
    )


def _remark(few: Expr) -> Remark:
    queries = field("max_seqlen_q")
    return Remark(
        "with up to {queries} queries a sequence, absorbing them pays from {least} keys on",
        queries < few,
        {"queries": queries, "least": least_keys(few)},
    )


def _around(plan: Plan, few: Expr, arch: Arch) -> Plan:
    """Return the plan of latent attention with queries and outputs in workspaces, between the two kernels."""
    launches = (
        attrs.evolve(each, arguments=tuple(_latent(argument) for argument in each.arguments)) for each in plan.launches
    )
    known = {binding.name: binding for binding in plan.bindings}
    latent = attrs.evolve(known["out"], name="latent", means="softmax(scale q.k) times the latent rows")
    workspaces = (
        *(attrs.evolve(each, role="workspace", access="readwrite") for each in (known["qa"], latent)),
        *(each for each in plan.bindings if each.role == "workspace"),
    )
    return attrs.evolve(
        plan,
        launches=(_launch(absorb_spec(), arch), *launches, _launch(project_spec(), arch)),
        bindings=(*(each if each.name == "out" else known.get(each.name, each) for each in PROJECTED), *workspaces),
        remarks=(_remark(few), *plan.remarks),
    )


def _latent(argument: Argument) -> Argument:
    """Return an argument of latent attention, whose output is a workspace."""
    return attrs.evolve(argument, value="latent") if argument.value == "out" else argument


def _launch(spec: MlaTokensSpec, arch: Arch) -> Launch:
    tokens, heads = field("total_q"), field("num_heads")
    return Launch(
        spec=spec,
        grid=(heads, ceil_div(tokens, spec.block), 1),
        block=spec.waves * arch.wave_size,
        arguments=(
            *(Argument(each.name, "pointer", each.name) for each in spec.parameters() if each.is_pointer),
            Argument("total_q", "i32", tokens),
            Argument("num_heads", "i32", heads),
        ),
    )


ABSORBED: Final = tuple(absorbed(latent) for latent in (PIPELINED, GROUPED, DECODE))
