"""The reference engine with each integer compared, where it is made, with the set that the analyses found for it."""

from __future__ import annotations

import numpy as np

from kinfolk.arch import Arch
from kinfolk.ir.types import DataType, element_type
from kinfolk.matrix import MatrixCatalog
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.program import Program


def never(*_):
    raise AssertionError("nothing is lowered here")


PAPER = Arch(
    name="paper",
    target_ids=("paper",),
    wave_size=64,
    facts={"lds_bytes": 4096, "max_workgroup_size": 256, "max_grid_x": 2**31 - 1, "max_grid_y": 65535},
    matrix=MatrixCatalog(()),
    lower_kernel=never,
    read_usage=never,
)


class ObservedValues(Simulator):
    """Notes in `outside` each op that made a number outside its set, and in `observed` how many ops were looked at.

    `values` are the sets whichever wave runs, `by_wave` those of each wave.
    """

    def __init__(self, values, by_wave) -> None:
        super().__init__(engine="reference")
        self.values, self.by_wave = values, by_wave
        self.outside: list[str] = []
        self.observed = 0

    def _program(self, kernel):
        if kernel not in self._programs:
            self._programs[kernel] = ObservedProgram(kernel, self.sanitize, self)
        return self._programs[kernel]


class ObservedProgram(Program):
    def __init__(self, kernel, sanitize, observer) -> None:
        self._observer = observer
        super().__init__(kernel, sanitize)

    def _step(self, op):
        step = super()._step(op)
        if step is None:
            return None
        results = [(value, self._slot(value)) for value in op.results if _is_integer(value)]
        operands = [(place, value, self._slot(value)) for place, value in enumerate(op.operands) if _is_integer(value)]

        def observed(w) -> None:
            step(w)
            self._look(op, w, results, operands)

        return observed if results or operands else step

    def _look(self, op, w, results, operands) -> None:
        observer = self._observer
        observer.observed += 1
        for values in (observer.values, observer.by_wave[w.index]):
            if op not in values.seen:
                observer.outside.append(f"{op.name} at {op.location} is reached")
                continue
            for place, value, slot in operands:
                _compare(observer, op, w, value, slot, values.seen[op][place])
            for value, slot in results:
                _compare(observer, op, w, value, slot, values[value])


def _is_integer(value) -> bool:
    return isinstance(value.type, DataType) and element_type(value.type).kind == "int"


def _compare(observer, op, w, value, slot, numbers) -> None:
    bits = element_type(value.type).bits
    found = w.registers[slot]
    if not isinstance(found, np.ndarray):
        return
    active = np.broadcast_to(found, (*found.shape[:-1], len(w.mask)))[..., w.mask]
    whole = active.astype(np.int64) if bits == 1 else active.view(f"int{bits}").astype(np.int64)
    for number in set(whole.ravel().tolist()):
        if number not in numbers:
            observer.outside.append(f"{op.name} at {op.location}: {number} is not among {numbers}")
