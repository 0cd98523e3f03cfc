"""List, measure and clear what is kept between runs: compiled objects, lowered kernels, functions of the simulator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kinfolk.cli.app import Verbs
from kinfolk.cli.output import print_document
from kinfolk.cli.table import print_table

if TYPE_CHECKING:
    from kinfolk_runtime.cache import Entry

SCHEMA: Final = "kinfolk.cache/1"

json_option = click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")


@click.group("cache", cls=Verbs)
def command() -> None:
    """List, measure and clear what is kept between runs.

    The folder is the one that KINFOLK_CACHE_DIR names, else the platform's cache folder.
    """


@command.command("list")
@json_option
def list_entries(as_json: bool) -> None:
    """List every entry, damaged ones and what was left unfinished included. Each is read whole and compared with its
    manifest; a damaged one is never used and is replaced when its kernel is next compiled.
    """
    root, entries = _found()
    if as_json:
        print_document({**_document(root), "entries": [_row(entry) for entry in entries]})
        return
    columns = ("kind", "key", "kernel", "arch", "flavor", "bytes", "state", "toolchain")
    names = ("symbol", "arch", "flavor")
    cells = [
        (
            entry.kind,
            entry.key[:12],
            *(entry.about.get(name, "") for name in names),
            entry.bytes,
            entry.state,
            entry.about.get("toolchain", ""),
        )
        for entry in entries
    ]
    print_table(f"{root}: {len(entries)} entries", columns, cells)


@command.command("size")
@json_option
def size(as_json: bool) -> None:
    """Show how many entries there are and what they take."""
    from kinfolk_runtime.cache import stores

    root, entries = _found()
    totals: dict[str, Counter[str]] = {store.kind: Counter() for store in stores()}
    for entry in entries:
        totals[entry.kind].update({entry.state: 1, "bytes": entry.bytes})
    names = ("ok", "damaged", "unfinished", "bytes")
    kinds = [{"kind": kind, **{name: counts[name] for name in names}} for kind, counts in totals.items()]
    if as_json:
        print_document({**_document(root), "kinds": kinds, "bytes": sum(entry.bytes for entry in entries)})
        return
    total = {"kind": "total", **{name: sum(counts[name] for counts in totals.values()) for name in names}}
    print_table(str(root), ("kind", *names), [tuple(row.values()) for row in (*kinds, total)])


@command.command("clear")
@json_option
def clear(as_json: bool) -> None:
    """Delete every entry and whatever was left unfinished; anything else in the folder stays."""
    from kinfolk_runtime.cache import stores

    root, entries = _found()
    removed = sum(store.clear() for store in stores())
    freed = sum(entry.bytes for entry in entries)
    if as_json:
        print_document({**_document(root), "entries": len(entries), "files": removed, "bytes": freed})
    else:
        click.echo(f"{root}: {len(entries)} entries deleted, {removed} files, {freed} bytes")


def _found() -> tuple[Path, list[Entry]]:
    """Return where the cache is and every entry. Raises CacheError."""
    from kinfolk_runtime.cache import stores
    from kinfolk_runtime.storage import storage_root

    entries = [entry for store in stores() for entry in store.entries()]
    return storage_root(), entries


def _document(root: Path) -> dict[str, Any]:
    return {"schema": SCHEMA, "root": str(root)}


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "key": entry.key,
        "state": entry.state,
        "bytes": entry.bytes,
        "files": [str(path) for path in entry.files],
        "about": dict(entry.about),
    }
