"""Launches of kernels on the simulator, and its reference engine: numpy, one wave at a time, each wave a generator that
yields at barriers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from weakref import WeakKeyDictionary

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.analysis import Indirection, indirections
from kinfolk.errors import InternalError
from kinfolk.ir.value import Kernel
from kinfolk.parameters import Parameter
from kinfolk_runtime.executor import Work
from kinfolk_runtime.seeds import known_seed
from kinfolk_runtime.simulator.buffers import Buffer, SparseBuffer, Storage
from kinfolk_runtime.simulator.control import past_the_limit
from kinfolk_runtime.simulator.entries import Entries
from kinfolk_runtime.simulator.fault import KernelFault, Party
from kinfolk_runtime.simulator.program import Program
from kinfolk_runtime.simulator.sanitizers import Sanitizer, sanitizers
from kinfolk_runtime.simulator.space import LARGEST, AddressSpace
from kinfolk_runtime.simulator.traffic import Traffic
from kinfolk_runtime.simulator.transfers import Probe, WorkgroupsRace
from kinfolk_runtime.simulator.waves import run_workgroup
from kinfolk_runtime.simulator.workgroup import Workgroup

if TYPE_CHECKING:
    from kinfolk_runtime.simulator.fast.engine import FastEngine, Prepared, Stopped

Engine = Literal["reference", "fast"]
ENGINES: Final[tuple[Engine, ...]] = ("reference", "fast")
Given = npt.NDArray[Any] | Buffer | SparseBuffer | int | float
Grid = tuple[int, int, int]


@attrs.frozen(eq=False)
class _Launch:
    """One launch: `places` are workgroups' numbers in the grid, in the order in which they run."""

    kernel: Kernel
    grid: Grid
    memory: AddressSpace
    values: Sequence[npt.NDArray[Any]]
    places: npt.NDArray[np.int64]
    order_seed: int
    traffic: Traffic | None
    """The sanitizer of races between workgroups."""
    saved: Sequence[Callable[[], None]]

    def place(self, number: int) -> tuple[int, int, int]:
        """Return where in the grid a workgroup is."""
        place, (x, y, _) = int(self.places[number]), self.grid
        return place % x, place // x % y, place // (x * y)

    def begin_anew(self) -> None:
        """Let memory be as it was before the launch."""
        for restore in self.saved:
            restore()
        if self.traffic is not None:
            self.traffic.clear()


