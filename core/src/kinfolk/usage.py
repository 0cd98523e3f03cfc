"""What one compiled kernel takes of its machine, read from the object and not from any estimate."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs


def _frozen(figures: Mapping[str, int]) -> Mapping[str, int]:
    return MappingProxyType(dict(figures))


@attrs.frozen(kw_only=True)
class KernelArgument:
    """One argument as the compiled kernel reads it: offset and size in bytes, kind `pointer` or `value`.

    `name` is what the object calls it, which decides nothing; empty where it does not say.
    """

    offset: int
    size: int
    kind: str
    name: str = attrs.field(default="", eq=False)


@attrs.frozen(kw_only=True)
class Usage:
    """The figures of one kernel in one object.

    `scratch_bytes` is private memory per work-item, `scratch_ops` the instructions that touch it. `figures` are those
    the arch declares. `arguments` are the declared ones in order, `hidden` those the compiler added. `target` is the
    processor the code is for, as the object says it.
    """

    symbol: str
    target: str
    scratch_bytes: int
    scratch_ops: int
    figures: Mapping[str, int] = attrs.field(converter=_frozen, hash=False)
    arguments: tuple[KernelArgument, ...] = ()
    hidden: tuple[KernelArgument, ...] = ()

    def figure(self, name: str) -> int:
        """Return a figure by name, scratch included; KeyError names those there are."""
        known = {"scratch_bytes": self.scratch_bytes, "scratch_ops": self.scratch_ops, **self.figures}
        if name not in known:
            raise KeyError(f"{self.symbol} has no figure {name}; it has {', '.join(sorted(known))}")
        return known[name]

    def __reduce__(self) -> tuple[object, ...]:
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}
        return _rebuild, (fields | {"figures": dict(self.figures)},)


def _rebuild(fields: dict[str, object]) -> Usage:
    return Usage(**fields)  # type: ignore[arg-type]
