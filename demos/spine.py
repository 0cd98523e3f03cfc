"""Models' decode requests, from the question to checked outputs: why this kernel, what it costs, whether it works.

No GPU is needed: LLVM compiles for the arch, the simulator runs the kernel. The last request is the first one again on
another arch: same emitter, other atoms, other reads. What is not installed is named, with what to install, and left
out. Exit status 0 only if something ran and every check of it passes.
"""

import math
import sys
import time

from kinfolk import compose, dispatch, why
from kinfolk.check import Report
from kinfolk.expr import Scope
from kinfolk.plugins.composition import request_type_of
from kinfolk.plugins.faults import State, UnknownPlugin, UnusablePlugin
from kinfolk.request import Request
from kinfolk_runtime.cli.tables import print_kernels, print_report
from kinfolk_runtime.verify import verify

FAMILY = "mla"
STEPS = (("DeepSeek-V3", 128, "gfx942"), ("Kimi-K2", 64, "gfx942"), ("DeepSeek-V3", 128, "gfx950"))
SEQUENCES, LONGEST, PAGE = 4, 1024, 16


def decode_step(num_heads: int) -> Request:
    """Return one decode step: one new token for each of four sequences of up to 1,024 keys, lengths of their own."""
    return request_type_of(FAMILY)(
        num_heads=num_heads,
        num_seqs=SEQUENCES,
        total_q=SEQUENCES,
        max_seqlen_q=1,
        max_seqlen_k=LONGEST,
        absorbed_query=True,
        page_size=PAGE,
        num_pages=SEQUENCES * LONGEST // PAGE,
        dtype="bf16",
        kv_dtype="bf16",
        causal=True,
        scale=1 / math.sqrt(128 + 64),  # by the width of a query before absorption: nope_dim + rope_dim
    )


def absent(arch: str) -> str:
    """Return what the family on an arch lacks here, and what to install; nothing where it is here.

    What is kept out by the allow list counts as absent; a plugin that is installed and broken raises.
    """
    try:
        compose(FAMILY, arch)
    except UnknownPlugin as error:
        return str(error)
    except UnusablePlugin as error:
        if error.state is not State.NOT_ALLOWED:
            raise
        return str(error)
    return ""


def print_reasons(request: Request, arch: str) -> None:
    """Print what became of every candidate, and what the selected one takes beside what the request asks."""
    answer = why(request, arch)
    print(answer)
    composition = compose(request.family, arch)
    scope = Scope(request=request, arch=composition.arch)
    for candidate in composition.candidates():
        if candidate.name == answer.selected:
            for limit in candidate.capability:
                asked = getattr(request, limit.field)
                print(f"    {limit.field} is {asked}, it takes {limit.worded(scope)}: {limit.because}")


def shown(model: str, request: Request, arch: str) -> Report:
    """Print why this kernel, its resource table and its verification, and return the report."""
    what = f"a decode step of {SEQUENCES} sequences of up to {LONGEST} keys, {request.num_heads} heads"
    print(f"\n=== {model} on {arch}: {what}\n")
    print_reasons(request, arch)
    plan = dispatch(request, arch)
    for launch in plan.launches:
        grid = " x ".join(map(str, plan.grid(launch)))
        print(f"\nlaunch {launch.spec.symbol()}: {grid} workgroups of {launch.block} threads")
    report = verify(request, arch)
    print()
    print_kernels(f"{report.family} on {arch}", report.kernels)
    print()
    print_report(report)
    return report


def main() -> int:
    started = time.monotonic()
    reports: list[Report] = []
    for model, heads, arch in STEPS:
        if lacking := absent(arch):
            print(f"\n=== {model} on {arch} is left out: {lacking}")
        else:
            reports.append(shown(model, decode_step(heads), arch))
    passed = bool(reports) and all(report.status == "pass" for report in reports)
    verdict = "All pass" if passed else "FAILED" if reports else "Nothing was run"
    left_out = len(STEPS) - len(reports)
    told = f"; {left_out} of {len(STEPS)} left out, see above what to install" if left_out else ""
    print(f"\n{verdict}, in {time.monotonic() - started:.0f} s{told}.")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
