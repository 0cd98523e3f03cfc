"""Print the kernels of a request in one of their stages, or write those of a whole spec space."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kinfolk.cli.output import EXIT_FAILED, print_defaults, print_refusals, refusal_rows
from kinfolk_runtime.cli.asked import arch_option, asked, flavor_option
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk.spec import Spec

SUFFIXES: Final = {"ir": ".mlir", "llvm": ".ll", "asm": ".s", "object": ".o"}
"""The stages of a kernel and the suffix of a file that holds one."""
BUNDLE: Final = "bundle"
STAGES: Final = (*SUFFIXES, BUNDLE)


def _stage(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return a stage by name."""
    if value not in STAGES:
        raise click.BadParameter(f"no stage {value!r}; there are {', '.join(STAGES)}.")
    return value


class OutputPath(click.Path):
    """The path of a file or a folder; an empty one is refused, which would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("output is '', supported: the path of a file or a folder. Give -o . for this folder.", param, ctx)
        return super().convert(value, param, ctx)


@click.command("emit")
@click.argument("family")
@arch_option
@flavor_option
@click.option(
    "--stage", callback=_stage, default="ir", show_default=True, metavar="|".join(STAGES), help="How far to go."
)
@click.option("--all", "whole_space", is_flag=True, help="Emit every spec of the family into the folder -o.")
@click.option("-o", "--output", type=OutputPath(path_type=Path), metavar="PATH", help="A file; a folder for several.")
@click.argument("fields", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_context
def command(
    ctx: click.Context,
    family: str,
    arch: str,
    flavor: str,
    stage: str,
    whole_space: bool,
    output: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Print the kernels of a request of FAMILY: IR, LLVM IR, assembly or the object; or write a bundle.

    Text goes to standard output unless -o names a file; what was filled in of the request goes to standard error. Only
    asm, object and bundle need a toolchain, and only an object or a bundle has passed the resource gate. A bundle is a
    folder that a host without Python uses: docs/bundles.md.
    """
    if whole_space and (fields or output is None):
        raise click.UsageError("--all takes no KEY=VALUE and a folder: -o PATH")
    if stage == "object" and output is None:
        raise click.UsageError("an object is binary: give -o PATH")
    if stage == BUNDLE and output is None:
        raise click.UsageError("a bundle is a folder: give -o DIR")
    if whole_space:
        from kinfolk.plugins.composition import compose
        from kinfolk_runtime.spec_space import spec_space

        composition = compose(family, arch)
        if stage == BUNDLE:
            _write_bundle(output, composition, flavor, None)
            return
        specs = spec_space(composition, flavor)
        if not specs:
            raise click.ClickException(f"no candidate of {family} on {arch} has a spec for {flavor}")
    else:
        found = asked(family, arch, flavor, fields)
        print_defaults(found.defaults, err=True)
        if found.plan is None or found.composition is None:
            print_refusals(refusal_rows(found.refusals), err=True)
            ctx.exit(EXIT_FAILED)
        composition = found.composition
        if stage == BUNDLE:
            _write_bundle(output, composition, flavor, found.plan.request)
            return
        specs = tuple({launch.spec.identity(): launch.spec for launch in found.plan.launches}.values())
    emission = Emission(composition=composition, flavor=flavor, stage=stage)
    if output is None:
        for spec in specs:
            click.echo(emission.content(spec).decode(), nl=False)
    else:
        _write(emission, specs, output, into_folder=whole_space)


def _write_bundle(output: Path | None, composition: Composition, flavor: str, request: Request | None) -> None:
    """Write a bundle of one request or, without one, of all."""
    from kinfolk_runtime.bundles import write_bundle

    assert output is not None
    try:
        with progress("emitting bundle") as step:
            written = write_bundle(output, composition, flavor, request=request, step=step)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename or output}: {error.strerror}") from error
    click.echo(str(written), err=True)


@attrs.frozen(kw_only=True)
class Emission:
    """How kernels are emitted: through which composition, for which flavor, up to which stage."""

    composition: Composition
    flavor: str
    stage: str

    def content(self, spec: Spec) -> bytes:
        """Return a spec's kernel in the stage, text as UTF-8 that ends with a newline.

        Raises IRError, ToolError or Refused as emission, the static analyses, compilation and the gate do.
        """
        if self.stage == "object":
            from kinfolk_runtime.compilation import compile_specs

            return compile_specs((spec,), self.flavor, composition=self.composition)[0].object
        return f"{self._text(spec).rstrip()}\n".encode()

    def _text(self, spec: Spec) -> str:
        from kinfolk_runtime.artifact import compile_job, expect_no_defect, lower_spec
        from kinfolk_runtime.toolchains.host import toolchain_for

        if self.stage == "ir":
            from kinfolk.ir.text import print_kernel

            kernel = self.composition.emit(spec)
            expect_no_defect(self.composition, spec, kernel)
            return print_kernel(kernel)
        kernel, module = lower_spec(self.composition, spec, self.flavor)
        expect_no_defect(self.composition, spec, kernel)
        if self.stage == "llvm":
            return module.text
        return toolchain_for(self.flavor).compile(compile_job(module, assembly=True)).assembly or ""


def file_names(specs: Iterable[Spec], suffix: str) -> dict[str, Spec]:
    """Return a file name for each spec: its symbol, which is no key, with its digest where two share one."""
    every = tuple(specs)
    symbols = [spec.symbol() for spec in every]
    return {
        f"{symbol}-{spec.digest()}{suffix}" if symbols.count(symbol) > 1 else f"{symbol}{suffix}": spec
        for symbol, spec in zip(symbols, every, strict=True)
    }


def _write(emission: Emission, specs: tuple[Spec, ...], output: Path, *, into_folder: bool) -> None:
    """Write one kernel to the file, or several, or into a folder that is there, under their own names."""
    suffix = SUFFIXES[emission.stage]
    files = {output: specs[0]}
    if into_folder or len(specs) > 1 or output.is_dir():
        files = {output / name: spec for name, spec in file_names(specs, suffix).items()}
    try:
        _check_folder(next(iter(files)).parent, output)
        with progress(f"emitting {emission.stage}", len(files)) as step:
            for path, spec in files.items():
                path.write_bytes(emission.content(spec))
                step(path.name)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename or output}: {error.strerror}") from error
    click.echo(f"{len(files)} written: {output}", err=True)


def _check_folder(folder: Path, output: Path) -> None:
    """Make the folder that was named, if the one it is in is there; no other folder is made."""
    for parent in (folder, *folder.parents):
        if parent.exists() and not parent.is_dir():
            raise click.ClickException(f"cannot write {output}: {parent} is a file, no folder")
    if folder == output and folder.parent.is_dir():
        folder.mkdir(exist_ok=True)
    if not folder.is_dir():
        missing = folder.parent if folder == output else folder
        raise click.ClickException(f"cannot write {output}: there is no folder {missing}. Make it first.")
