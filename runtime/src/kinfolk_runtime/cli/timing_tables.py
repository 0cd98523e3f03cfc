"""Where the time of machine code goes, as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kinfolk.cli.output import print_refusals, refusal_rows, say, shell_word
from kinfolk.cli.table import print_table
from kinfolk.timing import CAUSES

if TYPE_CHECKING:
    from kinfolk.timing import InstructionTiming, LoopTiming, Spent, Timing
    from kinfolk_runtime.profile.timed import TimedKernel, TimedProfile

WORST: Final = 8
"""As many instructions are listed: those that most clocks go to."""
LOOPS: Final = 3
"""As many loops have columns of their own: those that most clocks go to."""
NOT_MEASURED: Final = "a model of the machine, nothing was measured; what it counts with is in --json and docs/isa.md"


def print_timed(profile: TimedProfile, asked: Mapping[str, Any]) -> None:
    """Print each launch's clocks, what they go to, in all and per loop, and the instructions that most go to.

    `asked` are the fields of the request that was asked for; a scenario may be of another.
    """
    known = {**asked, "candidate": profile.candidate}
    other = {name: value for name, value in profile.request.items() if value != known.get(name)}
    if profile.kernels and other:
        words = " ".join(f"{name}={shell_word(value)}" for name, value in other.items())
        say(f"scenario {profile.scenario} is of another request: {words}")
    if profile.kernels and profile.object is not None:
        say(f"{profile.object} on {profile.arch}")
    elif profile.kernels:
        say(f"{profile.family} on {profile.arch}, {profile.flavor}: {profile.candidate}, scenario {profile.scenario}")
    for kernel in profile.kernels:
        _print_figures(kernel.timing)
        _print_causes(kernel.timing)
        _print_instructions(kernel.timing)
        _print_sensitivity(profile, kernel)
    print_refusals(refusal_rows(profile.refusals))
    say(_verdict(profile))


def _print_figures(timing: Timing) -> None:
    spent = timing.spent
    rows = [
        ("workgroups", f"{timing.workgroups:,} on {timing.compute_units} compute units"),
        ("of the fullest unit", f"{timing.share}, {timing.resident} at a time; {timing.timed} timed"),
        ("waves per SIMD", str(timing.waves_per_simd)),
        ("clocks of these", f"{timing.clocks:,.0f}"),
        ("clocks of the launch", f"{timing.clocks_of_grid:,.0f}"),
        ("most go to", _share(spent, spent.bound) if spent.bound else ""),
        ("units busy", ", ".join(f"{name.replace('_', ' ')} {part:.0%}" for name, part in timing.busy.items())),
    ]
    print_table(timing.symbol, ("figure", "value"), rows)


def _share(spent: Spent, cause: Any) -> str:
    return f"{cause.replace('_', ' ')}, {spent.of(cause) / spent.clocks:.0%}"


def _print_causes(timing: Timing) -> None:
    """Print the clocks of all waves by cause: of the launch, and of its loops."""
    chosen = sorted(timing.loops, key=lambda each: -each.spent.clocks)[:LOOPS]
    columns = ["clocks of waves go to", "issuing", "standing still", "of all", *map(_loop_name, chosen)]
    whole, rows = timing.spent, list[list[str]]()
    for cause in CAUSES:
        if whole.of(cause):
            parts = [f"{each.spent.of(cause) / each.spent.clocks:.1%}" for each in chosen]
            issue, stalls = whole.issue.get(cause, 0), whole.stalls.get(cause, 0)
            row = [cause.replace("_", " "), f"{issue:,.0f}", f"{stalls:,.0f}", f"{whole.of(cause) / whole.clocks:.1%}"]
            rows.append([*row, *parts])
    issue, stalls = sum(whole.issue.values()), sum(whole.stalls.values())
    rows.append(["in all", f"{issue:,.0f}", f"{stalls:,.0f}", "100.0%", *("100.0%" for _ in chosen)])
    print_table("", columns, rows)
    for each in chosen:
        matrix = f", {each.matrix_instructions} matrix instructions" if each.matrix_instructions else ""
        say(
            f"{_loop_name(each)}, back from {each.end:#x}: {each.clocks_per_round:,.1f} clocks a round{matrix}, "
            f"{each.rounds:,} rounds of all waves, bound by {_share(each.spent, each.spent.bound)}"
        )


def _loop_name(loop: LoopTiming) -> str:
    return f"loop {loop.begin:#x}"


def _print_instructions(timing: Timing) -> None:
    worst = sorted(timing.instructions, key=lambda each: -each.spent.clocks)[:WORST]
    rows = [
        (
            f"{each.offset:#x}",
            f"{each.count:,}",
            f"{sum(each.spent.issue.values()):,.0f}",
            f"{sum(each.spent.stalls.values()):,.0f}",
            _stalled_by(each),
            each.text,
        )
        for each in worst
    ]
    print_table("most clocks", ("offset", "count", "issue", "still", "because of", "instruction"), rows)


def _stalled_by(each: InstructionTiming) -> str:
    stalls = each.spent.stalls
    return max(stalls, key=lambda cause: stalls[cause]).replace("_", " ") if stalls else ""


def _print_sensitivity(profile: TimedProfile, kernel: TimedKernel) -> None:
    if not kernel.sensitivity:
        return
    rows = [
        (
            each.name,
            f"{each.value:g} {each.unit}",
            *(f"{ratio - 1:+.1%}" for ratio in kernel.sensitivity[each.name]),
        )
        for each in sorted(profile.constants, key=lambda each: -_spread(kernel.sensitivity[each.name]))
    ]
    print_table("clocks of the launch with a constant", ("constant", "is", "half of it", "half more"), rows)


def _spread(ratios: tuple[float, float]) -> float:
    return max(abs(ratio - 1) for ratio in ratios)


def _verdict(profile: TimedProfile) -> str:
    if profile.status == "fail" and not profile.refusals:
        return "fail: nothing was run: no launch has a workgroup. Ask for a request with work to do."
    if profile.status != "pass":
        return f"{profile.status}: nothing was timed"
    time = profile.microseconds
    at = f", {time:,.1f} µs at {profile.clock_mhz} MHz" if time is not None else ""
    many = f" of {len(profile.kernels)} launches" if len(profile.kernels) > 1 else ""
    return f"pass: {profile.clocks:,.0f} clocks{many}{at}: {NOT_MEASURED}"
