"""Inspected kernels as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kinfolk.cli.output import say
from kinfolk.cli.table import print_table
from kinfolk_runtime.cli.tables import FEW
from kinfolk_runtime.inspection.mca import NOT_ASKED

if TYPE_CHECKING:
    from kinfolk_runtime.inspection import InspectedKernel
    from kinfolk_runtime.inspection.kernel import Part

_RULES: Final = {
    "named": "cold blocks are those that the kernel marks",
    "layout": "cold blocks are those that stand behind the loop, have no matrix instruction, and can be skipped",
}


def print_inspected(title: str, kernels: Sequence[InspectedKernel]) -> None:
    """Print the figures of kernels side by side, or of many a line of the rates for each."""
    if len(kernels) <= FEW:
        columns = [_rows(kernel) for kernel in kernels]
        names = list(dict.fromkeys(name for column in columns for name in column))
        cells = [(name, *(column.get(name, "") for column in columns)) for name in names]
        print_table(title, ("figure", *(kernel.symbol for kernel in kernels)), cells)
    else:
        names = list(kernels[0].rates())
        heads = ("kernel", *(name.removeprefix("clocks_per_token_64h").lstrip("_") or "hot" for name in names))
        lines = [(each.symbol, *map(_number, each.rates().values()), _share(each.hot)) for each in kernels]
        print_table(f"{title}: clocks per token and 64 heads", (*heads, "matrix share"), lines)
    notes = (part.mca.note for each in kernels for part in (each.hot, each.every) if part is not None)
    for note in dict.fromkeys(note for note in notes if note not in ("", NOT_ASKED)):
        say(f"llvm-mca: {note}")
    for rule in dict.fromkeys(each.loop.rule for each in kernels if each.loop and each.loop.cold):
        say(f"{_RULES[rule]}; figures in brackets are with them")


def _rows(kernel: InspectedKernel) -> dict[str, str]:
    """Return the figures by name; those of a round with cold blocks in brackets where they differ."""
    figures = {**kernel.figures, "scratch_ops": kernel.scratch_ops}
    loop, hot, every = kernel.loop, kernel.hot, kernel.every
    if loop is None or hot is None or every is None:
        return {"main loop": "none", **{name: str(value) for name, value in figures.items()}}
    rates = kernel.rates()
    waves = f"{kernel.waves} waves"
    work = f"{kernel.work.tokens} tokens x {kernel.work.heads} heads by {waves}" if kernel.work else ""
    names = ", ".join(block.label for block in loop.cold)
    told = {
        "main loop": f"{loop.header}, {len(loop.blocks)} blocks" + (f", cold: {names}" if names else ""),
        "a round": work or f"{waves}, no work declared",
        "clocks per token and 64 heads, llvm": _with(rates["clocks_per_token_64h"], rates["clocks_per_token_64h_all"]),
        "clocks per token and 64 heads, real": _with(
            rates["clocks_per_token_64h_real"], rates["clocks_per_token_64h_real_all"]
        ),
        "clocks per token and 64 heads, llvm-mca": _number(rates["clocks_per_token_64h_mca"]),
        "clocks per token and 64 heads, matrix unit": _number(rates["clocks_per_token_64h_matrix"]),
        "matrix share": _share(hot, every),
        "clocks of a round, llvm": _with(hot.clocks["llvm"], every.clocks["llvm"]),
        "clocks of a round, real": _with(hot.clocks["real"], every.clocks["real"]),
        "clocks of a round, llvm-mca": _with(hot.mca_clocks, every.mca_clocks),
    }
    told = {name: value for name, value in told.items() if value}
    one, whole = hot.to_dict(), every.to_dict()
    for issue, count in whole["issued"].items():
        what = "uncounted" if issue == "none" else issue.replace("_", " ")
        told[f"{what} instructions"] = _with(one["issued"].get(issue, 0), count)
    for name in ("full_drains", "scratch_ops"):
        told[f"{name.replace('_', ' ')} of a round"] = _with(one[name], whole[name])
    for way, moved in whole["workgroup_bytes_per_lane"].items():
        told[f"workgroup memory bytes {way} by a lane"] = _with(one["workgroup_bytes_per_lane"][way], moved)
    return told | {name: str(value) for name, value in figures.items()}


def _share(hot: Part | None, every: Part | None = None) -> str:
    def percent(part: Part | None) -> str:
        share = None if part is None else part.matrix_share
        return "" if share is None else f"{share:.1%}"

    return _both(percent(hot), percent(every) if every is not None else "")


def _with(hot: float | None, every: float | None) -> str:
    return _both(_number(hot), _number(every))


def _both(first: str, second: str) -> str:
    return first if second in ("", first) else f"{first} ({second})"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")
