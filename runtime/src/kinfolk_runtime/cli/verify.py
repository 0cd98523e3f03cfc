"""Run the kernels of a request on test inputs and compare what comes out with the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import click

from kinfolk.cli.app import unknown
from kinfolk.cli.output import EXIT_FAILED, print_defaults, print_document, say, terminal_width
from kinfolk_runtime.cli.asked import Asked, arch_option, asked, flavor_option, known_scenarios, reasons
from kinfolk_runtime.cli.progress import progress
from kinfolk_runtime.cli.tables import print_kernels, print_report

if TYPE_CHECKING:
    from kinfolk.check import Report
    from kinfolk_runtime.simulator.sanitizers import Sanitizer

LONG: Final = 64 * 2**20
"""A run over more bytes than this is announced."""


def _engine(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from kinfolk_runtime.verify import ENGINES

    if value not in ENGINES:
        raise click.BadParameter(f"no engine {value!r}; there is {' and '.join(ENGINES)}.")
    return value


EXECUTOR_HELP: Final = (
    "What runs the kernels: the simulator their IR, isa their machine code on this host, hip an AMD GPU; or one more "
    "that kinfolk list shows."
)
ENGINE_HELP: Final = "The simulator's engine; both give the same bits, reference is slower and says more of a fault."


def known_executor(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the name of an installed executor, for an option; another is a usage error."""
    from kinfolk.plugins.loading import installed

    if value not in installed("executor"):
        raise click.BadParameter(unknown("executor", value, list(installed("executor"))))
    return value


def read_order_seeds(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """Return seeds from a text, for an option; another text is a usage error."""
    seeds = value.split(",")
    if not all(seed.isascii() and seed.isdigit() for seed in seeds):
        raise click.BadParameter(f"{value!r} is no list of seeds; they are integers of at least 0, as in 0,1,2.")
    return tuple(map(int, seeds))


def _sanitize(ctx: click.Context, parameter: click.Parameter, value: str) -> frozenset[Sanitizer]:
    from kinfolk_runtime.simulator.sanitizers import UnknownSanitizer, sanitizers

    try:
        return sanitizers(value)
    except UnknownSanitizer as error:
        raise click.BadParameter(f"{error}.") from None


@click.command("verify")
@click.argument("family")
@arch_option
@flavor_option
@click.option("--executor", default="simulator", show_default=True, callback=known_executor, help=EXECUTOR_HELP)
@click.option(
    "--engine", default="fast", show_default=True, callback=_engine, metavar="fast|reference", help=ENGINE_HELP
)
@click.option(
    "--order-seeds",
    default="0,1,2",
    show_default=True,
    metavar="N,...",
    callback=read_order_seeds,
    help="Run every scenario once per seed; each draws another order of waves, 0 is the ascending one.",
)
@click.option(
    "--sanitize",
    default="all",
    show_default=True,
    metavar="all|none|NAME,...",
    callback=_sanitize,
    help="What the simulator looks for: race, memory, initialisation, sync, integer, indirection.",
)
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
    sanitize: frozenset[Sanitizer],
    names: tuple[str, ...],
    as_json: bool,
    fields: tuple[str, ...],
) -> None:
    """Compile the kernels of a request of FAMILY, gate them, run them on every scenario, compare with the reference.

    Exit status 1 unless everything passes.
    """
    found = asked(family, arch, flavor, fields)
    report = _report(found, _Choices(executor, engine, order_seeds, sanitize), names)
    if as_json:
        print_document(report.to_dict())
    else:
        print_defaults(found.defaults)
        if report.kernels:
            print_kernels(found.title, report.kernels)
        print_report(report)
    if report.status != "pass":
        ctx.exit(EXIT_FAILED)


def hint_of_length(found: Asked, names: tuple[str, ...], order_seeds: tuple[int, ...]) -> None:
    """Say on a terminal how much a run is that takes long, and what would be less."""
    from kinfolk_runtime.memory import needed_bytes, sized
    from kinfolk_runtime.verify import Fitting

    if terminal_width(err=True) is None or found.composition is None or found.plan is None:
        return
    offered = found.composition.scenarios_of(found.plan)
    wanted = [scenario for scenario in offered if scenario.name in names or not names]
    fitting = Fitting.of(found.composition, wanted, found.flavor, sparse=True)
    sizes = [needed_bytes(fitting.plans[scenario.name], scenario.sparse) for scenario in fitting.scenarios]
    most = max(sizes, default=0)
    if most > LONG:
        runs = f"scenarios: {len(sizes)}, of up to {sized(most)}, each in orders: {len(order_seeds)}"
        say(f"{runs}. The simulator may take minutes; --scenario NAME and --order-seeds 0 are less", err=True)


@attrs.frozen
class _Choices:
    """How to run; the fields are arguments of `verify`."""

    executor: str
    engine: str
    order_seeds: tuple[int, ...]
    sanitize: frozenset[Sanitizer]


def _report(found: Asked, choices: _Choices, names: tuple[str, ...]) -> Report:
    """Return the report; what keeps a run from being one is a refusal of it. An unknown scenario is a usage error."""
    from kinfolk.check import Report
    from kinfolk_runtime.verify import verify

    refused = Report(
        family=found.family,
        arch=found.arch,
        flavor=found.flavor,
        candidate=found.plan.candidate if found.plan else None,
        executor=choices.executor,
        request=found.fields,
        refusals=found.refusals,
    )
    if found.plan is None or found.composition is None:
        return refused
    request = found.plan.request
    try:
        offered = known_scenarios(found.composition, found.plan, names)
        hint_of_length(found, names, choices.order_seeds)
        with progress("verifying", len(names or offered)) as step:
            return verify(
                request,
                found.arch,
                found.flavor,
                executor=choices.executor,
                engine=choices.engine,
                order_seeds=choices.order_seeds,
                sanitize=choices.sanitize,
                scenarios=names or None,
                started=lambda name, of: step(name),
                composition=found.composition,
            )
    except click.ClickException:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a plugin's scenario raises, a document says so
        return attrs.evolve(refused, refusals=reasons(error))
