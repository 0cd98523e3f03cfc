"""A profile as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kinfolk.cli.output import print_refusals, refusal_rows, say, shell_word
from kinfolk.cli.table import print_table
from kinfolk_runtime.memory import sized

if TYPE_CHECKING:
    from kinfolk.banks import BankCost
    from kinfolk_runtime.profile import Instruction, KernelProfile, Profile

WORST: Final = 5
"""As many instructions are listed as the worst of a kind."""


def print_profile(profile: Profile, asked: Mapping[str, Any]) -> None:
    """Print what kernels did, side by side, then each one's worst instructions, and the verdict.

    `asked` are the fields of the request that was asked for; a scenario may be of another. That it pins the candidate
    that was selected makes none: the title names it.
    """
    kernels, known = profile.kernels, {**asked, "candidate": profile.candidate}
    other = {name: value for name, value in profile.request.items() if value != known.get(name)}
    if kernels and other:
        words = " ".join(f"{name}={shell_word(value)}" for name, value in other.items())
        say(f"scenario {profile.scenario} is of another request: {words}")
    if kernels:
        title = (
            f"{profile.family} on {profile.arch}, {profile.flavor}: {profile.candidate}, scenario {profile.scenario}"
        )
        rows = [_figures(kernel) for kernel in kernels]
        print_table(
            title,
            ("figure", *(kernel.kernel.name for kernel in kernels)),
            [(name, *(row.get(name, "") for row in rows)) for name in dict.fromkeys(n for row in rows for n in row)],
        )
    for kernel in kernels:
        _print_worst_banks(kernel)
        _print_worst_segments(kernel)
    for reason in dict.fromkeys(kernel.unmeasured for kernel in kernels if kernel.unmeasured):
        say(f"bank cycles marked ≥ are bounds that hold however lanes are served: {reason}")
    print_refusals(refusal_rows(profile.refusals))
    say(_verdict(profile))


def _figures(kernel: KernelProfile) -> dict[str, str]:
    counts, total = kernel.counts, kernel.total
    cost = counts.bank_cost()
    branches, both = kernel.branches
    found = {
        "workgroups measured": f"{kernel.measured} of {kernel.workgroups}",
        "matrix FLOPs issued": f"{counts.flops:,}",
        "global bytes read": f"{total('global_read'):,} ({counts.distinct_read():,} distinct)",
        "global bytes written": f"{total('global_written'):,} ({counts.distinct_written():,} distinct)",
        "global bytes over the minimum": _times(kernel.times_minimum),
    }
    for each in counts.segments():
        found[f"segments of {each.size} bytes"] = f"{each.touched:,} touched, {each.fewest:,} at best"
    found["workgroup memory bytes read"] = f"{total('workgroup_read'):,}"
    found["workgroup memory bytes written"] = f"{total('workgroup_written'):,}"
    if cost is not None:
        found["workgroup memory cycles"] = f"{_cycles(cost)}, {cost.fewest:,} without conflicts"
    if kernel.active_share is not None:
        found["active lanes"] = f"{kernel.active_share:.2%}"
    found["branches"] = f"{branches:,}, lanes parted at {both:,}"
    for name, count in sorted(counts.issued().items()):
        found[f"{name.replace('_', ' ')} ops"] = f"{count:,}"
    return found


def _times(ratio: float | None) -> str:
    return "nothing moved" if ratio is None else f"{ratio:.3g} times"


def _cycles(cost: BankCost) -> str:
    return f"{'' if cost.exact else '≥ '}{cost.cycles:,}"


def _ranked(kernel: KernelProfile, excess: Callable[[Instruction], float]) -> Sequence[Instruction]:
    """Return the instructions with the most of something, those without any left out."""
    found = sorted(kernel.instructions, key=excess, reverse=True)
    return [each for each in found[:WORST] if excess(each) > 0]


def _print_worst_banks(kernel: KernelProfile) -> None:
    worst = _ranked(kernel, lambda each: each.banks.conflicts if each.banks else 0)
    rows = [
        (
            each.name,
            f"{each.executions:,}",
            f"{_cycles(each.banks)} of {each.banks.fewest:,}",
            f"{_cycles(each.worst_cost)} of {each.worst_cost.fewest:,}",
            each.source,
        )
        for each in worst
        if each.banks and each.worst_cost
    ]
    if rows:
        columns = ("op", "executions", "cycles, without conflicts", "worst access", "source")
        print_table(f"{kernel.kernel.name}: the most bank conflicts", columns, rows)


def _print_worst_segments(kernel: KernelProfile) -> None:
    worst = _ranked(kernel, lambda each: each.segments[-1].touched - each.segments[-1].fewest)
    rows = [
        (
            each.name,
            f"{each.executions:,}",
            *(f"{mine.touched:,} of {mine.fewest:,}" for mine in each.segments),
            *(f"{mine.touched:,} of {mine.fewest:,}" for mine in each.worst_segments[-1:]),
            each.source,
        )
        for each in worst
    ]
    if rows:
        sizes = [each.size for each in worst[0].segments]
        columns = ("op", "executions", *(f"{size}-byte segments, at best" for size in sizes), "worst access", "source")
        print_table(f"{kernel.kernel.name}: the least coalesced accesses", columns, rows)


def _verdict(profile: Profile) -> str:
    """Return the last line: the status, and how much of the work was useful."""
    if profile.status == "fail" and not profile.refusals:
        return "fail: nothing was run: no launch has a workgroup. Ask for a request with work to do."
    if profile.status != "pass":
        return f"{profile.status}: nothing was measured"
    parts = [kernel for kernel in profile.kernels if kernel.measured < kernel.workgroups]
    estimate = ", in proportion to the measured workgroups," if parts else ""
    if profile.useful_flops is None:
        return f"pass: the family does not say how many FLOPs are useful, {profile.issued_flops:,}{estimate} are issued"
    share = "" if profile.useful_share is None else f": {profile.useful_share:.1%}"
    moved = sum(kernel.total("global_read") + kernel.total("global_written") for kernel in profile.kernels)
    told = f"pass: {profile.useful_flops:,} useful matrix FLOPs of {profile.issued_flops:,}{estimate} issued{share}"
    return f"{told}; {sized(moved)} moved to and from global memory by the measured workgroups"
