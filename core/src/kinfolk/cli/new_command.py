"""Write a distribution to begin with: a family or an arch of your own, which works before you change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from kinfolk.cli.app import Verbs
from kinfolk.cli.output import EXIT_FAILED, print_document, print_refusals, refusal_rows, say
from kinfolk.errors import Refused
from kinfolk.plugins.faults import PAGES

SCHEMA: Final = "kinfolk.new/1"
NEXT: Final[Mapping[str, tuple[str, ...]]] = {
    "family": (
        "pip install -e '.[test]'",
        "kinfolk list {name}",
        "kinfolk verify {name} --arch ARCH rows=3 columns=777",
        "pytest",
    ),
    "arch": ("pip install -e '.[test]'", "kinfolk list", "kinfolk verify FAMILY --arch {name} KEY=VALUE...", "pytest"),
}
"""What one does first in the folder, per kind."""


@click.group("new", cls=Verbs)
def command() -> None:
    """Write a complete distribution of a new plugin, with tests that pass as soon as it is installed."""


def _takes_name(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        output = click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="The folder to write, which must not exist yet; by default NAME, here.",
        )
        as_json = click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
        return click.argument("name")(output(as_json(click.pass_context(function))))

    return decorated


@command.command("family")
@_takes_name("family")
def family_command(ctx: click.Context, name: str, output: Path | None, as_json: bool) -> None:
    """Write the distribution kinfolk-NAME, which offers the family NAME: softmax over rows, under your name.

    Its kernel runs on every arch. Each file says what it holds; change one after the other.
    """
    _write(ctx, "family", name, output, as_json)


@command.command("arch")
@_takes_name("arch")
def arch_command(ctx: click.Context, name: str, output: Path | None, as_json: bool) -> None:
    """Write the distribution kinfolk-NAME, which offers the arch NAME: a made-up machine with waves of 32 lanes.

    Kernels for it compile and run on the simulator. Each file says what it holds; change one after the other.
    """
    _write(ctx, "arch", name, output, as_json)


def _write(ctx: click.Context, kind: str, name: str, output: Path | None, as_json: bool) -> None:
    from kinfolk.templates import TEMPLATES

    folder = output if output is not None else Path(name)
    try:
        files = TEMPLATES[kind].write(name, folder)
    except Refused as refused:
        rows = refusal_rows(refused.refusals)
        if as_json:
            print_document({"schema": SCHEMA, "status": "refused", "refusals": rows})
        else:
            print_refusals(rows)
        ctx.exit(EXIT_FAILED)
    if as_json:
        document = {"schema": SCHEMA, "status": "pass", "kind": kind, "name": name, "folder": str(folder)}
        print_document({**document, "files": [str(path.relative_to(folder)) for path in files]})
        return
    say(f"wrote {folder}, {len(files)} files of a distribution that offers the {kind} {name}. Next:")
    for line in (f"cd {folder}", *NEXT[kind]):
        click.echo(f"  {line.format(name=name)}")
    say(f"What each file holds, and in which order to change them: its README.md, and {PAGES[kind]}.")
