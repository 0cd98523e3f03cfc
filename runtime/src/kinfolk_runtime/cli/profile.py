"""Count what the kernels of a request do: operations, bytes, bank conflicts, coalescing; or where their time goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import attrs
import click

from kinfolk.cli.output import EXIT_FAILED, print_defaults, print_document, say
from kinfolk_runtime.cli.asked import Asked, arch_option, asked, flavor_option, known_scenarios, reasons
from kinfolk_runtime.cli.profile_tables import print_profile
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk_runtime.profile import Profile
    from kinfolk_runtime.profile.timed import TimedProfile

Found = TypeVar("Found", "Profile", "TimedProfile")
SIMULATOR, MACHINE_CODE = "simulator", "isa"
TEXT = "-"
"""The path that stands for the terminal."""


def _workgroups(ctx: click.Context, parameter: click.Parameter, value: str) -> int | None:
    if value == "all":
        return None
    if not (value.isascii() and value.isdigit() and int(value) >= 1):
        raise click.BadParameter(f"{value!r} is no count of at least 1, nor all.")
    return int(value)


@click.command("profile")
@click.argument("family")
@arch_option
@flavor_option
@click.option(
    "--executor",
    default=SIMULATOR,
    show_default=True,
    type=click.Choice([SIMULATOR, MACHINE_CODE]),
    help="Count what the IR does, or say where the time of the compiled code goes, by a model.",
)
@click.option("--scenario", "name", metavar="NAME", help="The inputs to run on; by default the family's first.")
@click.option(
    "--workgroups",
    default="8",
    show_default=True,
    metavar="N|all",
    callback=_workgroups,
    help="Measure at most so many workgroups of a launch, spread evenly over its grid; of machine code, of one compute "
    "unit's.",
)
@click.option(
    "--plot",
    metavar="PATH",
    help="Draw the access with the most bank conflicts, of machine code what waves do when; - prints it as text.",
)
@click.option(
    "--sensitivity", "sensitive", is_flag=True, help="Of machine code: say what each constant of the model matters."
)
@click.option("--json", "as_json", is_flag=True, help="Print a document (kinfolk.profile/1 or kinfolk.timing/1).")
@click.argument("fields", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_context
def command(
    ctx: click.Context,
    family: str,
    arch: str,
    flavor: str,
    executor: str,
    name: str | None,
    workgroups: int | None,
    plot: str | None,
    sensitive: bool,
    as_json: bool,
    fields: tuple[str, ...],
) -> None:
    """Run the kernels of a request of FAMILY on the simulator and count what they do.

    The emitted IR is counted, nothing is compiled. With --executor isa kernels are compiled, their machine code runs on
    this host, and a model says where its time goes. Exit status 1 where there is nothing to count.
    """
    if executor == MACHINE_CODE:
        return _timed(ctx, asked(family, arch, flavor, fields), name, workgroups, plot, sensitive, as_json)
    if sensitive:
        raise click.UsageError("--sensitivity is of the model of time: ask for it with --executor isa.")
    from kinfolk_runtime.profile.picture import CannotDraw, check_drawable, worst_picture

    try:
        if plot is not None and plot != TEXT:
            check_drawable(Path(plot))
        found = asked(family, arch, flavor, fields)
        profile = _profile(found, name, workgroups)
        if as_json:
            print_document(profile.to_dict())
        else:
            print_defaults(found.defaults)
            print_profile(profile, found.fields)
        if profile.status != "pass":
            ctx.exit(EXIT_FAILED)
        if plot is not None:
            picture = worst_picture(profile)
            if plot == TEXT:
                click.echo(picture.text(), err=as_json)
            else:
                picture.draw(Path(plot))
                say(f"{plot} is written", err=True)
    except (CannotDraw, OSError) as error:
        raise click.ClickException(str(error)) from None


def _timed(
    ctx: click.Context,
    found: Asked,
    name: str | None,
    workgroups: int | None,
    plot: str | None,
    sensitive: bool,
    as_json: bool,
) -> None:
    """Print where the time of machine code goes, and draw the longest launch."""
    from kinfolk_runtime.cli.timing_tables import print_timed
    from kinfolk_runtime.profile.picture import CannotDraw
    from kinfolk_runtime.profile.timed import TimedProfile, timed
    from kinfolk_runtime.profile.timeline import Timeline, check_timeline

    try:
        if plot is not None and plot != TEXT:
            check_timeline(Path(plot))
        refused = TimedProfile(
            family=found.family,
            arch=found.arch,
            flavor=found.flavor,
            candidate=found.plan.candidate if found.plan else None,
            request=found.fields,
            refusals=found.refusals,
        )

        def run(composition: Composition, request: Request) -> TimedProfile:
            return timed(
                request,
                found.arch,
                found.flavor,
                scenario=name,
                workgroups=workgroups,
                sensitive=sensitive,
                spans=plot is not None,
                composition=composition,
            )

        profile = _ran(found, name, refused, run)
        if as_json:
            print_document(profile.to_dict())
        else:
            print_defaults(found.defaults)
            print_timed(profile, found.fields)
        if profile.status != "pass":
            ctx.exit(EXIT_FAILED)
        if plot is not None:
            longest = max(profile.kernels, key=lambda each: each.timing.clocks)
            if plot == TEXT:
                click.echo(Timeline(longest.timing).text(), err=as_json)
            else:
                Timeline(longest.timing).draw(Path(plot))
                say(f"{plot} is written", err=True)
    except (CannotDraw, OSError) as error:
        raise click.ClickException(str(error)) from None


def _profile(found: Asked, name: str | None, workgroups: int | None) -> Profile:
    """Return the profile; what keeps a run from being one is a refusal of it. An unknown scenario is a usage error."""
    from kinfolk_runtime.profile import Profile, profile

    refused = Profile(
        family=found.family,
        arch=found.arch,
        flavor=found.flavor,
        candidate=found.plan.candidate if found.plan else None,
        request=found.fields,
        refusals=found.refusals,
    )

    def run(composition: Composition, request: Request) -> Profile:
        return profile(request, found.arch, found.flavor, scenario=name, workgroups=workgroups, composition=composition)

    return _ran(found, name, refused, run)


def _ran(found: Asked, name: str | None, refused: Found, run: Callable[[Composition, Request], Found]) -> Found:
    """Return what a run finds; what keeps it from being one is a refusal."""
    if found.plan is None or found.composition is None:
        return refused
    try:
        known_scenarios(found.composition, found.plan, () if name is None else (name,))
        with progress("measuring"):
            return run(found.composition, found.plan.request)
    except click.ClickException:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a plugin's scenario raises, a document says so
        return attrs.evolve(refused, refusals=reasons(error))
