"""Progress for who watches: on a terminal, on standard error; in a pipe nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator

Step = Callable[[str], None]


@contextlib.contextmanager
def progress(task: str, total: int | None = None) -> Generator[Step]:
    """Show a task while the block runs; call what is yielded with the name of each of `total` steps."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    if total is not None:
        columns = (*columns, BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task(task, total=total)

        def step(done: str) -> None:
            bar.update(shown, advance=1, description=f"{task} {done}")

        yield step
