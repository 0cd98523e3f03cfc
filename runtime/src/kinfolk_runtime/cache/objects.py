"""Compiled objects by artifact key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from kinfolk.arch import Arch, LoweredModule
from kinfolk.errors import KinfolkError
from kinfolk.usage import KernelArgument, Usage
from kinfolk_runtime.artifact import compile_job, sha256
from kinfolk_runtime.cache.store import OBJECTS, stores


@attrs.frozen(kw_only=True)
class ObjectEntry:
    """The place of one object: its artifact key, and what an object there must be made from and for."""

    key: str
    module: LoweredModule
    arch: Arch
    flavor: str
    toolchain: str

    def get(self, compile: Callable[[], bytes]) -> bytes:  # noqa: A002
        """Return the object that is kept, or compile and keep it.

        An object whose figures cannot be read is returned and not kept: whoever reads them says what is wrong with it.
        """
        stores()
        kept = OBJECTS.read(self.key)
        if kept is not None:
            code, about = kept
            if about == self._about(code):
                return code
        code = compile()
        about = self._about(code)
        if about is not None:
            OBJECTS.write(self.key, code, about)
        return code

    def _about(self, code: bytes) -> dict[str, Any] | None:
        """Return what the manifest of this object says of it; None where it is no object of this kernel and target."""
        try:
            usage = self.arch.usage(code, self.module.symbol)
        except KinfolkError:
            return None
        if usage.target.partition(":")[0] != self.module.cpu:
            return None
        return {
            "symbol": self.module.symbol,
            "arch": self.arch.name,
            "flavor": self.flavor,
            "toolchain": self.toolchain,
            "target": compile_job(self.module).target,
            "llvm_ir_sha256": sha256(self.module.text.encode()),
            "usage": usage_data(usage),
        }


def usage_data(usage: Usage) -> dict[str, Any]:
    """Return all figures as JSON data."""

    def rows(arguments: tuple[KernelArgument, ...]) -> list[list[int | str]]:
        return [[argument.offset, argument.size, argument.kind] for argument in arguments]

    return {
        "symbol": usage.symbol,
        "target": usage.target,
        "scratch_bytes": usage.scratch_bytes,
        "scratch_ops": usage.scratch_ops,
        "figures": dict(usage.figures),
        "arguments": rows(usage.arguments),
        "hidden": rows(usage.hidden),
    }