class Simulator:
    """Runs kernels by the declared meaning of their ops; anything a kernel does wrong raises `KernelFault`.

    Prepared kernels are kept as long as the kernel object lives.
    """

    name = "simulator"
    target: str | None = None
    takes_sparse = True

    def __init__(
        self,
        order_seed: int = 0,
        *,
        engine: Engine = "fast",
        threads: int | None = None,
        sanitize: str | Iterable[Sanitizer] = "all",
        round_limit: int | None = None,
        entries: Entries | None = None,
    ) -> None:
        """`engine`: "fast" runs compiled functions of the ops where it has them, "reference" numpy alone; the results
        are the same. `threads`: how many run workgroups in the fast engine, by default one per core. `sanitize`: what
        is looked for, "all", "none" or names of sanitizers; claims (of uniformity, of lanes, of floats) always are.
        `round_limit`: how many rounds after their first the loops of a workgroup may begin in all; one more is a fault
        of kind `limit`, in either engine. By default there is none.
        `entries`: where the fast engine counts how often waves enter each region of a kernel.
        """
        if engine not in ENGINES:
            raise ValueError(f"engine is {engine!r}, known: {', '.join(ENGINES)}")
        if round_limit is not None and (type(round_limit) is not int or not 0 <= round_limit < 1 << 62):
            raise ValueError(f"round_limit is {round_limit!r}, a Python int from 0 to 2^62 - 1 or None is needed")
        self.engine: Engine = engine
        self.round_limit = round_limit
        self.sanitize: frozenset[Sanitizer] = sanitizers(sanitize)
        self._order_seed, self._entries = known_seed("order_seed", order_seed), entries
        self._programs: WeakKeyDictionary[Kernel, Program] = WeakKeyDictionary()
        self._fast: FastEngine | None = None
        self._notes: dict[str, None] = {}
        self._indirections: WeakKeyDictionary[Kernel, tuple[Indirection, ...]] = WeakKeyDictionary()
        if engine == "fast":  # a program is made when a kernel first runs
            from kinfolk_runtime.simulator.fast.engine import FastEngine

            self._fast = FastEngine(threads, counts=entries is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to say about the engine: kernels that the fast one left to the reference, and why."""
        return tuple(self._notes)

    def with_order(self, order_seed: int) -> Simulator:
        """Return a simulator of another order that shares this one's prepared kernels."""
        other = copy(self)
        other._order_seed = known_seed("order_seed", order_seed)
        return other

    def with_round_limit(self, round_limit: int) -> Simulator:
        """Return a simulator of another limit on rounds that shares this one's prepared kernels."""
        other = copy(self)
        other.round_limit = round_limit
        return other

    def run(self, work: Work) -> None:
        """Run one launch of a bound plan: its IR, under this simulator's seed."""
        self.launch(work.kernel, work.grid, cast("tuple[Given, ...]", work.arguments))

    def launch(
        self,
        kernel: Kernel,
        grid: Grid,
        arguments: Sequence[Given] | Mapping[str, Given],
        order_seed: int | None = None,
    ) -> None:
        """Run every workgroup of `grid` on arguments in parameter order, or by name.

        A pointer takes an array, which is read and written in place, or a `Buffer` or `SparseBuffer` over one; its
        bytes are the true allocation. `order_seed`, by default the simulator's own, draws the order of workgroups and,
        anew after each barrier, of waves, and where buffers lie; 0 runs both in ascending order. Races are found in any
        order; others show what else depends on it, such as the sum of atomic additions of floats.
        """
        order_seed = self._order_seed if order_seed is None else known_seed("order_seed", order_seed)
        if len(grid) != 3 or any(count < 0 for count in grid):
            raise KernelFault(f"grid {grid} is not three counts", kind="argument", kernel=kernel.name)
        memory = AddressSpace(order_seed)
        values = [
            _value(kernel, memory, parameter, given)
            for parameter, given in zip(kernel.parameters, _in_order(kernel, arguments), strict=True)
        ]
        self._check_indirections(kernel)
        places = self.places(grid[0] * grid[1] * grid[2])
        count = len(places)
        if order_seed:
            places = np.random.default_rng(order_seed).permutation(places)
        traffic = Traffic(memory) if "race" in self.sanitize and count > 1 else None
        prepared = self._fast_program(kernel)
        saved: list[Callable[[], None]] = []
        if count and (prepared is not None or traffic is not None):
            saved = [one.storage.saved() for one in memory.buffers if one.parameter.access != "read"]
        launch = _Launch(kernel, grid, memory, values, places, order_seed, traffic, saved)
        if prepared is None:
            self._run_reference(launch, 0, count)
        elif count:
            self._run_fast(launch, prepared)

    def _check_indirections(self, kernel: Kernel) -> None:
        """Raise where a loaded value reaches an address without a range check, on whatever path."""
        if "indirection" not in self.sanitize:
            return
        if kernel not in self._indirections:
            self._indirections[kernel] = indirections(kernel)
        for first in self._indirections[kernel][:1]:
            more = f" ({len(self._indirections[kernel]) - 1} more like it)" if self._indirections[kernel][1:] else ""
            raise KernelFault(f"takes {first}{more}", kind="indirection", kernel=kernel.name, op=first.op)

    def places(self, count: int) -> npt.NDArray[np.int64]:
        """Return the workgroups that a launch runs, by their numbers in a grid of `count`: all of them."""
        return np.arange(count, dtype=np.int64)

    def _fast_program(self, kernel: Kernel) -> Prepared | None:
        if self._fast is None:
            return None
        prepared = self._fast.prepare(kernel, self.sanitize)
        if prepared.program is None:
            self._notes[f"{kernel.name} runs on the reference engine: {prepared.reason}"] = None
            return None
        return prepared

    def _run_fast(self, launch: _Launch, prepared: Prepared) -> None:
        """Run a launch on the fast engine; where it stops, run that workgroup in the reference engine for its fault.

        The workgroups before it are run again, one after the other, so that memory is what it would be there.
        """
        stopped = self._on_fast(launch, prepared, 0, len(launch.places), in_order=False)
        passed: set[int] = set()
        while stopped is not None:
            if stopped.limited:
                raise self._limit_reached(launch, stopped)
            launch.begin_anew()
            earlier = self._on_fast(launch, prepared, 0, stopped.number)
            if earlier is not None:
                if earlier.number in passed:
                    raise _disagreement(launch, earlier)
                stopped = earlier
                continue
            self._run_reference(launch, stopped.number, 1)
            passed.add(stopped.number)
            # Of two workgroups that race, the later one in order is at fault; on threads the other one may stop.
            later = self._on_fast(launch, prepared, stopped.number + 1, len(launch.places)) if launch.traffic else None
            if later is None:
                raise _disagreement(launch, stopped)
            stopped = later

    def _limit_reached(self, launch: _Launch, stopped: Stopped) -> KernelFault:
        assert self.round_limit is not None
        return KernelFault(
            past_the_limit(self.round_limit),
            kind="limit",
            kernel=launch.kernel.name,
            op=stopped.op,
            workgroup=launch.place(stopped.number),
            wave=stopped.wave,
        )

    def _on_fast(
        self, launch: _Launch, prepared: Prepared, begin: int, end: int, in_order: bool = True
    ) -> Stopped | None:
        """Run workgroups in the fast engine; return the first that stops, by its number in the launch."""
        assert self._fast is not None
        if begin >= end:
            return None
        places = launch.places[begin:end]
        stopped = self._fast.run(
            prepared,
            launch.memory,
            launch.values,
            launch.grid,
            places,
            launch.order_seed,
            in_order,
            launch.traffic,
            self.round_limit,
            partial(self._entries.add, launch.kernel) if self._entries is not None else None,
        )
        return attrs.evolve(stopped, number=stopped.number + begin) if stopped is not None else None

    def _run_reference(self, launch: _Launch, begin: int, count: int) -> None:
        try:
            self._run_workgroups(launch, begin, count)
            return
        except WorkgroupsRace as race:
            raced = race
        raced.raise_(self._other_party(launch, raced))

    def _other_party(self, launch: _Launch, race: WorkgroupsRace) -> Party:
        """Return who the other workgroup of a race is, found by running the launch again up to it."""
        place = race.meeting.place
        if place is None:
            return Party(None, None, None)
        number = int(np.flatnonzero(launch.places == place)[0])
        launch.begin_anew()
        quiet = attrs.evolve(launch, traffic=None)
        prepared = self._fast_program(launch.kernel)
        if prepared is None:
            self._run_workgroups(quiet, 0, number)
        else:
            self._on_fast(quiet, prepared, 0, number)
        probe = Probe(race.mapped, race.meeting)
        self._run_workgroups(quiet, number, 1, probe)
        return probe.found or Party(None, None, launch.place(number))

    def _run_workgroups(self, launch: _Launch, begin: int, count: int, probe: Probe | None = None) -> None:
        program = self._program(launch.kernel)
        template = list(program.template)
        for slot, value in zip(program.parameters, launch.values, strict=True):
            template[slot] = value
        with np.errstate(all="ignore"):
            for number in range(begin, begin + count):
                place = int(launch.places[number])
                group = Workgroup(
                    program,
                    launch.kernel.name,
                    launch.place(number),
                    place,
                    launch.memory,
                    launch.traffic,
                    probe,
                    self.round_limit,
                )
                run_workgroup(program, group, template, launch.order_seed, place)

    def _program(self, kernel: Kernel) -> Program:
        if kernel not in self._programs:
            self._programs[kernel] = Program(kernel, self.sanitize)
        return self._programs[kernel]


def _disagreement(launch: _Launch, stopped: Stopped) -> InternalError:
    where = stopped.op.name if stopped.op else "its end"
    return InternalError(
        f"{launch.kernel.name}: the engines disagree: the fast one stops workgroup {launch.place(stopped.number)}, "
        f"wave {stopped.wave} at {where}, the reference finds no fault"
    )


def _in_order(kernel: Kernel, arguments: Sequence[Given] | Mapping[str, Given]) -> Sequence[Given]:
    names = [parameter.name for parameter in kernel.parameters]
    if isinstance(arguments, Mapping):
        if sorted(arguments) != sorted(names):
            raise _wrong_argument(kernel, f"takes arguments {', '.join(names)}, got {', '.join(arguments)}")
        return [arguments[name] for name in names]
    if len(arguments) != len(names):
        raise _wrong_argument(kernel, f"takes {len(names)} arguments ({', '.join(names)}), got {len(arguments)}")
    return arguments


def _wrong_argument(kernel: Kernel, what: str) -> KernelFault:
    return KernelFault(what, kind="argument", kernel=kernel.name)


def _value(kernel: Kernel, memory: AddressSpace, parameter: Parameter, given: Given) -> npt.NDArray[Any]:
    """Return the value that a parameter is inside the kernel: an address, or a number, equal on all lanes."""
    if parameter.is_pointer:
        if isinstance(given, (int, float)):
            raise _wrong_argument(kernel, f"parameter {parameter.name} is a pointer, got {given!r}")
        storage: Storage = Buffer(given) if isinstance(given, np.ndarray) else given
        if parameter.access != "read" and not cast("Buffer", storage).writeable:
            raise _wrong_argument(kernel, f"parameter {parameter.name} is written, its array is read-only")
        if storage.size > LARGEST:
            told = f"parameter {parameter.name} has {storage.size} bytes, the simulator maps at most {LARGEST}"
            raise _wrong_argument(kernel, f"{told}. Run it on fewer pages or rows")
        return memory.map(parameter, storage)
    if parameter.kind == "f32":
        if type(given) is not float:
            raise _wrong_argument(kernel, f"parameter {parameter.name} takes a float, got {given!r}")
        return np.array([[given]], np.float32)
    bits = parameter.bytes * 8
    if type(given) is not int or not -(1 << (bits - 1)) <= given < 1 << (bits - 1):
        raise _wrong_argument(kernel, f"parameter {parameter.name} takes an int of {bits} bits, got {given!r}")
    return np.frombuffer(struct.pack("<q", given)[: bits // 8], f"<u{bits // 8}").reshape(1, 1)
