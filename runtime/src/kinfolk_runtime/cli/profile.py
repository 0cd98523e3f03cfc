"""Count what the kernels of a request do: operations, bytes, bank conflicts, coalescing; or where their time goes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from kinfolk.cli.output import EXIT_FAILED, print_defaults, print_document, say
from kinfolk.errors import KinfolkError
from kinfolk_runtime.cli.asked import Asked, asked, flavor_option, known_scenarios, reasons
from kinfolk_runtime.cli.profile_tables import print_profile
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk_runtime.profile import Profile
    from kinfolk_runtime.profile.picture import BankPicture
    from kinfolk_runtime.profile.timed import TimedProfile
    from kinfolk_runtime.profile.timeline import Timeline

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
@click.argument("family", metavar="FAMILY|PATH")
@click.option(
    "--arch", metavar="ARCH", help="The arch to serve the request on, by name; an object's is the one it is for."
)
@flavor_option
@click.option(
    "--executor",
    default=SIMULATOR,
    show_default=True,
    type=click.Choice([SIMULATOR, MACHINE_CODE]),
    help="Count what the IR does, or say where the time of the compiled code goes, by a model.",
)
@click.option(
    "--problem", type=click.Path(path_type=Path), help="What an object is launched on, as in kinfolk compare."
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
    arch: str | None,
    flavor: str,
    executor: str,
    problem: Path | None,
    name: str | None,
    workgroups: int | None,
    plot: str | None,
    sensitive: bool,
    as_json: bool,
    fields: tuple[str, ...],
) -> None:
    """Run the kernels of a request of FAMILY on the simulator and count what they do.

    The emitted IR is counted, nothing is compiled. With --executor isa kernels are compiled, their machine code runs on
    this host, and a model says where its time goes; it also takes the PATH of anybody's code object, with a --problem.
    Exit status 1 where there is nothing to count.
    """
    wanted = _Wanted(workgroups=workgroups, plot=plot, sensitive=sensitive, as_json=as_json)
    if Path(family).is_file():
        if executor != MACHINE_CODE or name is not None or fields:
            raise click.UsageError(f"{family} is a code object: --executor isa runs it, on a --problem alone.")
        return _tell_timed(ctx, lambda: _timed_object(Path(family), arch, problem, wanted), None, wanted)
    if os.sep in family:
        raise click.UsageError(f"there is no file {family!r}; name a family, or a code object.")
    if arch is None:
        raise click.UsageError("Missing option '--arch': a request is served on one.")
    if problem is not None:
        raise click.UsageError("a --problem is of a code object; a family has a --scenario.")
    if executor == MACHINE_CODE:
        asking = asked(family, arch, flavor, fields)
        return _tell_timed(ctx, lambda: _timed(asking, name, wanted), asking, wanted)
    if sensitive:
        raise click.UsageError("--sensitivity is of the model of time: ask for it with --executor isa.")
    return _tell_counted(ctx, asked(family, arch, flavor, fields), name, wanted)


@attrs.frozen(kw_only=True)
class _Wanted:
    """How much is measured, and how it is told."""

    workgroups: int | None
    plot: str | None
    sensitive: bool
    as_json: bool

    def timing(self) -> dict[str, Any]:
        """Return the options of what times machine code."""
        return {"workgroups": self.workgroups, "sensitive": self.sensitive, "spans": self.plot is not None}


def _timed(found: Asked, name: str | None, wanted: _Wanted) -> TimedProfile:
    """Return where the time of a request's kernels goes."""
    from kinfolk_runtime.profile.timed import TimedProfile, timed

    refused = TimedProfile(
        family=found.family,
        arch=found.arch,
        flavor=found.flavor,
        candidate=found.plan.candidate if found.plan else None,
        request=found.fields,
        refusals=found.refusals,
    )

    def run(composition: Composition, request: Request) -> TimedProfile:
        options = wanted.timing()
        return timed(request, found.arch, found.flavor, scenario=name, composition=composition, **options)

    return _ran(found, name, refused, run)


def _timed_object(path: Path, arch: str | None, problem: Path | None, wanted: _Wanted) -> TimedProfile:
    """Return where the time of a code object's kernel goes; what keeps it from running is a refusal."""
    from kinfolk_runtime.comparison import read_problem
    from kinfolk_runtime.inspection.files import arch_for
    from kinfolk_runtime.profile.timed import TimedProfile, timed_object

    if problem is None:
        raise click.UsageError(f"nothing says how {path} is launched: give a --problem, as kinfolk compare takes it.")
    try:
        code = path.read_bytes()
        machine = arch_for(path, code, arch)
        arch = machine.name
        with progress("measuring"):
            return timed_object(path, code, machine, read_problem(problem), **wanted.timing())
    except KinfolkError as error:
        return TimedProfile(arch=arch, object=str(path), refusals=reasons(error))


def _tell_timed(ctx: click.Context, run: Callable[[], TimedProfile], asking: Asked | None, wanted: _Wanted) -> None:
    """Print where the time of machine code goes, and draw the longest launch."""
    from kinfolk_runtime.cli.timing_tables import print_timed
    from kinfolk_runtime.profile.timeline import Timeline, check_timeline

    def table(found: TimedProfile) -> None:
        print_defaults(asking.defaults if asking else {})
        print_timed(found, asking.fields if asking else {})

    def picture(found: TimedProfile) -> Timeline:
        return Timeline(max(found.kernels, key=lambda each: each.timing.clocks).timing)

    _tell(ctx, wanted, check_timeline, run, table, picture)


def _tell_counted(ctx: click.Context, asking: Asked, name: str | None, wanted: _Wanted) -> None:
    """Print what the IR of a request's kernels does, and draw the access with the most bank conflicts."""
    from kinfolk_runtime.profile.picture import check_drawable, worst_picture

    def table(found: Profile) -> None:
        print_defaults(asking.defaults)
        print_profile(found, asking.fields)

    _tell(ctx, wanted, check_drawable, lambda: _profile(asking, name, wanted.workgroups), table, worst_picture)


def _tell(
    ctx: click.Context,
    wanted: _Wanted,
    check: Callable[[Path], None],
    run: Callable[[], Found],
    table: Callable[[Found], None],
    picture: Callable[[Found], BankPicture | Timeline],
) -> None:
    """Print what a run finds, as a document or a table, and draw a picture of it where one is wanted.

    `check` raises CannotDraw before anything runs. Exit status 1 where nothing was found.
    """
    from kinfolk_runtime.profile.picture import CannotDraw

    file = Path(wanted.plot) if wanted.plot is not None and wanted.plot != TEXT else None
    try:
        if file is not None:
            check(file)
        found = run()
        if wanted.as_json:
            print_document(found.to_dict())
        else:
            table(found)
        if found.status != "pass":
            ctx.exit(EXIT_FAILED)
        if file is not None:
            picture(found).draw(file)
            say(f"{file} is written", err=True)
        elif wanted.plot is not None:
            click.echo(picture(found).text(), err=wanted.as_json)
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
