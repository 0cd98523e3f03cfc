"""What kernels of code objects are launched on: a file of tensors and launches, for those that no family asks for."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import attrs
import numpy as np

from kinfolk.check import Tolerance, numpy_dtype, poison, unit_roundoff
from kinfolk.check.element import Array, Floats
from kinfolk.errors import InternalError, KinfolkError
from kinfolk.machine import LaunchShape

FILLS: Final = ("normal", "uniform", "index", "zeros", "ones")
ACCESSES: Final = ("in", "out", "inout")
MOST_BYTES: Final = 1 << 32
_TENSOR: Final = frozenset({"dtype", "shape", "fill", "file", "scale", "low", "high", "access", "tolerance"})
_LAUNCH: Final = frozenset({"kernel", "grid", "block", "dynamic_bytes", "arguments"})


class ProblemError(KinfolkError):
    """A file of a problem that says something that cannot be: the message names field, value and what is taken."""


@attrs.frozen(kw_only=True)
class Tensor:
    """An array by name: how it is filled, and what a kernel does with it.

    `access` is `in` for what kernels only read, `out` for what they write without reading it, `inout` for both; the
    last two are compared. `tolerance` is how far elements may lie apart, over the largest magnitude of the tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    fill: str = "normal"
    file: Path | None = None
    scale: float = 1.0
    low: float = -1.0
    high: float = 1.0
    access: str = "in"
    tolerance: float

    def array(self, generator: np.random.Generator) -> Array:
        """Return its values; ProblemError for a file that holds others."""
        kind = numpy_dtype(self.dtype)
        if self.access == "out":
            return poison(self.dtype, self.shape)
        if self.file is not None:
            return self._loaded(self.file, kind)
        if self.fill == "normal":
            return (self.scale * generator.standard_normal(self.shape)).astype(kind)
        if self.fill == "uniform":
            whole = np.issubdtype(kind, np.integer)
            drawn = generator.integers(int(self.low), int(self.high), self.shape, endpoint=True) if whole else None
            return (generator.uniform(self.low, self.high, self.shape) if drawn is None else drawn).astype(kind)
        if self.fill == "index":
            return np.arange(int(np.prod(self.shape))).reshape(self.shape).astype(kind)
        return np.full(self.shape, self.scale if self.fill == "ones" else 0.0).astype(kind)

    def bound(self, values: Floats) -> Tolerance:
        """Return how far elements may lie from `values`."""
        finite = np.abs(values[np.isfinite(values)])
        return Tolerance(np.full(self.shape, self.tolerance * float(finite.max(initial=0.0))))

    def _loaded(self, file: Path, kind: np.dtype[Any]) -> Array:
        try:
            held: Any = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ProblemError(f"tensor {self.name}: {file} cannot be read: {error}") from error
        if held.shape != self.shape or held.dtype.itemsize != kind.itemsize:
            raise ProblemError(
                f"tensor {self.name} is {self.dtype} of shape {self.shape}; {file} holds {held.dtype} of {held.shape}"
            )
        return np.ascontiguousarray(held).view(kind)


@attrs.frozen(kw_only=True)
class Value:
    """An argument that is passed as it is; None is a null pointer."""

    value: object


@attrs.frozen(kw_only=True)
class ObjectLaunch:
    """How a kernel of an object is launched: arguments in its order, each a tensor's name or a value.

    Where `names` is there, it has what the object calls each of them.
    """

    kernel: str | None
    shape: LaunchShape
    arguments: tuple[str | Value, ...]
    names: tuple[str, ...] | None = None


@attrs.frozen(kw_only=True)
class Problem:
    """Tensors, and how kernels are launched on them."""

    path: Path
    seed: int
    tensors: Mapping[str, Tensor]
    launches: Mapping[str, Mapping[str, Any]]

    def arrays(self) -> dict[str, Array]:
        """Return the values of all tensors; the same on every call."""
        generator = np.random.default_rng(self.seed)
        return {name: tensor.array(generator) for name, tensor in self.tensors.items()}

    def launch_of(self, side: str, file: Path) -> ObjectLaunch:
        """Return how an object is launched: what `[launch]` says, and what is said for its side or its file's name."""
        said = dict(self.launches.get("", {}))
        for name in (file.stem, side):
            said |= self.launches.get(name, {})
        where = f"{self.path}: launch of {file.name}"
        for field in ("grid", "block", "arguments"):
            if field not in said:
                raise ProblemError(f"{where} does not say its {field}: add it to [launch] or [launch.{side}]")
        dynamic = said.get("dynamic_bytes", 0)
        if type(dynamic) is not int or dynamic < 0:
            raise ProblemError(f"{where}: dynamic_bytes is {dynamic!r}, it is a number of bytes from 0 on")
        kernel = said.get("kernel")
        if kernel is not None and not isinstance(kernel, str):
            raise ProblemError(f"{where}: kernel is {kernel!r}, it is the name of a kernel in the object")
        grid, block = _sizes(where, "grid", said["grid"]), _sizes(where, "block", said["block"])
        given: Any = said["arguments"]
        by_name = isinstance(given, dict)
        return ObjectLaunch(
            kernel=kernel,
            shape=LaunchShape(grid=grid, block=block, dynamic_bytes=dynamic),
            arguments=_arguments(where, list(cast("dict[str, Any]", given).values()) if by_name else given),
            names=tuple(cast("dict[str, Any]", given)) if by_name else None,
        )


