"""Writing a bundle: every candidate of a family on an arch, as data, with the linked code object of each spec."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.candidate import Candidate, Note
from kinfolk.expr import Expr, Scope, any_of
from kinfolk.expr.node import Fact
from kinfolk.flavor import flavor_named
from kinfolk.record import encode, fields_of
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk_runtime.bundles.choices import Case, Pending, cases
from kinfolk_runtime.bundles.document import CODE, FILE, IR, SCHEMA, BundleError, Values, digest_of, text_of
from kinfolk_runtime.bundles.kernel_data import kernel_files, linker_name
from kinfolk_runtime.bundles.limit_data import limit_data, note_data, refusal_data
from kinfolk_runtime.bundles.plan_data import plan_data
from kinfolk_runtime.bundles.request_data import request_data
from kinfolk_runtime.compilation import compile_specs
from kinfolk_runtime.toolchains.base import Toolchain

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition

Cases = list[tuple[Candidate, tuple[Case, ...]]]
LAUNCH_FACTS = ("max_grid_x", "max_grid_y", "max_grid_z", "max_workgroup_size")
"""Facts that a launch is held to, where the arch declares them."""


@attrs.frozen(kw_only=True)
class Written:
    """What was written: where, how many candidates, cases and kernels."""

    folder: Path
    candidates: int
    cases: int
    kernels: int

    def __str__(self) -> str:
        counts = (
            f"{self.candidates} candidate{'s' * (self.candidates != 1)}, {self.cases} case{'s' * (self.cases != 1)}, "
            f"{self.kernels} kernel{'s' * (self.kernels != 1)}"
        )
        return f"{counts}: {self.folder}"


def _no_step(name: str) -> None:
    pass


def write_bundle(
    folder: Path | str,
    composition: Composition,
    flavor: str,
    *,
    request: Request | None = None,
    toolchain: Toolchain | None = None,
    step: Callable[[str], None] = _no_step,
) -> Written:
    """Write a bundle of a family on an arch into a folder, which is made, or is empty, or a bundle that is replaced.

    With a `request`, only what requests with its key need, which are those that differ in launch fields alone. Equal
    input gives equal bytes. `step` is called with the name of each kernel. Raises BundleError for what cannot be data,
    ToolError without a linker, Refused for kernels outside the gate, OSError where the folder cannot be written.
    """
    folder = Path(folder)
    linker_name()
    _expect_no_ranking(composition)
    covers = _covers(request)
    by_candidate = cases_of(composition, flavor, covers)
    specs = _specs(by_candidate)
    compiled = compile_specs(specs.values(), flavor, composition=composition, toolchain=toolchain)
    names = _names(specs)
    kernels: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    for digest, kernel in zip(specs, compiled, strict=True):
        kernels[digest], made = kernel_files(composition, kernel, names[digest])
        files |= made
        step(names[digest])
    data = document_of(composition, flavor, covers, by_candidate, kernels)
    files[FILE] = text_of(data)
    _replace(folder, files)
    count = sum(len(found) for _, found in by_candidate)
    return Written(folder=folder, candidates=len(by_candidate), cases=count, kernels=len(kernels))


def _expect_no_ranking(composition: Composition) -> None:
    """Refuse policies that rank: they are Python, and a host without it would choose otherwise than they do."""
    if ranking := composition.ranking():
        raise BundleError(
            f"{' and '.join(ranking)} ranks candidates in Python, which a bundle cannot carry. Leave it out with "
            f"KINFOLK_PLUGINS, which lists the plugins that are active."
        )


def _covers(request: Request | None) -> dict[str, Any]:
    """Return the fields that a bundle is made for one value of; a pin chooses among what is there, so it is none."""
    if request is None:
        return {}
    launch = {field.name for field in fields_of(type(request)) if field.metadata.get("kinfolk.launch")}
    return {
        field.name: getattr(request, field.name)
        for field in fields_of(type(request))
        if field.name not in launch and field.name != "candidate"
    }


def cases_of(composition: Composition, flavor: str, covers: Values) -> Cases:
    """Return the candidates, each with its cases; each spec of a case must be in the candidate's space."""
    return [(each, _cases_of(composition, each, flavor, covers)) for each in composition.candidates()]


def _cases_of(composition: Composition, candidate: Candidate, flavor: str, covers: Values) -> tuple[Case, ...]:
    if flavor_named(flavor).rank < candidate.min_llvm:
        return ()
    found = cases(composition, candidate, flavor, covers)
    space = {spec.identity() for spec in candidate.spec_space(composition.arch, flavor)}
    for case in found:
        for launch in case.plan.launches:
            if not case.refused and launch.spec.identity() not in space:
                raise BundleError(
                    f"{candidate.name} plans {launch.spec.symbol()} ({launch.spec.digest()}) where {case.when}, which "
                    f" is not among its {len(space)} specs. Candidate.specs yields every spec of a plan."
                )
    return found


