"""Code objects as a device loads them: linked, and read again before anything is launched from them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from kinfolk.errors import BindError
from kinfolk.parameters import Parameter
from kinfolk.usage import Usage
from kinfolk_runtime.artifact import check_arguments, sha256
from kinfolk_runtime.toolchains.linker import link

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.plan import Launch
    from kinfolk_runtime.artifact import CompiledKernel

_linked: Final[dict[str, bytes]] = {}
_images: Final[dict[tuple[str, str, str, str], Image]] = {}
_lock: Final = threading.Lock()


class Coded(Protocol):
    """A composition that holds linked code objects, as a bundle does."""

    def code(self, launch: Launch) -> bytes: ...


@attrs.frozen(kw_only=True)
class Image:
    """A linked code object with the kernel of one launch; `usage` is read from it, `parameters` are the declared."""

    symbol: str
    digest: str
    code: bytes = attrs.field(repr=False)
    usage: Usage = attrs.field(repr=False)
    parameters: tuple[Parameter, ...] = attrs.field(repr=False)
    block: int


def image_of(launch: Launch, arch: Arch, compiled: CompiledKernel | None, composition: object) -> Image:
    """Return the code object of a launch: linked from what was compiled, or as a bundle holds it.

    Raises BindError where there is neither, ToolError where linking fails, ArtifactError where the object takes other
    arguments than its spec declares.
    """
    symbol = launch.spec.symbol()
    if compiled is not None:
        code = _linked_object(compiled)
    elif callable(getattr(composition, "code", None)):
        coded: Coded = composition  # pyright: ignore[reportAssignmentType]  # it has the method, which is all of it
        code = coded.code(launch)
    else:
        raise BindError(
            f"{symbol} is bound from a plan, which has no machine code for a device to load. Bind what "
            f"kinfolk_runtime.compile(plan) returns."
        )
    key = (sha256(code), symbol, arch.name, launch.spec.digest())
    with _lock:
        if key not in _images:
            usage = arch.usage(code, symbol)
            check_arguments(usage, launch.spec)
            _images[key] = Image(
                symbol=symbol,
                digest=key[0],
                code=code,
                usage=usage,
                parameters=launch.spec.parameters(),
                block=launch.block,
            )
        return _images[key]


def _linked_object(compiled: CompiledKernel) -> bytes:
    """Return a kernel's linked code object; each is linked once in a process."""
    key = compiled.object_sha256
    with _lock:
        if key not in _linked:
            _linked[key] = link(compiled.object, kernel=compiled.symbol)
        return _linked[key]
