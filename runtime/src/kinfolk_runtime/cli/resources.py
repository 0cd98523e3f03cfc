"""Compile kernels, gate them on the compiler's own report, and show what each takes of its machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kinfolk.cli.output import (
    EXIT_FAILED,
    print_defaults,
    print_document,
    print_refusals,
    refusal_rows,
    say,
)
from kinfolk.errors import KinfolkError
from kinfolk.refusal import Refusal
from kinfolk_runtime.cli.asked import asked, flavor_option, reasons
from kinfolk_runtime.cli.progress import progress
from kinfolk_runtime.cli.tables import print_kernels

if TYPE_CHECKING:
    from kinfolk.check import KernelReport
    from kinfolk.plugins.composition import Composition
    from kinfolk.spec import Spec
    from kinfolk_runtime.artifact import CompiledKernel

SCHEMA: Final = "kinfolk.resources/1"


@click.command("resources")
@click.argument("words", nargs=-1, metavar="[FAMILY] [KEY=VALUE]...")
@click.option("--arch", metavar="ARCH", help="One arch by name; by default every installed one.")
@flavor_option
@click.option("--all", "sweep", is_flag=True, help="Every spec, not only the sample of everyday checks.")
@click.option("--bless", is_flag=True, help="Make the figures those to compare with, by every toolchain of this host.")
@click.option("--reason", metavar="WHY", help="With --bless: what moved, and why that is right.")
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    arch: str | None,
    flavor: str,
    sweep: bool,
    bless: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Show what compiled kernels take of their machine, and what the resource gate says of them.

    With KEY=VALUE the kernels of that request; without, those of the spec space of FAMILY, or of every family. A gate
    that refuses, a figure that is blessed with another value, a kernel that does not compile and a run without kernels
    are failures: exit status 1.
    """
    family = words[0] if words and "=" not in words[0] else None
    fields = words[1:] if family else words
    if fields and family is None:
        raise click.UsageError("KEY=VALUE are fields of a request, and need its FAMILY before them")
    if fields and sweep:
        raise click.UsageError("--all is about a whole spec space and takes no KEY=VALUE")
    if bless or reason is not None:
        if not bless or fields or sweep or as_json:
            raise click.UsageError("--bless --reason WHY is about the everyday specs of families, and goes with --arch")
        from kinfolk_runtime.cli.golden import bless_kinds

        return bless_kinds(family, arch, reason, ("figures",))
    asking = Asking(flavor=flavor, sweep=sweep, fields=fields)
    tables = [asking.table(*pair) for pair in pairs(family, arch)]
    passed = bool(tables) and all(table.passed for table in tables)
    unknown = dict.fromkeys(refusal for table in tables for refusal in table.unknown)  # the same on every arch
    tables = [table for table in tables if not table.unknown]
    if as_json:
        print_document(
            {
                "schema": SCHEMA,
                "status": "pass" if passed else "fail",
                "requests": [{"arch": table.arch, **table.fields} for table in tables if fields],
                "kernels": [kernel.to_dict() for table in tables for kernel in table.kernels],
                "refusals": refusal_rows([*unknown, *(each for table in tables for each in table.refusals)]),
            }
        )
    else:
        for table in tables:
            table.print()
        print_refusals(refusal_rows(unknown))
        if not (tables or unknown):
            say("no family, or no arch, is installed: nothing was compiled")
    if not passed:
        ctx.exit(EXIT_FAILED)
    return None


def pairs(family: str | None, arch: str | None) -> list[tuple[str, str]]:
    """Return the families and archs that are meant: those named, else all whose metadata lets them in."""
    from kinfolk.plugins.loading import usable

    families = (family,) if family else usable("family")
    archs = (arch,) if arch else usable("arch")
    return [(each, on) for each in families for on in archs]


@attrs.frozen(kw_only=True)
class Table:
    """The kernels of one family on one arch, with every refusal and every error as a refusal."""

    title: str
    arch: str
    kernels: tuple[KernelReport, ...]
    refusals: tuple[Refusal, ...]
    fields: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    defaults: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    @property
    def passed(self) -> bool:
        """Whether there are kernels and no refusals."""
        return bool(self.kernels) and not self.refusals

    @property
    def unknown(self) -> tuple[Refusal, ...]:
        """The refusals that say that nothing installed has the name of the family, or of the arch."""
        return tuple(each for each in self.refusals if each.code in ("family.unknown", "arch.unknown"))

    def print(self) -> None:
        """Print it for people, a kernel a line."""
        print_defaults(self.defaults)
        if self.kernels:
            print_kernels(self.title, self.kernels)
        else:
            say(f"{self.title}: no kernel")
        print_refusals(refusal_rows(self.refusals))


@attrs.frozen(kw_only=True)
class Asking:
    """What is asked of every family and arch: one request, or the spec space, whole or sampled."""

    flavor: str
    sweep: bool
    fields: tuple[str, ...]

    def table(self, family: str, arch: str) -> Table:
        """Return the kernels of a family on an arch. An unknown field is a usage error."""
        title = f"{family} on {arch}, {self.flavor}"
        if self.fields:
            found = asked(family, arch, self.flavor, self.fields)
            empty = Table(
                title=title,
                arch=arch,
                kernels=(),
                refusals=found.refusals,
                fields=found.fields,
                defaults=found.defaults,
            )
            if found.plan is None or found.composition is None:
                return empty
            specs = {launch.spec.identity(): launch.spec for launch in found.plan.launches}
            return self._filled(empty, found.composition, tuple(specs.values()))
        from kinfolk.plugins.composition import compose
        from kinfolk_runtime.spec_space import sampled, spec_space

        empty = Table(title=title, arch=arch, kernels=(), refusals=())
        try:
            composition = compose(family, arch)
            space = spec_space(composition, self.flavor)
        except KinfolkError as error:
            return attrs.evolve(empty, refusals=reasons(error))
        specs = space if self.sweep else sampled(space)
        counted = f"{len(specs)} of {len(space)} specs" if len(specs) < len(space) else f"all {len(space)} specs"
        return self._filled(attrs.evolve(empty, title=f"{title}: {counted}"), composition, specs)

    def _filled(self, table: Table, composition: Composition, specs: Sequence[Spec]) -> Table:
        """Return the table with the kernels of the specs, compiled and gated."""
        from kinfolk_runtime.goldens.drift import drift
        from kinfolk_runtime.spec_space import gated

        kernels: list[KernelReport] = []
        compiled: list[CompiledKernel] = []
        refusals: list[Refusal] = []
        try:
            with progress("compiling", len(specs)) as step:
                for each in gated(specs, self.flavor, composition=composition):
                    step(each.spec.symbol())
                    refusals += [_of(each.spec, refusal) for refusal in each.refusals]
                    refusals += [_of(each.spec, refusal) for refusal in (reasons(each.error) if each.error else ())]
                    kernels += [each.figures] if each.figures else []
                    compiled += [each.kernel] if each.kernel else []
            refusals += [each.refusal("kinfolk-runtime") for each in drift(composition, compiled)]
        except KinfolkError as error:
            refusals += reasons(error)
        return attrs.evolve(table, kernels=tuple(kernels), refusals=tuple(refusals))


def _of(spec: Spec, refusal: Refusal) -> Refusal:
    """Return the refusal with the kernel it is about in its reason, where that does not name it."""
    if spec.symbol() in refusal.because:
        return refusal
    return attrs.evolve(refusal, because=f"{spec.symbol()}, {spec.digest()}: {refusal.because}")
