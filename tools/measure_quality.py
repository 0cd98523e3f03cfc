"""Measure how good a family's kernels are by their code, and write that into its package; nothing runs on a GPU.

    python tools/measure_quality.py [--anew] [FAMILY...]     measure the kernels of the families on every installed arch

Of each kernel that the requests of `profiled.json` launch, for the newest flavor: the clocks and the matrix share that
`kinfolk inspect` gives, and the share of workgroup memory's cycles lost to bank conflicts that `kinfolk profile` counts
on them. What others have (`peers.json`) and what must be kept (`floors.json`) stand beside, written by hand.
`docs/generated` shows all (`tools/generate_docs.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from kinfolk.dispatch import dispatch
from kinfolk.errors import Refused
from kinfolk.flavor import flavors
from kinfolk.plan import Plan
from kinfolk.plugins.composition import Composition, compose
from kinfolk.plugins.loading import usable
from kinfolk.spec import Spec
from kinfolk_runtime.artifact import lower_spec
from kinfolk_runtime.goldens.present import llvm_digest
from kinfolk_runtime.inspection import InspectedKernel, inspect_spec
from kinfolk_runtime.profile import profile
from kinfolk_runtime.toolchains.host import toolchain_for

COMMAND = "python tools/measure_quality.py"
SCHEMA = "kinfolk.quality/2"
CLOCKS = ("clocks_per_token_64h", "clocks_per_token_64h_all", "clocks_per_token_64h_real")
FIGURES = (*CLOCKS, "matrix_share", "matrix_share_hot")
REGISTERS = ("vgpr", "agpr", "waves_per_simd")
"""What is taken from `kinfolk inspect --json`: these from what it has as `figures`."""


def folder_of(composition: Composition) -> Traversable:
    """Return where a family keeps these figures: the folder `quality` in its package."""
    offer = next(member.offer for member in composition.members if member.offer.kind == "family")
    return resources.files(offer.module.partition(".")[0]).joinpath("quality")


def document(composition: Composition, name: str) -> Any:
    """Return what a file of the family's folder holds, or None where there is none."""
    file = folder_of(composition).joinpath(f"{name}.json")
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def newest() -> str:
    """Return the flavor that kernels are measured for."""
    return max(flavors(), key=lambda flavor: flavor.rank).name


def figures(found: InspectedKernel) -> dict[str, Any]:
    """Return what is kept of an inspected kernel."""
    whole = found.to_dict()
    return {**{name: whole[name] for name in FIGURES}, **{name: whole["figures"][name] for name in REGISTERS}}


def code_of(composition: Composition, spec: Spec) -> str:
    """Return the digest of the code that figures are of."""
    return llvm_digest(lower_spec(composition, spec, newest())[1])


def plans(composition: Composition) -> Iterator[Plan]:
    """Yield the plans of the requests of `profiled.json`, but of those that the arch refuses: types of which archs have
    each their own are listed for all.
    """
    for given in document(composition, "profiled") or []:
        request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
        with contextlib.suppress(Refused):
            yield dispatch(request, composition.arch.name, newest())


def launched(composition: Composition) -> list[Spec]:
    """Return the specs of the kernels that those plans launch, each once."""
    return list({launch.spec.digest(): launch.spec for plan in plans(composition) for launch in plan.launches}.values())


def conflicts(composition: Composition) -> dict[str, float]:
    """Return the share of workgroup memory's cycles that are bank conflicts, by the digest of a kernel's spec."""
    lost: dict[str, float] = {}
    for plan in plans(composition):
        for kernel in profile(plan.request, composition.arch.name).kernels:
            cost = kernel.counts.bank_cost()
            if cost is not None and cost.cycles:
                lost[kernel.spec_digest] = round(cost.conflicts / cost.cycles, 4)
    return lost


