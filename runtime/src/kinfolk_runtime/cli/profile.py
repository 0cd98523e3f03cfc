"""Count what the kernels of a request do: operations, bytes, bank conflicts, coalescing, divergence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from kinfolk.cli.output import EXIT_FAILED, print_defaults, print_document, say
from kinfolk_runtime.cli.asked import Asked, arch_option, asked, flavor_option, known_scenarios, reasons
from kinfolk_runtime.cli.profile_tables import print_profile
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from kinfolk_runtime.profile import Profile

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
@click.option("--scenario", "name", metavar="NAME", help="The inputs to run on; by default the family's first.")
@click.option(
    "--workgroups",
    default="8",
    show_default=True,
    metavar="N|all",
    callback=_workgroups,
    help="Measure at most so many workgroups of a launch, spread evenly over its grid.",
)
@click.option("--plot", metavar="PATH", help="Draw the access with the most bank conflicts; - prints it as text.")
@click.option("--json", "as_json", is_flag=True, help="Print a document (kinfolk.profile/1).")
@click.argument("fields", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_context
def command(
    ctx: click.Context,
    family: str,
    arch: str,
    flavor: str,
    name: str | None,
    workgroups: int | None,
    plot: str | None,
    as_json: bool,
    fields: tuple[str, ...],
) -> None:
    """Run the kernels of a request of FAMILY on the simulator and count what they do.

    The emitted IR is counted, nothing is compiled. Exit status 1 where there is nothing to count.
    """
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
    if found.plan is None or found.composition is None:
        return refused
    try:
        known_scenarios(found.composition, found.plan, () if name is None else (name,))
        with progress("measuring"):
            return profile(
                found.plan.request,
                found.arch,
                found.flavor,
                scenario=name,
                workgroups=workgroups,
                composition=found.composition,
            )
    except click.ClickException:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a plugin's scenario raises, a document says so
        return attrs.evolve(refused, refusals=reasons(error))
