"""Look at compiled code: hot loops, clocks by models, what they are made of; ours or anybody's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kinfolk.cli.output import EXIT_FAILED, print_defaults, print_document, print_refusals, refusal_rows
from kinfolk.errors import KinfolkError
from kinfolk.refusal import Refusal
from kinfolk_runtime.cli.asked import asked, flavor_option, reasons
from kinfolk_runtime.cli.inspect_tables import print_inspected
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk.spec import LoopWork, Spec
    from kinfolk_runtime.inspection import InspectedKernel

SCHEMA: Final = "kinfolk.inspect/1"
_COUNT: Final = click.IntRange(min=1)


@click.command("inspect")
@click.argument("subject", metavar="FAMILY|PATH")
@click.argument("fields", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--arch", metavar="ARCH", help="The arch, by name; for a PATH by default the one that the file is for.")
@flavor_option
@click.option("--mca/--no-mca", default=True, show_default=True, help="Ask llvm-mca too, where it is installed.")
@click.option("--kernel", metavar="SYMBOL", help="Of a PATH, only this kernel.")
@click.option("--tokens", type=_COUNT, help="Of a PATH: the keys that a workgroup attends in a round of the loop.")
@click.option("--heads", type=_COUNT, help="Of a PATH: the heads that it attends them for.")
@click.option("--lds", type=_COUNT, metavar="BYTES", help="Of a PATH: workgroup memory, where a launch gives it.")
@click.option("--waves", type=_COUNT, help="Of a PATH: waves of a workgroup, where the file does not say.")
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.pass_context
def command(
    ctx: click.Context,
    subject: str,
    fields: tuple[str, ...],
    arch: str | None,
    flavor: str,
    mca: bool,
    as_json: bool,
    **of_file: Any,
) -> None:
    """Say of compiled kernels what their main loop is made of and how many clocks it takes, by models.

    Of a FAMILY: the kernels of a request, or without KEY=VALUE those of its spec space. Of a PATH: the kernels in an
    assembly text, or in a code object through llvm-objdump. Nothing is run. Exit status 1 where there is no kernel.
    """
    path = Path(subject)
    if path.is_file() or os.sep in subject or path.suffix:
        if fields:
            raise click.UsageError("KEY=VALUE are fields of a request; a file is described by --tokens and --heads")
        found = _of_file(path, arch, of_file, mca)
    else:
        if given := [f"--{name}" for name, value in of_file.items() if value is not None]:
            raise click.UsageError(f"{', '.join(given)} are about a PATH; a family's kernels say it themselves")
        if arch is None:
            raise click.UsageError("a FAMILY is inspected on an --arch")
        found = _of_family(subject, arch, flavor, fields, mca)
    if as_json:
        print_document(found.to_dict())
    else:
        print_defaults(found.defaults)
        if found.kernels:
            print_inspected(found.title, found.kernels)
        print_refusals(refusal_rows(found.refusals))
    if found.refusals or not found.kernels:
        ctx.exit(EXIT_FAILED)


@attrs.frozen(kw_only=True)
class Inspected:
    """The kernels that were inspected, and why others could not be."""

    title: str
    arch: str | None
    flavor: str | None
    kernels: tuple[InspectedKernel, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    request: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "schema": SCHEMA,
            "status": "pass" if self.kernels and not self.refusals else "fail",
            "arch": self.arch,
            "flavor": self.flavor,
            "request": self.request,
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "refusals": refusal_rows(self.refusals),
        }


def _of_family(family: str, arch: str, flavor: str, fields: tuple[str, ...], mca: bool) -> Inspected:
    empty = Inspected(title=f"{family} on {arch}, {flavor}", arch=arch, flavor=flavor)
    if fields:
        asking = asked(family, arch, flavor, fields)
        empty = attrs.evolve(empty, request=asking.fields, defaults=asking.defaults, refusals=asking.refusals)
        if asking.plan is None or asking.composition is None:
            return empty
        specs = {launch.spec.identity(): launch.spec for launch in asking.plan.launches}
        return _inspected(empty, asking.composition, tuple(specs.values()), flavor, mca)
    from kinfolk.plugins.composition import compose
    from kinfolk_runtime.spec_space import sampled, spec_space

    try:
        composition = compose(family, arch)
        specs_of = sampled(spec_space(composition, flavor))
    except KinfolkError as error:
        return attrs.evolve(empty, refusals=reasons(error))
    return _inspected(empty, composition, specs_of, flavor, mca)


def _inspected(empty: Inspected, composition: Composition, specs: Iterable[Spec], flavor: str, mca: bool) -> Inspected:
    from kinfolk_runtime.inspection import inspect_spec

    kernels: list[InspectedKernel] = []
    refusals: list[Refusal] = []
    every = tuple(specs)
    with progress("inspecting", len(every)) as step:
        for spec in every:
            step(spec.symbol())
            try:
                kernels.append(inspect_spec(composition, spec, flavor, mca=mca))
            except KinfolkError as error:
                refusals += reasons(error)
    return attrs.evolve(empty, kernels=tuple(kernels), refusals=tuple(refusals))


def _of_file(path: Path, arch_name: str | None, options: Mapping[str, Any], mca: bool) -> Inspected:
    from kinfolk_runtime.inspection import inspect_function
    from kinfolk_runtime.inspection.files import arch_for, functions_in

    try:
        data = path.read_bytes()
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from error
    empty = Inspected(title=str(path), arch=arch_name, flavor=None)
    try:
        arch = arch_for(path, data, arch_name)
        given = {"lds_bytes": options["lds"]} if options["lds"] else {}
        given |= {"max_flat_workgroup_size": options["waves"] * arch.wave_size} if options["waves"] else {}
        functions = functions_in(path, data, arch, given)
        symbols = [each.symbol for each in functions]
        if options["kernel"] is not None:
            functions = tuple(each for each in functions if each.symbol == options["kernel"])
        if not functions:
            raise click.UsageError(f"{path} has no kernel {options['kernel']}; it has {', '.join(symbols)}")
        work = _work(options)
        kernels = tuple(inspect_function(each, arch, work=work, mca=mca) for each in functions)
    except KinfolkError as error:
        return attrs.evolve(empty, refusals=reasons(error))
    return attrs.evolve(empty, title=f"{path} on {arch.name}", arch=arch.name, kernels=kernels)


def _work(options: Mapping[str, Any]) -> LoopWork | None:
    from kinfolk.spec import LoopWork

    if (options["tokens"] is None) != (options["heads"] is None):
        raise click.UsageError("--tokens and --heads go together")
    return LoopWork(tokens=options["tokens"], heads=options["heads"]) if options["tokens"] else None
