"""Launches on the fast engine: workgroups on threads, and the first one at fault in the order of workgroups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.ir.value import Kernel, Operation
from kinfolk_runtime.simulator.entries import Counted
from kinfolk_runtime.simulator.fast.library import HostCodeError
from kinfolk_runtime.simulator.fast.machine import Machine, Records
from kinfolk_runtime.simulator.fast.program import FastProgram, Unsupported
from kinfolk_runtime.simulator.sanitizers import Sanitizer
from kinfolk_runtime.simulator.space import AddressSpace
from kinfolk_runtime.simulator.traffic import Traffic
from kinfolk_runtime.toolchains.llvmlite_toolchain import core_count

_CHUNKS_PER_THREAD = 8
_LARGEST_CHUNK = 32


@attrs.frozen(eq=False)
class Stopped:
    """A workgroup that did not run to its end: its number in the order of workgroups, the wave and the op.

    `limited`: the limit on rounds stopped it.
    """

    number: int
    wave: int
    op: Operation | None
    limited: bool = False


@attrs.frozen(eq=False)
class Prepared:
    """A kernel's program with the machines that wait for work, or why there is no program."""

    program: FastProgram | None
    reason: str = ""
    idle: list[Machine] = attrs.field(factory=list[Machine])


class FastEngine:
    """Programs of kernels, kept as long as the kernel lives, and the threads they run on.

    `counts`: programs count how often regions are entered.
    """

    def __init__(self, threads: int | None = None, counts: bool = False) -> None:
        self._threads, self._counts = threads or core_count(), counts
        self._prepared: WeakKeyDictionary[Kernel, dict[frozenset[Sanitizer], Prepared]] = WeakKeyDictionary()

    def prepare(self, kernel: Kernel, sanitize: frozenset[Sanitizer]) -> Prepared:
        """Return the kernel's program with these sanitizers; without one its `reason` names the op that has no
        function.
        """
        programs = self._prepared.setdefault(kernel, {})
        known = programs.get(sanitize)
        if known is None:
            try:
                known = Prepared(FastProgram(kernel, sanitize, self._counts))
            except Unsupported as unsupported:
                known = Prepared(None, f"the fast one has no {unsupported}")
            except HostCodeError as missing:
                known = Prepared(None, f"no code for this host can be made ({missing})")
            programs[sanitize] = known
        return known

    def run(
        self,
        prepared: Prepared,
        memory: AddressSpace,
        values: Sequence[npt.NDArray[Any]],
        grid: tuple[int, int, int],
        places: npt.NDArray[np.int64],
        seed: int,
        in_order: bool = False,
        traffic: Traffic | None = None,
        round_limit: int | None = None,
        counted: Callable[[Counted], None] | None = None,
    ) -> Stopped | None:
        """Run workgroups in the order of `places`; return the first that stops. `in_order`: one after the other.

        Where none stops, `counted` is told how often regions were entered, if programs count it.

        With `traffic` a workgroup stops where it races another; not one after the other, either of the two may.
        """
        assert prepared.program is not None
        work = _Work(prepared, Records(memory.buffers, traffic), values, grid, places, seed, round_limit)
        threads = 1 if in_order or not prepared.program.parallel else min(self._threads, len(places))
        work.chunk = max(1, min(_LARGEST_CHUNK, len(places) // (threads * _CHUNKS_PER_THREAD)))
        if threads == 1:
            work.go()
        else:
            helpers = [threading.Thread(target=work.go) for _ in range(threads - 1)]
            for helper in helpers:
                helper.start()
            work.go()
            for helper in helpers:
                helper.join()
        if work.errors:
            raise work.errors[0]
        if counted is not None and work.stopped is None and work.entries is not None:
            counted(work.entries)
        return work.stopped


class _Work:
    """One launch, shared by its threads."""

    def __init__(
        self,
        prepared: Prepared,
        records: Records,
        values: Sequence[npt.NDArray[Any]],
        grid: tuple[int, int, int],
        places: npt.NDArray[np.int64],
        seed: int,
        round_limit: int | None,
    ) -> None:
        self.prepared, self.records, self.values = prepared, records, values
        self.grid, self.places, self.seed, self.round_limit = grid, places, seed, round_limit
        self.chunk = 1
        self.stopped: Stopped | None = None
        self.errors: list[Exception] = []
        self.entries: Counted | None = None
        self._next = 0
        self._lock = threading.Lock()

    def _take(self) -> int | None:
        with self._lock:
            begin = self._next
            if begin >= len(self.places) or self.errors or (self.stopped and begin > self.stopped.number):
                return None
            self._next = begin + self.chunk
            return begin

    def go(self) -> None:
        """Run chunks of workgroups until none is left, or one that comes earlier has stopped."""
        try:
            program = self.prepared.program
            assert program is not None
            machine = self._machine(program)
            machine.prepare(self.records, self.values, self.grid, self.seed, self.round_limit)
            while (begin := self._take()) is not None:
                count = min(self.chunk, len(self.places) - begin)
                done = machine.run(self.places, begin, count)
                if done < count:
                    wave, word = machine.fault()
                    self._stop(Stopped(begin + done, wave, program.op_at(word), machine.limited))
            self._add(machine.counted())
            self.prepared.idle.append(machine)
        except Exception as error:  # noqa: BLE001, it is raised in the thread that launched
            self.errors.append(error)

    def _machine(self, program: FastProgram) -> Machine:
        try:
            return self.prepared.idle.pop()
        except IndexError:
            return Machine(program)

    def _add(self, entries: Counted | None) -> None:
        with self._lock:
            if entries is not None:
                self.entries = entries.copy() if self.entries is None else self.entries + entries

    def _stop(self, stopped: Stopped) -> None:
        with self._lock:
            if self.stopped is None or stopped.number < self.stopped.number:
                self.stopped = stopped
