"""Run the kernels of a request on test inputs and compare what comes out with the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from kinfolk.cli.app import unknown
from kinfolk.cli.output import EXIT_FAILED, print_defaults, print_document
from kinfolk.errors import KinfolkError
from kinfolk_runtime.cli.asked import Asked, arch_option, asked, flavor_option, reasons
from kinfolk_runtime.cli.progress import progress
from kinfolk_runtime.cli.tables import print_kernels, print_report

if TYPE_CHECKING:
    from kinfolk.check import Report


def _engine(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from kinfolk_runtime.verify import ENGINES

    if value not in ENGINES:
        raise click.BadParameter(f"no engine {value!r}; there is {' and '.join(ENGINES)}.")
    return value


def _executor(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from kinfolk.plugins.loading import installed

    if value not in installed("executor"):
        raise click.BadParameter(unknown("executor", value, list(installed("executor"))))
    return value


def _order_seeds(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    seeds = value.split(",")
    if not all(seed.isascii() and seed.isdigit() for seed in seeds):
        raise click.BadParameter(f"{value!r} is no list of seeds; they are integers of at least 0, as in 0,1,2.")
    return tuple(map(int, seeds))


def _sanitize(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if value != "none":
        checked = "every run checks accesses, claims and barriers; nothing checks for races"
        raise click.BadParameter(f"no sanitizer {value!r}; there is none yet: {checked}.")
    return value


@click.command("verify")
@click.argument("family")
@arch_option
@flavor_option
@click.option("--executor", default="simulator", show_default=True, callback=_executor, help="What runs the kernels.")
@click.option("--engine", default="reference", show_default=True, callback=_engine, help="The simulator's engine.")
@click.option(
    "--order-seeds",
    default="0,1,2",
    show_default=True,
    metavar="N,...",
    callback=_order_seeds,
    help="Run every scenario once per seed; each draws another order of waves, 0 is the ascending one.",
)
@click.option("--sanitize", default="none", callback=_sanitize, expose_value=False, hidden=True)
@click.option("--scenario", "names", multiple=True, metavar="NAME", help="Run this scenario only; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print a document (kinfolk.report/1).")
@click.argument("fields", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_context
def command(
    ctx: click.Context,
    family: str,
    arch: str,
    flavor: str,
    executor: str,
    engine: str,
    order_seeds: tuple[int, ...],
    names: tuple[str, ...],
    as_json: bool,
    fields: tuple[str, ...],
) -> None:
    """Compile the kernels of a request of FAMILY, gate them, run them on every scenario, compare with the reference.

    Exit status 1 unless everything passes.
    """
    found = asked(family, arch, flavor, fields)
    report = _report(found, executor, engine, order_seeds, names)
    if as_json:
        print_document(report.to_dict())
    else:
        print_defaults(found.defaults)
        if report.kernels:
            print_kernels(found.title, report.kernels)
        print_report(report)
    if report.status != "pass":
        ctx.exit(EXIT_FAILED)


def _report(found: Asked, executor: str, engine: str, order_seeds: tuple[int, ...], names: tuple[str, ...]) -> Report:
    """Return the report; what keeps a run from being one is a refusal of it. An unknown scenario is a usage error."""
    from kinfolk.check import Report
    from kinfolk_runtime.verify import verify

    refused = Report(
        family=found.family,
        arch=found.arch,
        flavor=found.flavor,
        candidate=found.plan.candidate if found.plan else None,
        executor=executor,
        request=found.fields,
        refusals=found.refusals,
    )
    if found.plan is None or found.composition is None:
        return refused
    request = found.plan.request
    try:
        offered = [scenario.name for scenario in found.composition.scenarios(request)]
        for name in names:
            if name not in offered:
                raise click.UsageError(unknown("scenario", name, offered))
        with progress("verifying", len(names or offered)) as step:
            return verify(
                request,
                found.arch,
                found.flavor,
                executor=executor,
                engine=engine,
                scenarios=names or None,
                order_seeds=order_seeds,
                started=lambda name, of: step(name),
                composition=found.composition,
            )
    except KinfolkError as error:
        return attrs.evolve(refused, refusals=reasons(error))
