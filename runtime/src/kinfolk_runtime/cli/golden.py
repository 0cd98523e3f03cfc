"""Compare what kernels are with what was last approved of, or approve of it with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kinfolk.cli.app import Verbs
from kinfolk.cli.output import EXIT_FAILED, print_document, print_refusals, refusal_rows, refusals_of, say
from kinfolk.cli.table import print_table
from kinfolk.errors import KinfolkError
from kinfolk.plugins.faults import UnknownPlugin
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk_runtime.goldens import Checked, Finding
    from kinfolk_runtime.goldens.document import Kind

SCHEMA: Final = "kinfolk.golden/1"

family_argument = click.argument("family", required=False)
arch_option = click.option("--arch", metavar="ARCH", help="One arch by name; by default every installed one.")
reason_option = click.option("--reason", metavar="WHY", help="What moved, and why that is right; kept in the ledger.")


@click.group("golden", cls=Verbs)
def command() -> None:
    """Compare what kernels are with what was last approved of, or approve of it with a reason.

    A family's goldens are package data of it: digests of IR and LLVM IR per arch and flavor, figures of the compiled
    code per arch, flavor and toolchain build, and a ledger that says why they are what they are.
    """


def _names(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    from kinfolk.cli.app import unknown
    from kinfolk.plugins.loading import installed

    names = tuple(filter(None, value.split(",")))
    for name in names:
        if name not in installed("toolchain"):
            raise click.BadParameter(unknown("toolchain", name, list(installed("toolchain"))))
    return names


@command.command("check")
@family_argument
@arch_option
@click.option(
    "--require",
    default="",
    metavar="NAME,...",
    callback=_names,
    help="Toolchains that must be here, each of a build whose figures are blessed.",
)
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.pass_context
def check_command(
    ctx: click.Context, family: str | None, arch: str | None, require: tuple[str, ...], as_json: bool
) -> None:
    """Compare the goldens of FAMILY, or of every family, with its kernels as this installation makes them.

    Every spec is emitted for every flavor and compiled by every toolchain of this host. Whatever is missing, moved, in
    another order or too much is a failure, and so is a comparison of nothing: exit status 1. Figures of a build that
    nobody has blessed are none, unless it is required.
    """
    from kinfolk_runtime.goldens import check
    from kinfolk_runtime.goldens.check import Host

    try:
        made, broken = _compositions(family, arch)
    except UnknownPlugin as error:
        rows = refusals_of(error)
        if as_json:
            print_document({"schema": SCHEMA, "status": "fail", "refusals": rows})
        else:
            print_refusals(rows)
        ctx.exit(EXIT_FAILED)
    with progress("comparing") as step:
        checked = check(made, Host.found(), required=require, step=step)
    checked.findings += broken
    if as_json:
        _print_json(checked)
    else:
        _print(checked)
    if not checked.passed:
        ctx.exit(EXIT_FAILED)


@command.command("bless")
@family_argument
@arch_option
@reason_option
def bless_command(family: str | None, arch: str | None, reason: str | None) -> None:
    """Make the kernels of FAMILY, or of every family, its goldens.

    That is their digests, and their figures by every toolchain of this host. The files are written where the family is
    installed, each with an entry in the ledger; nothing is written where nothing moved, nor where a kernel does not
    compile or the gate refuses it.
    """
    from kinfolk_runtime.goldens.document import KINDS

    bless_kinds(family, arch, reason, KINDS)


def bless_kinds(family: str | None, arch: str | None, reason: str | None, kinds: tuple[Kind, ...]) -> None:
    """Bless what is asked for and print what moved; without a reason it is a usage error."""
    from kinfolk_runtime.goldens import bless
    from kinfolk_runtime.goldens.check import Host

    if not (reason or "").strip():
        raise click.UsageError("a blessing needs --reason WHY: what moved, and why that is right")
    try:
        made, broken = _compositions(family, arch)
    except UnknownPlugin as error:
        raise click.ClickException(str(error)) from None
    if broken:
        raise click.ClickException("; ".join(finding.what for finding in broken))
    host = Host.found()
    with progress("blessing") as step:
        written = bless(made, host, reason or "", kinds=kinds, step=step)
    for each in written:
        say(f"{each.path}:")
        for line in each.moved:
            say(f"  {line}")
    for name, why in host.absent.items():
        if "figures" in kinds:
            say(f"no figures by {name}: {why}", err=True)
    say(
        f"{len(written)} file{'' if len(written) == 1 else 's'} blessed"
        if written
        else "nothing moved, nothing is written"
    )


def _compositions(family: str | None, arch: str | None) -> tuple[list[Composition], list[Finding]]:
    """Return the compositions that are meant, and a finding for each that cannot be made.

    Raises UnknownPlugin for a family or an arch that is not installed.
    """
    from kinfolk.plugins.composition import compose
    from kinfolk_runtime.cli.resources import pairs
    from kinfolk_runtime.goldens import Finding
    from kinfolk_runtime.goldens.compare import Where

    made: list[Composition] = []
    broken: list[Finding] = []
    for each, on in pairs(family, arch):
        try:
            made.append(compose(each, on))
        except UnknownPlugin:
            raise
        except KinfolkError as error:
            broken.append(
                Finding(code="plugin.error", where=Where(kind="digests", family=each, arch=on), what=str(error))
            )
    return made, broken


def _print_json(checked: Checked) -> None:
    from kinfolk_runtime.goldens.document import KINDS

    print_document(
        {
            "schema": SCHEMA,
            "status": "pass" if checked.passed else "fail",
            "compared": {kind: checked.compared(kind) for kind in (*KINDS, "schedules")},
            "lanes": [
                {
                    "family": lane.family,
                    "arch": lane.arch,
                    "kind": lane.kind,
                    "section": lane.section,
                    "rows": lane.rows,
                    "state": lane.state,
                }
                for lane in checked.lanes
            ],
            "notes": checked.notes,
            "refusals": refusal_rows(finding.refusal("kinfolk-runtime") for finding in checked.findings),
        }
    )


def _print(checked: Checked) -> None:
    from kinfolk_runtime.goldens.compare import told

    rows = [(f"{lane.family} on {lane.arch}", lane.kind, lane.section, lane.rows, lane.state) for lane in checked.lanes]
    print_table("", ("family and arch", "what", "flavor, build", "rows", "state"), rows)
    for note in checked.notes:
        say(f"note: {note}")
    for sentence in told(checked.findings):
        say(sentence)
    digests, figures = checked.compared("digests"), checked.compared("figures")
    schedules = checked.compared("schedules")
    found = len(checked.findings)
    verdict = "pass" if checked.passed else f"fail, {found} finding{'' if found == 1 else 's'}"
    searched = f", {schedules} by their stored schedules" if schedules else ""
    say(f"{verdict}: {digests} kernels by their digests, {figures} by their figures{searched}")
