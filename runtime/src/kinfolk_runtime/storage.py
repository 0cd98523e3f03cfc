"""The one folder under which this host keeps what can be made again: cached artifacts, other LLVMs."""

from __future__ import annotations

import os
from pathlib import Path

from kinfolk.errors import KinfolkError


class StorageError(KinfolkError):
    """KINFOLK_CACHE_DIR is set to what is no path."""


def storage_root() -> Path:
    """Return the folder that `KINFOLK_CACHE_DIR` names, else the platform's cache folder for kinfolk.

    It need not exist. A relative setting is taken from the current folder, once per call. Raises StorageError where the
    setting cannot be a path.
    """
    named = os.environ.get("KINFOLK_CACHE_DIR")
    if named:
        try:
            return Path(named).expanduser().absolute()
        except (RuntimeError, ValueError, OSError) as error:
            why = str(error).rstrip(".")
            told = f"KINFOLK_CACHE_DIR is {named!r}, which is no folder: {why}. Set it to a path, or unset it."
            raise StorageError(told) from error
    import platformdirs

    return platformdirs.user_cache_path("kinfolk", appauthor=False)