def measured(composition: Composition, anew: bool = False) -> dict[str, Any]:
    """Return the figures of every kernel of a family on an arch; those of unchanged code are kept, unless `anew`."""
    flavor, build = newest(), toolchain_for(newest()).build
    before = document(composition, composition.arch.name)
    same = (
        before is not None
        and not anew
        and all(before[name] == now for name, now in (("schema", SCHEMA), ("flavor", flavor), ("build", build)))
    )
    known = {(row["spec"], row["llvm"]): row for row in before["kernels"]} if same else {}
    specs = launched(composition)
    codes = {spec: code_of(composition, spec) for spec in specs}
    lost = conflicts(composition) if any((spec.digest(), code) not in known for spec, code in codes.items()) else {}
    rows = [
        known.get((spec.digest(), code))
        or {
            "symbol": spec.symbol(),
            "spec": spec.digest(),
            "llvm": code,
            **figures(inspect_spec(composition, spec, flavor, mca=False)),
            "bank_conflicts": lost.get(spec.digest()),
        }
        for spec, code in codes.items()
    ]
    return {"schema": SCHEMA, "arch": composition.arch.name, "flavor": flavor, "build": build, "kernels": rows}


def text(found: Mapping[str, Any]) -> str:
    """Return the file of these figures, a kernel a line."""
    head = [f" {json.dumps(name)}: {json.dumps(found[name])}," for name in ("schema", "arch", "flavor", "build")]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in found["kernels"])
    return "\n".join(["{", *head, ' "kernels": [', rows, " ]", "}", ""])


def short(symbol: str, spec: str) -> str:
    """Return a kernel's symbol without the digest in it."""
    return symbol.removesuffix(f"_{spec[:8]}")


def broken(composition: Composition, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each floor that a kernel is below, or that no kernel has."""
    for floor in (document(composition, "floors") or {}).get(composition.arch.name, []):
        figure, least, most = floor["figure"], floor.get("at_least"), floor.get("at_most")
        named = [row for row in rows if row["symbol"].startswith(floor["kernel"] + "_")]
        held = [row for row in named if row[figure] is not None]
        if not held:
            yield f"{floor['kernel']} has a floor, and {composition.arch.name} no kernel of that name with {figure}"
        for row in held:
            if (least is not None and row[figure] < least) or (most is not None and row[figure] > most):
                bound = f"at least {least}" if least is not None else f"at most {most}"
                yield f"{row['symbol']} on {composition.arch.name}: {figure} is {row[figure]}, {bound} is kept"


COLUMNS = (
    "kernel",
    "clocks",
    "with cold blocks",
    "real",
    "matrix share",
    "hot",
    "conflicts",
    "VGPR",
    "AGPR",
    "waves",
    "kept",
    "source",
)


def page(composition: Composition) -> Iterator[Sequence[object]]:
    """Yield the rows of `COLUMNS`: a family's kernels on an arch as measured, then what others have."""
    found = document(composition, composition.arch.name)
    if found is None:
        return
    floors = (document(composition, "floors") or {}).get(composition.arch.name, [])
    for row in found["kernels"]:
        kept = [
            f"{floor['figure']} {'at least' if 'at_least' in floor else 'at most'} "
            f"{floor.get('at_least', floor.get('at_most'))}"
            for floor in floors
            if row["symbol"].startswith(floor["kernel"] + "_") and row[floor["figure"]] is not None
        ]
        yield (
            short(row["symbol"], row["spec"]),
            *(_shown(row[name]) for name in CLOCKS),
            *(_shown(row[name] or None) for name in ("matrix_share", "matrix_share_hot")),
            "" if row["bank_conflicts"] is None else f"{row['bank_conflicts']:.1%}",
            *(row[name] for name in REGISTERS),
            "<br>".join(kept),
            "this build",
        )
    for row in (document(composition, "peers") or {}).get(composition.arch.name, []):
        yield (
            f"{row['kernel']} ({row['of']})",
            _shown(row["clocks_per_token_64h"]),
            "",
            _shown(row["clocks_per_token_64h_real"]),
            _shown(row["matrix_share"]),
            _shown(row.get("matrix_share_hot")),
            "",
            *(row[name] for name in REGISTERS),
            "",
            row["source"],
        )


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 1 else f"{value:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="*", help="by default all that keep such figures")
    parser.add_argument("--anew", action="store_true", help="measure unchanged code too")
    arguments = parser.parse_args()
    failed = False
    for family in arguments.family or usable("family"):
        for arch in usable("arch"):
            composition = compose(family, arch)
            folder = folder_of(composition)
            if not isinstance(folder, Path) or not folder.is_dir():
                continue
            found = measured(composition, arguments.anew)
            (folder / f"{arch}.json").write_text(text(found), encoding="utf-8", newline="\n")
            print(f"{family} on {arch}: {len(found['kernels'])} kernels measured")
            for said in broken(composition, found["kernels"]):
                failed = True
                print(said)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
