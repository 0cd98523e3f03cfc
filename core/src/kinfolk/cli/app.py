"""The click group whose commands are found by name and imported when called."""

from __future__ import annotations

import ast
import errno
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import click

from kinfolk._version import __version__
from kinfolk.cli.output import EXIT_FAILED, TRACEBACK, show_traceback
from kinfolk.errors import KinfolkError, PluginError
from kinfolk.plugins.discovery import catalog
from kinfolk.plugins.faults import UnknownPlugin, sentence_of
from kinfolk.plugins.loading import installed, load


class CommandFailed(click.ClickException):
    """An error of kinfolk that a command did not report itself: one line, exit status 1."""

    exit_code = EXIT_FAILED


class Verbs(click.Group):
    """A verb with verbs of its own, whose help says the first sentence of each whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Verbs"):
            formatter.write_dl([(name, each.get_short_help_str(limit=1000)) for name, each in found if each])


class PluginCommands(click.Group):
    """A group that knows its commands by name only.

    A command that cannot be loaded fails when it is called, and no other.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(installed("command"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            command = load("command", cmd_name).plugin
        except UnknownPlugin:
            return None
        except PluginError as error:
            raise CommandFailed(str(error)) from error
        if not isinstance(command, click.Command):
            raise CommandFailed(f"the entry point of command {cmd_name} names {command!r}, which is no click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-"):
                raise
            notes = "".join(f" Note: {note}." for note in catalog().notes)
            raise click.UsageError(unknown("verb", args[0], self.list_commands(ctx)) + notes, ctx) from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take --traceback wherever it stands: it is the same for every verb."""
        kept = [word for word in args if word != TRACEBACK]
        return super().parse_args(ctx, kept if kept == args else [TRACEBACK, *kept])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KinfolkError as error:
            show_traceback(error)
            notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
            raise CommandFailed(f"{error}{notes}") from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except SystemExit as error:
            show_traceback(error)
            verb = ctx.invoked_subcommand or "the command"
            raise CommandFailed(f"{verb} ended itself: {sentence_of(error)}") from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            show_traceback(error)
            where = f"{error.filename}: " if error.filename else ""
            raise CommandFailed(f"{where}{error.strerror or error}") from error
        except Exception as error:
            show_traceback(error)
            raise CommandFailed(f"{sentence_of(error)}; {TRACEBACK} prints where") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, _summary(name)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Verbs"):
                formatter.write_dl(rows)
        else:
            with formatter.section("Verbs"):
                formatter.write_text("None is known: kinfolk-core carries no metadata here. Install it with pip.")


def unknown(noun: str, given: str, known: list[str]) -> str:
    """Return the message about a word that is none of those known, with the nearest."""
    import difflib

    close = difflib.get_close_matches(given, known, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(known)}." if known else "There is none."
    return f"no {noun} {given!r}. {hint}"


def _summary(name: str) -> str:
    """Return the first line of what a command's module says of itself, read from its file: help imports no plugin."""
    offers = catalog().offers["command", name]
    owner = f"({', '.join(offer.distribution for offer in offers)})"
    for path in _sources(offers[0].module):
        try:
            text = ast.get_docstring(ast.parse(path.read_bytes()))
        except (OSError, SyntaxError, ValueError):
            return owner
        if text:
            return f"{text.splitlines()[0]} {owner}"
    return owner


def _sources(module: str) -> Iterator[Path]:
    """Yield where a module's source may lie, found without importing the packages above it."""
    package, *parts = module.split(".")
    spec = PathFinder.find_spec(package)
    if spec is None:
        return
    if not parts and spec.origin:
        yield Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        path = Path(folder, *parts)
        yield from filter(Path.is_file, (path.with_suffix(".py"), path / "__init__.py"))


@click.group(cls=PluginCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kinfolk")
@click.option(TRACEBACK, is_flag=True, help="Print where an error of a plugin or of kinfolk came from.")
def app(traceback: bool) -> None:
    """GPU kernel families as plugins: which kernel serves a request, why, and whether it works."""
