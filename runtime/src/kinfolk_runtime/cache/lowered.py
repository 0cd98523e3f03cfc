"""A memo from specs to LLVM IR, which an edited emitter, arch or core makes useless at once."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import attrs

from kinfolk.arch import LoweredModule
from kinfolk.ir.value import Kernel
from kinfolk.spec import Spec
from kinfolk_runtime.artifact import ArtifactError, expect_no_defect, lower_spec, sha256
from kinfolk_runtime.cache.sources import sources_of
from kinfolk_runtime.cache.store import LOWERED, SCHEMA, stores

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition


def lowered(composition: Composition, spec: Spec, flavor: str) -> tuple[Kernel | Callable[[], Kernel], LoweredModule]:
    """Return LLVM IR as `lower_spec`, from the memo where the sources are those it was made from, and the kernel.

    A kernel whose LLVM IR was in the memo is emitted when it is asked for, and must then give that LLVM IR. Nothing
    gets into the memo, or is returned without it, that a static analysis holds a fault against: DefectiveKernel.
    """
    stores()
    sources = sources_of(composition)
    if sources is None or not sources.hold(type(spec)) or not sources.imported:
        return _analysed(composition, spec, flavor)
    key = sha256(json.dumps([SCHEMA, spec.identity(), composition.arch.name, flavor, sources.digest]).encode())
    about = {
        "spec": spec.digest(),
        "arch": composition.arch.name,
        "flavor": flavor,
        "sources": sources.digest,
        "symbol": spec.symbol(),
    }
    kept = LOWERED.read(key)
    module = _module(*kept, about) if kept else None
    if module is not None:
        return functools.cache(functools.partial(_emitted, composition, spec, flavor, module)), module
    kernel, module = _analysed(composition, spec, flavor)
    if sources.imported:  # still: what was imported to emit this one was not edited meanwhile
        LOWERED.write(key, module.text.encode(), {**about, "target": _target(module)})
    return kernel, module


def _analysed(composition: Composition, spec: Spec, flavor: str) -> tuple[Kernel, LoweredModule]:
    kernel, module = lower_spec(composition, spec, flavor)
    expect_no_defect(composition, spec, kernel)
    return kernel, module


def _target(module: LoweredModule) -> dict[str, Any]:
    """Return all of a module but its text, as JSON data."""
    fields = {field.name: getattr(module, field.name) for field in attrs.fields(LoweredModule)}
    del fields["text"]
    return {**fields, "options": dict(module.options)}


def _module(text: bytes, found: Mapping[str, Any], about: Mapping[str, Any]) -> LoweredModule | None:
    """Return the module of an entry; None where it describes another spec, or no module."""
    if {name: value for name, value in found.items() if name != "target"} != about:
        return None
    try:
        module = LoweredModule(text=text.decode(), **cast("dict[str, Any]", found["target"]))
    except (KeyError, TypeError, ValueError):
        return None
    return module if module.symbol == about["symbol"] else None


def _emitted(composition: Composition, spec: Spec, flavor: str, module: LoweredModule) -> Kernel:
    kernel, again = lower_spec(composition, spec, flavor)
    if again != module:
        raise ArtifactError(
            f"kernel {spec.symbol()} ({spec.digest()}, {composition.arch.name}, {flavor}): emitting it again gives "
            "other LLVM IR than is kept; `kinfolk cache clear` removes what is kept"
        )
    return kernel
