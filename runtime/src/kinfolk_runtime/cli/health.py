"""What stands and what does not on this host: a row per check, with what to do about each that fails."""

from __future__ import annotations

import platform
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from kinfolk._version import __version__
from kinfolk.errors import KinfolkError, ToolError
from kinfolk.plugins.faults import HookFault
from kinfolk_runtime.storage import storage_root
from kinfolk_runtime.toolchains.llvm20 import REMEDY as INSTALL_LLVM20

if TYPE_CHECKING:
    from kinfolk.cli.probing import Row
    from kinfolk_runtime.toolchains.base import Toolchain

REMEDIES: Final = {"llvm20": INSTALL_LLVM20, "llvm22": "pip install --force-reinstall 'llvmlite>=0.50,<0.51'"}
"""What brings a toolchain of a flavor."""

State = Literal["ok", "missing", "broken"]
META: Final = "kinfolk"
"""The distribution that only names ours."""


@attrs.frozen(kw_only=True)
class Check:
    """One check: what was found, and where it is not `ok`, what to do. A `required` one that is not ok is a failure."""

    group: str
    name: str
    state: State = "ok"
    required: bool = False
    found: str = ""
    remedy: str = ""

    @property
    def failed(self) -> bool:
        """Whether something that is needed does not stand."""
        return self.required and self.state != "ok"

    @property
    def standing(self) -> str:
        """The state in words: `missing, optional` is nothing to worry about."""
        return self.state if self.required or self.state == "ok" else f"{self.state}, optional"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        return attrs.asdict(self)


def health(rows: Iterable[Row]) -> Iterator[Check]:
    """Yield all checks; `rows` are the installed plugins as `kinfolk.cli.probing` found them."""
    from kinfolk.plugins.discovery import catalog

    plugins = tuple(rows)
    yield _python()
    yield _storage()
    for note in catalog().notes:
        yield Check(group="host", name="note", found=note)
    ours = _ours()
    for name in ours:
        yield from _distribution(name)
    yield from _libraries(ours)
    for row in plugins:
        yield _plugin(row, ours)
    toolchains: list[Toolchain] = []
    for row in plugins:
        if row.kind == "toolchain" and row.state == "ok":
            yield _toolchain(row, toolchains)
    yield from _flavors(toolchains)
    for row in plugins:
        if row.kind == "arch" and row.state == "ok":
            yield _target(row.name)
    executors = [_executor(row.name) for row in plugins if row.kind == "executor" and row.state == "ok"]
    yield from executors
    if not any(check.state == "ok" for check in executors):
        yield Check(
            group="executor",
            name="any",
            state="missing",
            required=True,
            found="nothing runs kernels here",
            remedy="Install kinfolk-runtime again: it brings the simulator.",
        )
    yield from _tools()


def _storage() -> Check:
    """Return whether the folder of what is kept can be written, which is slower, no failure, where it cannot."""
    try:
        root = storage_root()
    except KinfolkError as error:
        return Check(group="host", name="storage", state="broken", required=True, remedy=str(error))
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(b"written")
    except OSError as error:
        why = error.strerror or type(error).__name__
        remedy = (
            f"It cannot be written ({why}): kernels are compiled anew each time. Set KINFOLK_CACHE_DIR to a folder."
        )
        return Check(group="host", name="storage", state="broken", found=str(root), remedy=remedy)
    return Check(group="host", name="storage", found=str(root))


def _executor(name: str) -> Check:
    """Return whether an executor's plugin makes one, which no single one must."""
    from kinfolk_runtime.executor import ExecutorUnavailable, executor_of

    try:
        made = executor_of(name)
    except ExecutorUnavailable as error:
        return Check(group="runs", name=name, state="missing", remedy=str(error))
    except KinfolkError as error:
        return Check(group="runs", name=name, state="broken", remedy=str(error))
    return Check(group="runs", name=name, found=f"kernels for {made.target or 'any arch'}")


def _python() -> Check:
    supported = sys.version_info >= (3, 11)
    return Check(
        group="host",
        name="python",
        state="ok" if supported else "broken",
        required=True,
        found=f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        remedy="" if supported else "Install Python 3.11 or newer.",
    )


def _ours() -> tuple[str, ...]:
    """Return the names of our distributions: those the meta distribution names, where it is installed."""
    named = [name for name, _ in _requirements(META) if name.startswith(f"{META}-")]
    return tuple(dict.fromkeys(("kinfolk-core", "kinfolk-runtime", *named)))


def _requirements(distribution: str) -> list[tuple[str, str]]:
    """Return (name, the rest) of what an installed distribution requires, extras included; nothing where it is not."""
    import importlib_metadata

    try:
        texts = importlib_metadata.requires(distribution) or []
    except importlib_metadata.PackageNotFoundError:
        return []
    matches = (re.match(r"([A-Za-z0-9._-]+)(.*)", text) for text in texts)
    return [(match[1], match[2].strip()) for match in matches if match]


def _version(distribution: str) -> str | None:
    import importlib_metadata

    try:
        return importlib_metadata.version(distribution)
    except importlib_metadata.PackageNotFoundError:
        return None


