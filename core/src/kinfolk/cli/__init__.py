"""The command line: `kinfolk VERB ...`. Verbs are click commands in the entry-point group `kinfolk.commands`, imported
when called.

Exit status 0: pass; 1: refused, invalid or failed; 2: an unknown verb, flag or field.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; without its libraries, say which extra brings them."""
    try:
        from kinfolk.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(f"kinfolk: the command line needs {error.name}: pip install 'kinfolk-core[cli]'", file=sys.stderr)
        sys.exit(1)
    from kinfolk.cli.process import guarded

    guarded(app.main, args=arguments, prog_name="kinfolk")


__all__ = ["main"]
