"""Two models' decode requests, from the question to checked outputs: why this kernel, what it costs, whether it works.

No GPU is needed: LLVM compiles for gfx942, the simulator runs the kernel. Exit status 0 only if every check passes.
"""

import math
import sys
import time

from kinfolk import compose, dispatch, why
from kinfolk.check import Report
from kinfolk.expr import Scope
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.cli.tables import print_kernels, print_report
from kinfolk_runtime.verify import verify

ARCH = "gfx942"
HEADS = {"DeepSeek-V3": 128, "Kimi-K2": 64}
SEQUENCES, LONGEST, PAGE = 4, 1024, 16


def decode_step(num_heads: int) -> MlaRequest:
    """Return one decode step: one new token for each of four sequences of up to 1,024 keys, lengths of their own."""
    return MlaRequest(
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


def print_reasons(request: MlaRequest) -> None:
    """Print what became of every candidate, and what the selected one takes beside what the request asks."""
    answer = why(request, ARCH)
    print(answer)
    composition = compose(request.family, ARCH)
    scope = Scope(request=request, arch=composition.arch)
    for candidate in composition.candidates():
        if candidate.name == answer.selected:
            for limit in candidate.capability:
                asked = getattr(request, limit.field)
                print(f"    {limit.field} is {asked}, it takes {limit.worded(scope)}: {limit.because}")


def shown(model: str, request: MlaRequest) -> Report:
    """Print why this kernel, its resource table and its verification, and return the report."""
    print(f"\n=== {model}: a decode step of {SEQUENCES} sequences of up to {LONGEST} keys, {request.num_heads} heads\n")
    print_reasons(request)
    plan = dispatch(request, ARCH)
    for launch in plan.launches:
        grid = " x ".join(map(str, plan.grid(launch)))
        print(f"\nlaunch {launch.spec.symbol()}: {grid} workgroups of {launch.block} threads")
    report = verify(request, ARCH)
    print()
    print_kernels(f"{report.family} on {ARCH}", report.kernels)
    print()
    print_report(report)
    return report


def main() -> int:
    started = time.monotonic()
    reports = [shown(model, decode_step(heads)) for model, heads in HEADS.items()]
    passed = all(report.status == "pass" for report in reports)
    print(f"\n{'All pass' if passed else 'FAILED'}, in {time.monotonic() - started:.0f} s.")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