def _distribution(name: str) -> Iterator[Check]:
    version = _version(name)
    if version == __version__:
        yield Check(group="distribution", name=name, required=True, found=version)
        return
    yield Check(
        group="distribution",
        name=name,
        state="broken" if version else "missing",
        required=True,
        found=f"{version}, kinfolk-core is {__version__}" if version else "",
        remedy=f"pip install {name}=={__version__}",
    )


def _libraries(ours: Iterable[str]) -> Iterator[Check]:
    """Yield each library that ours want; those of an extra are optional, but for the command line's, which runs."""
    wanted: dict[str, str] = {}
    for distribution in ours:
        for name, rest in _requirements(distribution):
            if not name.startswith(f"{META}-"):
                wanted.setdefault(name, f"{distribution} wants {name} {rest}".rstrip())
    for name, why in sorted(wanted.items()):
        version = _version(name)
        extra = re.search(r"extra == ['\"]([\w-]+)", why)
        yield Check(
            group="library",
            name=name,
            state="ok" if version else "missing",
            required=extra is None or extra[1] == "cli",
            found=version or "",
            remedy="" if version else f"pip install {name} ({why})",
        )


def _plugin(row: Row, ours: tuple[str, ...]) -> Check:
    off = row.state == "not allowed"
    return Check(
        group=row.kind,
        name=row.name,
        state="ok" if row.state == "ok" else "missing" if off else "broken",
        required=row.distribution in ours and not off,
        found=f"{row.distribution} {row.version}" + ("" if row.state == "ok" else f", {row.state}"),
        remedy=row.cause,
    )


def _toolchain(row: Row, usable: list[Toolchain]) -> Check:
    """Return whether a toolchain's LLVM starts, which no single one must; one that does is added to `usable`."""
    from kinfolk_runtime.toolchains.host import named_toolchain

    try:
        toolchain = named_toolchain(row.name)
        taken = " and ".join(toolchain.flavors) or "no flavor that is known"
        found = f"{toolchain.build}, takes {taken}"
    except KinfolkError as error:
        broken = isinstance(error, HookFault)
        return Check(group="llvm", name=row.name, state="broken" if broken else "missing", remedy=str(error))
    usable.append(toolchain)
    return Check(group="llvm", name=row.name, found=found)


def _flavors(toolchains: list[Toolchain]) -> Iterator[Check]:
    """Yield for every flavor whether a toolchain here compiles it; only the default one is required."""
    from kinfolk.flavor import DEFAULT_FLAVOR, flavors

    for flavor in flavors():
        serving = [toolchain.build for toolchain in toolchains if flavor.name in toolchain.flavors]
        required = flavor.name == DEFAULT_FLAVOR
        mend = REMEDIES.get(flavor.name, "Install a toolchain of that LLVM generation.")
        yield Check(
            group="flavor",
            name=flavor.name,
            state="ok" if serving else "missing",
            required=required,
            found=", ".join(serving),
            remedy="" if serving else mend if required else f"Only --flavor {flavor.name} needs it: {mend}",
        )


def _target(arch: str) -> Check:
    """Return whether an empty kernel compiles for an arch."""
    from kinfolk.flavor import DEFAULT_FLAVOR, flavor_named
    from kinfolk.ir import build_kernel
    from kinfolk.plugins.loading import load
    from kinfolk_runtime.artifact import compile_job
    from kinfolk_runtime.toolchains.host import toolchain_for

    try:
        found: Any = load("arch", arch).plugin
        target = found.kinfolk_arch()
        kernel = build_kernel("doctor", (), arch=target, block=target.wave_size, body=lambda: None)
        module = target.lower(kernel, None, flavor_named(DEFAULT_FLAVOR).rank)
        toolchain = toolchain_for(DEFAULT_FLAVOR)
        usage = target.usage(toolchain.compile(compile_job(module)).object, module.symbol)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a stranger's arch raises is a row like any other
        return Check(group="target", name=arch, state="broken", remedy=f"{type(error).__name__}: {error}")
    return Check(
        group="target",
        name=arch,
        found=f"{toolchain.build} compiles an empty kernel for {module.triple} {usage.target}",
    )


def _tools() -> Iterator[Check]:
    """Yield whether LLVM's optional programs are there, of the default flavor's generation or a later one."""
    from kinfolk.flavor import DEFAULT_FLAVOR, flavor_named
    from kinfolk_runtime.toolchains.tool import find_tool, paths_on_host

    rank = flavor_named(DEFAULT_FLAVOR).rank
    remedies = {
        "ld.lld": f"Only linked code objects need it. Debian: apt install lld-{rank}",
        "llvm-objdump": f"Only inspect PATH of an object needs it. Debian: apt install llvm-{rank}",
        "llvm-mca": f"Only a further opinion of inspect needs it. Debian: apt install llvm-{rank}",
    }
    for name, remedy in remedies.items():
        try:
            tool = find_tool(name, paths_on_host(name), oldest=rank)
        except ToolError as error:
            yield Check(group="tool", name=name, state="missing", found=str(error), remedy=remedy)
        else:
            yield Check(group="tool", name=name, found=f"{tool.path}, {tool.vendor} {tool.version}")