def read_problem(path: Path) -> Problem:
    """Return the problem in a TOML or JSON file; ProblemError for one that cannot be read or says what cannot be."""
    try:
        text = path.read_text(encoding="utf-8")
        said: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ProblemError(f"{path} cannot be read: {error}") from error
    said = _table(str(path), said, frozenset({"seed", "tensors", "launch"}))
    seed = said.get("seed", 0)
    if type(seed) is not int or seed < 0:
        raise ProblemError(f"{path}: seed is {seed!r}, it is an int from 0 on")
    tensors = {
        name: _tensor(f"{path}: tensor {name}", name, each, path.parent)
        for name, each in _table(f"{path}: tensors", said.get("tensors", {})).items()
    }
    launch = _table(f"{path}: launch", said.get("launch", {}))
    launches: dict[str, Mapping[str, Any]] = {"": {}}
    for name, each in launch.items():
        if isinstance(each, dict):
            launches[name] = _table(f"{path}: launch.{name}", each, _LAUNCH)
        else:
            launches[""] = {**launches[""], name: each}
    _table(f"{path}: launch", launches[""], _LAUNCH)
    return Problem(path=path, seed=seed, tensors=tensors, launches=launches)


def _table(where: str, said: Any, known: frozenset[str] | None = None) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise ProblemError(f"{where} is {said!r}, it is a table")
    table = cast("dict[str, Any]", said)
    for name in table:
        if known is not None and name not in known:
            raise ProblemError(f"{where} has {name}, which is none of {', '.join(sorted(known))}")
    return table


def _tensor(where: str, name: str, said: Any, folder: Path) -> Tensor:
    table = _table(where, said, _TENSOR)
    for field in ("dtype", "shape"):
        if field not in table:
            raise ProblemError(f"{where} does not say its {field}")
    dtype, shape = table["dtype"], table["shape"]
    try:
        kind = numpy_dtype(str(dtype))
    except InternalError as error:
        raise ProblemError(f"{where}: dtype: {error}") from None
    if not isinstance(shape, list) or any(type(each) is not int or each < 1 for each in cast("list[Any]", shape)):
        raise ProblemError(f"{where}: shape is {shape!r}, it is a list of sizes from 1 on")
    sizes = tuple(cast("list[int]", shape))
    if (size := int(np.prod(sizes, dtype=object)) * kind.itemsize) > MOST_BYTES:
        raise ProblemError(f"{where} has {size} bytes, at most {MOST_BYTES} are made")
    for field, known in (("fill", FILLS), ("access", ACCESSES)):
        if field in table and table[field] not in known:
            raise ProblemError(f"{where}: {field} is {table[field]!r}, it is {', '.join(known)}")
    numbers = {field: table[field] for field in ("scale", "low", "high", "tolerance") if field in table}
    for field, number in numbers.items():
        if type(number) not in (int, float) or not np.isfinite(number):
            raise ProblemError(f"{where}: {field} is {number!r}, it is a finite number")
    tolerance = float(numbers.pop("tolerance", _usual_tolerance(str(dtype))))
    if tolerance < 0:
        raise ProblemError(f"{where}: tolerance is {tolerance}, it is 0 or more")
    return Tensor(
        name=name,
        dtype=str(dtype),
        shape=sizes,
        fill=table.get("fill", "normal"),
        file=folder / str(table["file"]) if "file" in table else None,
        access=table.get("access", "in"),
        tolerance=tolerance,
        **{field: float(number) for field, number in numbers.items()},
    )


def _usual_tolerance(dtype: str) -> float:
    """Return two roundings of a short float; of f32 and f64, 2^8 of them, since sums take orders of their own."""
    if dtype.startswith("i"):
        return 0.0
    return unit_roundoff(dtype) * (256 if dtype in ("f32", "f64") else 2)


def _sizes(where: str, field: str, said: Any) -> tuple[int, int, int]:
    sizes = cast("list[Any]", said if isinstance(said, list) else [said])
    if not 1 <= len(sizes) <= 3 or any(type(size) is not int or size < 1 for size in sizes):
        raise ProblemError(f"{where}: {field} is {said!r}, it is one to three sizes from 1 on")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _arguments(where: str, said: Any) -> tuple[str | Value, ...]:
    if not isinstance(said, list):
        raise ProblemError(
            f"{where}: arguments is {said!r}, it is a list in the order of the kernel, or a table of its names"
        )
    return tuple(_argument(f"{where}: argument {number}", each) for number, each in enumerate(cast("list[Any]", said)))


def _argument(where: str, said: Any) -> str | Value:
    if isinstance(said, str):
        return said
    if said is None or said == {"null": True}:
        return Value(value=None)
    if type(said) in (int, float):
        return Value(value=said)
    if isinstance(said, dict):
        table = _table(where, said, frozenset({"dtype", "value"}))
        try:
            with np.errstate(over="raise"):
                return Value(value=numpy_dtype(str(table["dtype"])).type(table["value"]))
        except (KeyError, InternalError, ValueError, TypeError, OverflowError, FloatingPointError) as error:
            raise ProblemError(f"{where} is {said!r}, it has a dtype and a value that it holds: {error}") from None
    raise ProblemError(f"{where} is {said!r}: it is a tensor's name, a number, a dtype with a value, or null = true")