def _specs(by_candidate: Cases) -> dict[str, Spec]:
    """Return the specs of every case that may be admitted, by digest."""
    found = {
        launch.spec.digest(): launch.spec
        for _, each in by_candidate
        for case in each
        if not case.refused
        for launch in case.plan.launches
    }
    if not found:
        raise BundleError("no candidate can serve any request here, so there is nothing to put into a bundle")
    return found


def _names(specs: Mapping[str, Spec]) -> dict[str, str]:
    """Return a file name per spec: its symbol, with the digest where two share one."""
    symbols = [spec.symbol() for spec in specs.values()]
    return {
        digest: f"{spec.symbol()}-{digest}" if symbols.count(spec.symbol()) > 1 else spec.symbol()
        for digest, spec in specs.items()
    }


def document_of(
    composition: Composition,
    flavor: str,
    covers: Values,
    by_candidate: Cases,
    kernels: dict[str, Any],
) -> dict[str, Any]:
    """Return what stands in `launch.json`."""
    arch = composition.arch
    scope = Scope(arch=arch)
    plans: list[dict[str, Any]] = []
    candidates = [_candidate_data(candidate, found, flavor, plans, scope) for candidate, found in by_candidate]
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "family": composition.family,
        "arch": arch.name,
        "target_ids": list(arch.target_ids),
        "flavor": flavor,
        "linker": linker_name(),
        "versions": dict(composition.versions),
        "policy_digests": dict(composition.policy_digests),
        "request": request_data(composition.request_type),
        "covers": {name: encode(value) for name, value in covers.items()},
        "candidates": candidates,
        "plans": plans,
        "kernels": kernels,
    }
    declared = {name for name in LAUNCH_FACTS if name in arch.facts}
    read = _facts_read(by_candidate)
    if missing := sorted(name for name in read if name not in arch.facts):
        raise BundleError(
            f"{composition.family} on {arch.name}: limits and plans read {', '.join(missing)}, which {arch.name} does "
            "not declare, and a bundle holds facts by value. Declare them among the arch's facts."
        )
    data["facts"] = {name: arch.facts[name] for name in sorted(read | declared)}
    data["digest"] = digest_of(data)
    return data


def _candidate_data(
    candidate: Candidate, found: tuple[Case, ...], flavor: str, plans: list[dict[str, Any]], scope: Scope
) -> dict[str, Any]:
    from kinfolk.dispatch.select import too_old

    return {
        "name": candidate.name,
        "priority": candidate.priority,
        "plugin": candidate.plugin,
        "min_llvm": candidate.min_llvm,
        "admission": [
            *(refusal_data(refusal) for refusal in too_old(candidate, flavor_named(flavor))),
            *(limit_data(limit, candidate.plugin, scope) for limit in candidate.capability),
        ],
        "notes": [note_data(note) for note in (*candidate.notes, *_notes_of_cases(found))],
        "cases": [_case_data(case, plans, scope) for case in found],
    }


def _notes_of_cases(found: tuple[Case, ...]) -> Iterator[Note]:
    """Yield what is to be known of some cases, where those hold."""
    for text in dict.fromkeys(text for case in found for text in case.notes):
        yield Note(text, when=any_of(*(case.when for case in found if text in case.notes)))


def _case_data(case: Case, plans: list[dict[str, Any]], scope: Scope) -> dict[str, Any]:
    plan = plan_data(case.plan)
    if plan not in plans:
        plans.append(plan)
    return {
        "when": case.when.data(),
        "plan": plans.index(plan),
        "kernels": [launch.spec.digest() for launch in case.plan.launches],
        "admission": [
            limit_data(each.of, each.plugin, scope) if isinstance(each, Pending) else refusal_data(each)
            for each in case.judged
        ],
    }


def _facts_read(by_candidate: Cases) -> set[str]:
    """Return the names of the facts that limits, notes and plans read."""
    names: set[str] = set()
    trees: list[Expr] = []
    for candidate, found in by_candidate:
        recorded = [each.of for case in found for each in case.judged if isinstance(each, Pending)]
        for limit in (*candidate.capability, *recorded):
            trees += [limit.condition, *(expr for _, expr in limit.suggestions)]
        trees += [note.when for note in candidate.notes]
        names.update(name for case in found for name in case.plan.facts)
    return names | {leaf.name for tree in trees for leaf in tree.leaves() if isinstance(leaf, Fact)}


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files beside the folder and put them in its place; what is no bundle is left alone."""
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / FILE).is_file())):
        raise BundleError(f"{folder} is no empty folder and no bundle; nothing in it is touched. Name a new folder.")
    if not folder.parent.is_dir():
        raise BundleError(f"cannot write {folder}: there is no folder {folder.parent}. Make it first.")
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for part in (CODE, IR):
            (made / part).mkdir()
        for name, content in files.items():
            (made / name).write_bytes(content)
        made.chmod(0o777 & ~_umask())
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
