"""What every test has in common: a cache of its own, so that no run finds what another has compiled."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run() -> Iterator[None]:
    """Point KINFOLK_CACHE_DIR at an empty folder, for this process and those it starts; installed LLVMs stay."""
    before = os.environ.get("KINFOLK_CACHE_DIR")
    folder = tempfile.mkdtemp(prefix="kinfolk-tests-")
    with contextlib.suppress(ImportError):
        from kinfolk_runtime.storage import storage_root

        if (installed := storage_root() / "toolchains").is_dir():
            os.symlink(installed, os.path.join(folder, "toolchains"))
    os.environ["KINFOLK_CACHE_DIR"] = folder
    yield
    if before is None:
        del os.environ["KINFOLK_CACHE_DIR"]
    else:
        os.environ["KINFOLK_CACHE_DIR"] = before
    shutil.rmtree(folder, ignore_errors=True)
