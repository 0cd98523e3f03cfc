"""The one folder under which this host keeps what can be made again: cached artifacts, other LLVMs."""

from __future__ import annotations

import os
from pathlib import Path


def storage_root() -> Path:
    """Return the folder that `KINFOLK_CACHE_DIR` names, else the platform's cache folder for kinfolk.

    It need not exist. A relative setting is taken from the current folder, once per call.
    """
    named = os.environ.get("KINFOLK_CACHE_DIR")
    if named:
        return Path(named).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("kinfolk", appauthor=False)
