"""Bundles: a family on an arch as a folder of data and code objects, for hosts without Python and without the family.

write_bundle(folder, composition, flavor)      # what `kinfolk emit --stage bundle` does
bundle = load_bundle(folder)                   # dispatches, binds and runs on the simulator
"""

from __future__ import annotations

from pathlib import Path

from kinfolk_runtime.bundles.document import SCHEMA, BundleError
from kinfolk_runtime.bundles.reader import Bundle, load_bundle
from kinfolk_runtime.bundles.writer import write_bundle

__all__ = ["SCHEMA", "Bundle", "BundleError", "include_folder", "load_bundle", "write_bundle"]


def include_folder() -> Path:
    """Return the folder that a C++ compiler is given to find `<kinfolk/bundle.hpp>` in."""
    import kinfolk_runtime

    return Path(kinfolk_runtime.__file__).parent / "include"
