"""The one candidate: what it takes, what it launches and binds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kinfolk.arguments import named_arguments
from kinfolk.candidate import Candidate
from kinfolk.expr import fact, field, floor_div, minimum, one_of, stride
from kinfolk.plan import Axis, Binding, Launch, Plan
from kinfolk.refusal import Limit
from kinfolk_row_softmax.spec import DTYPES, RowSoftmaxSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_row_softmax.request import RowSoftmaxRequest

PLUGIN: Final = "kinfolk-row-softmax"
WAVES: Final = 4

CAPABILITY: Final = (
    Limit(
        "row_softmax.dtype",
        "not_implemented",
        "dtype",
        one_of(field("dtype"), DTYPES),
        because="elements are widened to f32 one by one",
        remedy="Convert x to one of these types.",
    ),
    Limit(
        "row_softmax.rows",
        "cannot",
        "rows",
        field("rows") <= fact("max_grid_x"),
        because="a workgroup takes one row",
        remedy="Divide the rows over several requests.",
    ),
    Limit(
        "row_softmax.columns",
        "cannot",
        "columns",
        field("columns") <= minimum(floor_div(fact("max_view_bytes"), 4) - 1, RowSoftmaxSpec.most_columns),
        because="a row is one bounded view",
        remedy="Divide the row, and join the parts by their lse.",
    ),
)


def row_softmax_specs(arch: Arch, flavor: str) -> Iterator[RowSoftmaxSpec]:
    """Yield every spec that a plan can name."""
    for dtype in DTYPES:
        yield RowSoftmaxSpec(dtype=dtype, waves=WAVES)


def row_softmax_plan(request: RowSoftmaxRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request: a workgroup per row."""
    spec = RowSoftmaxSpec(dtype=request.dtype, waves=WAVES)
    rows, columns = Axis(field("rows")), Axis(field("columns"))
    free_rows = Axis(field("rows"), stride=None)
    bindings = (
        Binding(name="x", role="input", dtype=spec.dtype, shape=(free_rows, columns), alignment=4, access="read"),
        Binding(name="y", role="output", dtype=spec.dtype, shape=(rows, columns), alignment=4, access="write"),
        Binding(name="lse", role="output", dtype="f32", shape=(rows,), alignment=4, access="write"),
    )
    integers = {"columns": field("columns"), "row_stride": stride("x", 0)}
    arguments = named_arguments(spec.parameters(), integers)
    return Plan(
        request=request,
        launches=(
            Launch(spec=spec, grid=(field("rows"), 1, 1), block=spec.waves * arch.wave_size, arguments=arguments),
        ),
        bindings=bindings,
        outputs=("y", "lse"),
    )


ONE_ROW_EACH: Final = Candidate(
    name="row_softmax.one_row_each",
    priority=0,
    plugin=PLUGIN,
    capability=CAPABILITY,
    plan=row_softmax_plan,
    specs=row_softmax_specs,
)
