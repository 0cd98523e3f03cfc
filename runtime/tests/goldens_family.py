"""A family, an arch and toolchains made up for the tests of goldens: every way to move is a switch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from kinfolk.arch import Arch, LoweredModule
from kinfolk.candidate import Candidate
from kinfolk.errors import IRError, ToolError
from kinfolk.expr import field
from kinfolk.fields import ExactInt
from kinfolk.hooks import hookimpl
from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.ops import control
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded
from kinfolk.refusal import Limit, unmet
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk.usage import KernelArgument, Usage
from kinfolk_runtime.goldens import bless
from kinfolk_runtime.goldens.check import Host
from kinfolk_runtime.toolchains.base import Compiled, CompileJob

PACKAGES = itertools.count()

REFUSED = 77
"""The width that the family refuses."""


@attrs.frozen(kw_only=True)
class ReelRequest(Request):
    family: ClassVar[str] = "reel"
    width: int = attrs.field(validator=ExactInt(1, 4096))


@attrs.frozen(kw_only=True)
class ReelSpec(Spec):
    width: int = attrs.field(validator=ExactInt(1, 4096))

    def symbol(self) -> str:
        return f"reel_w{self.width}"

    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(name="rows", type=I32),)


@attrs.define
class Reel:
    """The family. `raises` are widths whose emission is an error, `because` is why one width is refused."""

    widths: Sequence[int]
    raises: Sequence[int] = ()
    because: str = "it does not fit"

    @hookimpl
    def kinfolk_request_type(self) -> type[Request]:
        return ReelRequest

    @hookimpl
    def kinfolk_candidates(self) -> list[Candidate]:
        def specs(arch: Arch, flavor: str) -> list[ReelSpec]:
            return [ReelSpec(width=width) for width in self.widths]

        return [Candidate(name="reel", priority=1, plugin="reel", capability=(), plan=_unplanned, specs=specs)]

    @hookimpl
    def kinfolk_validate_spec(self, spec: Spec, arch: Arch) -> Any:
        wide = Limit("reel.width", "cannot", "width", field("width").ne(REFUSED), because=self.because, remedy="Cut.")
        return unmet((wide,), spec, arch, "reel")

    @hookimpl
    def kinfolk_emit_ir(self, spec: Spec, arch: Arch) -> Kernel:
        assert isinstance(spec, ReelSpec)
        if spec.width in self.raises:
            raise IRError("torn paper")
        return build_kernel(spec.symbol(), spec.parameters(), arch=arch, block=32, body=_meet)

    @hookimpl
    def kinfolk_reference(self) -> None:
        return None

    @hookimpl
    def kinfolk_scenarios(self) -> list[Any]:
        return []


def _meet(rows: Value) -> None:
    """Wait where there are rows: something that depends on the parameter."""
    control.if_else(rows > 0, lambda: control.barrier() or ())


def _unplanned(*_: Any) -> Any:
    raise AssertionError("nothing is planned here")


@attrs.define
class Sheet:
    """The arch. `mark` is text of all LLVM IR, `columns` what every kernel takes more, `spills` a width that does."""

    mark: str = ""
    columns: int = 0
    spills: int = 0

    @hookimpl
    def kinfolk_arch(self) -> Arch:
        return Arch(
            name="sheet",
            target_ids=("sheet",),
            wave_size=32,
            facts={},
            matrix=MatrixCatalog(()),
            lower_kernel=self.lower,
            read_usage=self.usage,
        )

    def lower(self, kernel: Kernel, arch: Arch, spec: Spec | None, llvm: int) -> LoweredModule:
        assert isinstance(spec, ReelSpec)
        text = f"; llvm {llvm}{self.mark}\n; width {spec.width}"
        return LoweredModule(symbol=kernel.name, text=text, triple="t", cpu="sheet")

    def usage(self, code: bytes, symbol: str, arch: Arch) -> Usage:
        width = int(code.split()[-1])
        return Usage(
            symbol=symbol,
            target="sheet",
            scratch_bytes=8 if width == self.spills else 0,
            scratch_ops=0,
            figures={"columns": width + self.columns},
            arguments=(KernelArgument(offset=0, size=4, kind="value"),),
        )


@attrs.define
class Press:
    """A toolchain that hands the text back; `breaks` is a width that it does not compile."""

    name: str
    flavors: tuple[str, ...]
    build: str = ""
    breaks: int = 0

    def compile(self, job: CompileJob) -> Compiled:
        if job.llvm_ir.endswith(f" {self.breaks}"):
            raise ToolError(f"compiling {job.kernel} failed: jammed")
        return Compiled(object=job.llvm_ir.encode(), assembly=None)


def presses(*names: str) -> Host:
    """Return a host with these toolchains, of build NAME-1: `press20` takes llvm20, and so on."""
    made = {name: Press(name, (f"llvm{name[-2:]}",), f"{name}-1") for name in names or ("press20", "press22")}
    return Host(toolchains=made, absent={"press99": "the press99 toolchain does not start. Buy one."})


@attrs.define
class Shop:
    """All of it, and the folder of goldens in the family's package."""

    family: Reel
    arch: Sheet
    composition: Composition
    folder: Path

    @classmethod
    def opened(cls, site: Path, package: str, *widths: int) -> Shop:
        """Return the shop of a package in `site`, a folder on the path for imports."""
        (site / package).mkdir(exist_ok=True)
        (site / package / "__init__.py").touch()
        family, arch = Reel(widths), Sheet()

        def loaded(kind: str, name: str, plugin: object) -> Loaded:
            offer = Offer(kind=kind, name=name, value=f"{package}.plugin", distribution=name, version="7")
            return Loaded(offer, plugin)

        composition = Composition(loaded("family", "reel", family), loaded("arch", "sheet", arch))
        return cls(family, arch, composition, site / package / "goldens")

    @classmethod
    def blessed(cls, site: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
        """Return a shop of widths 32, 64 and 96 whose goldens are blessed, on the path for imports."""
        monkeypatch.syspath_prepend(str(site))
        made = cls.opened(site, f"golden_reel_{next(PACKAGES)}", 32, 64, 96)
        bless([made.composition], presses(), "First.")
        return made
