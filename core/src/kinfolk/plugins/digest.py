"""What identifies a policy in a plan: a digest over everything its package is made of."""

from __future__ import annotations

import hashlib
import importlib.resources
import inspect
import sys
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from types import ModuleType

from kinfolk.errors import PluginError
from kinfolk.plugins.loading import Loaded


def policy_digest(policy: Loaded) -> str:
    """Return 16 hex digits of sha256 over the names and bytes of all files of the policy's top-level package.

    Compiled Python is left out. A policy registered with a digest keeps that one. Raises PluginError where no file can
    be read.
    """
    if policy.offer.digest:
        return policy.offer.digest
    plugin = policy.plugin
    name = plugin.__name__ if isinstance(plugin, ModuleType) else type(plugin).__module__
    total = hashlib.sha256()
    count = 0
    for path, content in _files(name.partition(".")[0]):
        total.update(f"{path}\0{len(content)}\0".encode())
        total.update(content)
        count += 1
    if not count:
        raise PluginError(f"{policy}: no file of its package {name} can be read; give its digest to kinfolk.register")
    return total.hexdigest()[:16]


def _files(package: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a package, or the one file of a module, in order of their paths."""
    module = sys.modules[package]
    if hasattr(module, "__path__"):
        yield from _below(importlib.resources.files(package), "")
        return
    try:
        yield package, inspect.getsource(module).encode()
    except (OSError, TypeError):
        return


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _below(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith(".pyc"):
            yield f"{prefix}{entry.name}", entry.read_bytes()
