"""Say what is installed here, what works, and what to do about the rest."""

from __future__ import annotations

from typing import Final

import click

from kinfolk.cli.output import EXIT_FAILED, print_document, say
from kinfolk.cli.table import print_table
from kinfolk_runtime.cli.progress import progress

SCHEMA: Final = "kinfolk.doctor/1"


def _installable(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from kinfolk_runtime.toolchains.llvm20 import FLAVOR

    if value not in (None, FLAVOR):
        raise click.BadParameter(f"{value!r} cannot be installed; {FLAVOR} can.")
    return value


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.option("--install", callback=_installable, metavar="llvm20", help="First install this: the LLVM of a flavor.")
@click.pass_context
def command(ctx: click.Context, as_json: bool, install: str | None) -> None:
    """Say what is installed, which versions, whether LLVM compiles for every arch, and how to mend what does not.

    What is missing and optional is no failure. Exit status 1 when something that is needed is missing or broken.
    """
    from kinfolk.cli.probing import probed_rows
    from kinfolk_runtime.cli.health import Check, health

    if install is not None:
        from kinfolk_runtime.toolchains.llvm20 import install_llvm20

        with progress(f"installing {install}"):
            python = install_llvm20()
        click.echo(f"installed {install}: {python}", err=True)
    checks: list[Check] = []
    with progress("examining") as step:
        for check in health(probed_rows(20.0)):
            checks.append(check)
            step(f"{check.group} {check.name}")
    failed = [check for check in checks if check.failed]
    if as_json:
        rows = [check.to_dict() for check in checks]
        print_document({"schema": SCHEMA, "status": "fail" if failed else "pass", "checks": rows})
    else:
        cells = [(check.group, check.name, check.standing, check.found) for check in checks]
        print_table("", ("what", "name", "state", "found"), cells)
        for check in checks:
            if check.remedy:
                say(f"{check.group} {check.name} is {check.standing}: {check.remedy}")
        names = ", ".join(f"{check.group} {check.name}" for check in failed)
        say(f"broken: {names}" if failed else "all that is needed works")
    if failed:
        ctx.exit(EXIT_FAILED)
