"""Kernels as data: the code object of each spec, its arguments as that object says, and a spec that stands for it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import attrs

from kinfolk.fields import ExactStr
from kinfolk.ir.text import print_kernel
from kinfolk.ir.types import SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plugins.composition import Composition
from kinfolk.spec import Spec
from kinfolk_runtime.artifact import CompiledKernel, argument_layout, check_arguments
from kinfolk_runtime.bundles.document import CODE, IR, BundleError
from kinfolk_runtime.toolchains.linker import find_linker, link

CODE_SUFFIX: Final = ".co"
IR_SUFFIX: Final = ".mlir"
BOUNDS: Final = ("minimum", "maximum")


@attrs.frozen(kw_only=True)
class BundledSpec(Spec):
    """Stands for a spec whose family need not be here: its symbol, its digest, the parameters its kernel declares."""

    name: str = attrs.field(validator=ExactStr())
    of: str = attrs.field(validator=ExactStr())
    declared: str = attrs.field(validator=ExactStr())

    def symbol(self) -> str:
        """Return the kernel's name in the code object."""
        return self.name

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes."""
        return tuple(_parameter(each) for each in json.loads(self.declared))


def spec_from(digest: str, data: dict[str, Any]) -> BundledSpec:
    """Return the stand-in for the spec of this digest."""
    return BundledSpec(name=data["symbol"], of=digest, declared=json.dumps(data["arguments"], sort_keys=True))


def _parameter(data: dict[str, Any]) -> Parameter:
    element = SCALARS[data["element"]]
    kind = PointerType(element) if data["kind"] == "pointer" else element
    bounds = {name: data[name] for name in BOUNDS if name in data}
    return Parameter(name=data["name"], type=kind, access=data["access"], alignment=data["alignment"], **bounds)


def _argument_data(parameter: Parameter, offset: int) -> dict[str, Any]:
    kind = parameter.type
    element = kind.element.name if isinstance(kind, PointerType) else kind.name
    bounds = {name: bound for name in BOUNDS if (bound := getattr(parameter, name)) is not None}
    return {
        "name": parameter.name,
        "kind": parameter.kind,
        "element": element,
        "access": parameter.access,
        "alignment": parameter.alignment,
        **bounds,
        "offset": offset,
        "size": parameter.bytes,
    }


def kernel_files(
    composition: Composition, compiled: CompiledKernel, name: str
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return a kernel's entry, and its files by their path in the bundle: the linked code object and the IR's text.

    The arguments are read from the linked object. Raises ToolError where there is no linker, or linking fails, and
    ArtifactError or BundleError where the linked object is not what was compiled, or there is no object to link.
    """
    if compiled.module.code != "object":
        raise BundleError(
            f"kernel {compiled.symbol}: {compiled.module.triple} is compiled to {compiled.module.code}, "
            "and a bundle holds linked objects. kinfolk emit --stage object writes what there is."
        )
    linked = link(compiled.object, kernel=compiled.symbol)
    usage = composition.arch.usage(linked, compiled.symbol)
    check_arguments(usage, compiled.spec)
    if (usage.arguments, usage.figures) != (compiled.usage.arguments, compiled.usage.figures):
        raise BundleError(f"kernel {compiled.symbol}: the linked code object has other figures than the compiled one")
    parameters = compiled.spec.parameters()
    code, ir = f"{CODE}/{name}{CODE_SUFFIX}", f"{IR}/{name}{IR_SUFFIX}"
    text = f"{print_kernel(compiled.kernel).rstrip()}\n".encode()
    places = zip(parameters, usage.arguments, strict=True)
    entry = {
        "symbol": compiled.symbol,
        "spec": compiled.spec.data(),
        "code": {"file": code, "sha256": hashlib.sha256(linked).hexdigest(), "bytes": len(linked)},
        "ir": {"file": ir, "sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)},
        "target": usage.target,
        "arguments": [_argument_data(parameter, place.offset) for parameter, place in places],
        "argument_bytes": max((place.offset + place.size for place in argument_layout(parameters)), default=0),
        "figures": {"scratch_bytes": usage.scratch_bytes, "scratch_ops": usage.scratch_ops, **usage.figures},
        "artifact": compiled.key,
        "toolchain": compiled.toolchain,
    }
    return entry, {code: linked, ir: text}


def linker_name() -> str:
    """Return which linker links here, for people; ToolError with the remedy where there is none."""
    found = find_linker()
    return f"{found.vendor} {found.version}"
